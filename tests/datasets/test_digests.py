"""The sha256 of arrays is that of their bytes, however they are cut and laid out."""

import hashlib

import numpy as np

from cmalight.datasets import entry
from cmalight.datasets.entry import digest_of


def test_it_is_that_of_labels_and_bytes_in_order(monkeypatch):
    monkeypatch.setattr(entry, "_BLOCK", 13)
    a, b = np.arange(60.0).reshape(10, 6), np.arange(3, dtype=np.int16)
    expected = hashlib.sha256(b"a" + a.tobytes() + b"b" + b.tobytes()).hexdigest()
    assert digest_of([("a", a), ("b", b)]) == digest_of([("a", np.asfortranarray(a)), ("b", b)]) == expected


def test_values_of_another_type_go_in_as_they_are_asked_for():
    array = np.arange(4)
    assert digest_of([("", array)], dtype="<f8") == digest_of([("", array.astype("<f8"))])
