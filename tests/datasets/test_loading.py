"""Names, Table 2, splits, scaling, generated and embedded sets, and the real files where they are at hand."""

import hashlib
import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cmalight.datasets import (
    DataError,
    dataset_info,
    digest_of,
    entry,
    generated,
    known,
    load_dataset,
    register,
    where,
)
from cmalight.datasets.entry import training_count
from tests.datasets.makers import cifar, tarred

REAL = os.environ.get("CMALIGHT_DATA", "")


@pytest.fixture
def real_file(name, monkeypatch):
    monkeypatch.setenv("CMALIGHT_DATA", REAL)
    if where(dataset_info(name)) == "to download":
        pytest.skip(f"CMALIGHT_DATA names no folder with the file of {name}")


@pytest.mark.parametrize("name", known()[:11])
def test_the_real_files_give_the_papers_rows_and_columns(name, real_file):
    data, entry = load_dataset(name), dataset_info(name)
    assert data.x_train.shape == (entry.training_rows, entry.features)
    assert data.y_train.shape == (entry.training_rows, 1)
    for part in (data.x_train, data.y_train):
        assert part.dtype == np.float32
        assert (part.min(), part.max()) == (0, 1)


@pytest.mark.parametrize("name", ["cifar10"])
def test_the_real_cifar10_is_told_by_its_values(name, real_file):
    data = load_dataset(name)
    assert np.bincount(data.y_train).tolist() == [5000] * 10
    means = data.x_train.mean(axis=(0, 2, 3), dtype=np.float64)
    assert means.tolist() == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=1e-7)  # as published everywhere


def test_every_entry_says_what_it_is_and_whom_to_credit():
    for name in known():
        entry = dataset_info(name)
        assert all((entry.title, entry.encoding, entry.licence)), name
        assert bool(entry.citation) == (name not in ("teacher", "least-squares", "logistic")), name
        assert bool(entry.urls) == bool(entry.file), name


def test_names_are_found_in_any_spelling_and_an_unknown_one_gets_the_nearest():
    assert {dataset_info(name).name for name in ("Skin NonSkin", "skin_nonskin", "SKIN-NONSKIN")} == {"skin-nonskin"}
    with pytest.raises(DataError, match="did you mean 'california'"):
        load_dataset("califronia")


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("diabetes", (331, 10), None),
        ("digits", (1347, 64), 10),
        ("breast-cancer", (426, 30), 2),
        ("wine", (133, 13), 3),
    ],
)
def test_embedded_sets_need_no_file(name, shape, classes):
    data = load_dataset(name)
    assert (data.x_train.shape, data.classes) == (shape, classes)
    assert data.y_train.dtype == (np.float32 if classes is None else np.int64)
    assert len(data.feature_names) == shape[1]
    assert len(data.class_names) == (classes or 0)


def test_a_generated_set_takes_its_numbers_from_its_name():
    data = load_dataset("Logistic:rows=100,features=3,seed=5")
    assert data.x_train.shape == (75, 3)
    assert data.classes == 2
    assert set(data.y_train.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("teacher:rows", "Invalid rows value in 'teacher:rows': ''; expected a whole number"),
        ("teacher:rowz=3", "did you mean 'rows'"),
        ("teacher:rows=x", "whole number"),
        ("teacher:rows=1", "leaves none of 1 rows"),
        ("logistic:hidden=3", "Unknown option 'hidden'"),
        ("least-squares:condition=nan", "Invalid condition value: nan"),
        ("logistic:noise=2", "a number from 0 to 1"),
        ("teacher:hidden=0", "Invalid hidden value: 0; expected a whole number >= 1"),
        ("digits:rows=0", "expected a whole number >= 1"),
        ("digits:seed=3", "Unknown option 'seed'"),
    ],
)
def test_wrong_numbers_in_a_name_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        load_dataset(name)


@pytest.mark.parametrize("make", [generated.teacher_network, generated.least_squares, generated.logistic])
def test_generated_problems_repeat_with_their_seed(make):
    first, again, other = (torch.cat([t.flatten() for t in make(70_000, 2, seed=n)]) for n in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len(first) == 3 * 70_000


def test_the_test_part_is_rounded_up():
    assert [training_count(8, 0.25), training_count(10, 0.3), training_count(5, 0.0)] == [6, 7, 5]


@pytest.mark.parametrize("share", [1.0, -0.1, float("nan"), 0.999])
def test_a_share_that_leaves_nothing_is_refused(share):
    with pytest.raises(ValueError, match="test_fraction"):
        load_dataset("wine", test_fraction=share)


def test_the_order_of_the_split_never_changes():
    register("steps", lambda: (np.arange(6.0)[:, np.newaxis], np.arange(6.0)))
    data = load_dataset("steps", test_fraction=0.5, scale=False)
    assert [*data.y_train[:, 0], *data.y_test[:, 0]] == [5, 2, 1, 3, 0, 4]
    with pytest.raises(ValueError, match="Invalid seed value: -1"):
        load_dataset("steps", seed=-1)


@given(st.integers(2, 60), st.floats(0, 0.4), st.integers(0, 2**32 - 1))
def test_every_row_is_in_one_part_and_scaled_by_the_training_part(rows, share, seed):
    values = np.arange(rows, dtype=np.float64)
    register("steps", lambda: (np.stack([values, values * 0], axis=1), values))
    plain = load_dataset("steps", seed=seed, test_fraction=share, scale=False)
    assert sorted([*plain.y_train[:, 0], *plain.y_test[:, 0]]) == values.tolist()
    data = load_dataset("steps", seed=seed, test_fraction=share)
    low, high = plain.y_train.min(), plain.y_train.max()
    for scaled, unscaled in ((data.y_train, plain.y_train), (data.y_test, plain.y_test)):
        np.testing.assert_allclose(scaled * max(high - low, 1) + low, unscaled, atol=1e-4)
    assert data.x_train[:, 0].min() == 0
    assert (data.x_train[:, 1] == 0).all()
    assert (data.x_train[:, :1] == data.y_train).all()


def test_a_part_of_a_data_set_is_its_first_rows_for_training_and_for_testing():
    whole, part = load_dataset("digits"), load_dataset("Digits:rows=100")
    assert (part.name, len(part.x_train), len(part.x_test)) == ("digits:rows=100", 100, 100)
    assert (part.y_train == whole.y_train[:100]).all()
    assert dataset_info("digits:rows=100").training_rows == 100
    assert dataset_info("digits:rows=999999").training_rows == len(whole.x_train)


def test_images_keep_the_publishers_split_and_lie_in_the_unit_interval(tmp_path):
    members = {"train.bin": cifar([[3, 9], [1, 0]]), "test.bin": cifar([[0, 4]])}
    raw = dataset_info("cifar100").source.read(tarred(tmp_path / "c.tar.gz", members))
    register("tiny", lambda: (raw.x, raw.y, raw.x_test, raw.y_test), task="classification")
    data = load_dataset("tiny")
    assert data.x_train.shape == (2, 3, 32, 32)
    assert data.x_train[0, 0, 0, 0] == np.float32(members["train.bin"][2]) / np.float32(255)
    assert (data.class_names, data.y_train.tolist(), data.y_test.tolist()) == (("0", "4", "9"), [2, 0], [1])
    assert repr(data) == "DataSet('tiny', classification, train (2, 3, 32, 32), test (1, 3, 32, 32), classes=3)"


def test_a_digest_is_that_of_labels_and_bytes_in_order(monkeypatch):
    """However the arrays are cut and laid out."""
    monkeypatch.setattr(entry, "_BLOCK", 13)
    a, b = np.arange(60.0).reshape(10, 6), np.arange(3, dtype=np.int16)
    expected = hashlib.sha256(b"a" + a.tobytes() + b"b" + b.tobytes()).hexdigest()
    assert digest_of([("a", a), ("b", b)]) == digest_of([("a", np.asfortranarray(a)), ("b", b)]) == expected
    assert digest_of([("", b)], dtype="<f8") == digest_of([("", b.astype("<f8"))])
