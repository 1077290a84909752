"""The sha256 of arrays is that of their bytes, however they are cut and laid out."""

import hashlib

import numpy as np

from cmalight.datasets import entry
from cmalight.datasets.entry import digest_of


def test_it_is_that_of_labels_and_bytes_in_order():
    a, b = np.arange(6.0).reshape(3, 2), np.arange(3, dtype=np.int16)
    expected = hashlib.sha256(b"a" + a.tobytes() + b"b" + b.tobytes()).hexdigest()
    assert digest_of([("a", a), ("b", b)]) == expected


def test_blocks_and_layouts_do_not_show(monkeypatch):
    array = np.arange(60.0).reshape(10, 6)
    whole = digest_of([("", array)])
    monkeypatch.setattr(entry, "_BLOCK", 13)
    assert digest_of([("", array)]) == digest_of([("", np.asfortranarray(array))]) == whole


def test_values_of_another_type_go_in_as_they_are_asked_for():
    array = np.arange(4)
    assert digest_of([("", array)], dtype="<f8") == digest_of([("", array.astype("<f8"))])


def test_nothing_and_empty_rows_have_one():
    assert digest_of([]) == digest_of([("", np.empty((3, 0)))]) == hashlib.sha256().hexdigest()
