"""Names, Table 2, splits, scaling, generated and embedded sets, and the six real files where they are at hand."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cmalight.datasets import DataError, Entry, Raw, dataset_info, datasets, generated, load_dataset, register, where
from cmalight.datasets.data_split import split
from cmalight.tables.splitting import permutation, training_count
from tests.datasets.makers import cifar, gzipped, idx, tarred

REAL = os.environ.get("CMALIGHT_DATA", "")
TABLE_2 = {
    "ailerons": (10312, 41),
    "beijing-pm25": (31317, 48),
    "bikes": (13034, 59),
    "california": (15480, 9),
    "mv": (30576, 13),
    "blogfeedback": (39297, 281),
    "covtype": (435759, 55),
    "protein": (109313, 75),
    "sido": (9508, 4933),
    "skin-nonskin": (183792, 4),
    "year-prediction-msd": (386508, 91),
}


def test_table_2_is_the_papers() -> None:
    found = {entry.name: (entry.training_rows, entry.d) for entry in datasets() if entry.group in ("small", "big")}
    assert found == TABLE_2
    assert [entry.name for entry in datasets() if entry.group == "small"] == list(TABLE_2)[:5]


@pytest.mark.parametrize("name", TABLE_2)
def test_the_real_files_give_the_tables_rows_and_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMALIGHT_DATA", REAL)
    if not REAL or where(dataset_info(name)) == "to download":
        pytest.skip(f"CMALIGHT_DATA names no folder with the files of {name}")
    data = load_dataset(name)
    rows, d = TABLE_2[name]
    assert tuple(data.x_train.shape) == (rows, d - 1)
    assert tuple(data.y_train.shape) == (rows, 1)
    assert len(data.x_test) == dataset_info(name).rows - rows
    for part in (data.x_train, data.y_train):
        assert part.dtype == torch.float32
        assert (part.min().item(), part.max().item()) == (0, 1)


def test_the_values_decide_where_publishers_repack() -> None:
    known = {entry.name for entry in datasets() if entry.values_sha256}
    repacked = {"ailerons", "bikes", "california", "mv", "blogfeedback", "skin-nonskin", "covtype", "cifar10"}
    assert known == repacked


def test_the_real_cifar10_is_told_by_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMALIGHT_DATA", REAL)
    if not REAL or where(dataset_info("cifar10")) == "to download":
        pytest.skip("CMALIGHT_DATA names no folder with CIFAR-10")
    data = load_dataset("cifar10")
    assert torch.bincount(data.y_train).tolist() == [5000] * 10
    means = data.x_train.double().mean(dim=(0, 2, 3))
    assert means.tolist() == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=1e-7)  # as published everywhere


def test_every_entry_says_what_it_is_and_whom_to_credit() -> None:
    for entry in datasets():
        assert entry.title
        assert entry.encoding
        assert entry.licence
        assert entry.citation or entry.group == "generated"
        for file in entry.files:
            assert all(url.startswith(("https://", "http://")) for url in file.urls)
            assert all(len(sha256) == 64 for sha256 in file.sha256)


@pytest.mark.parametrize("name", ["Skin NonSkin", "skin_nonskin", "SKIN-NONSKIN"])
def test_names_are_found_in_any_spelling(name: str) -> None:
    assert dataset_info(name).name == "skin-nonskin"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(DataError, match="did you mean 'california'"):
        load_dataset("califronia")


@pytest.mark.parametrize(("name", "train", "classes"), [("diabetes", (331, 10), None), ("wine", (133, 13), 3)])
def test_embedded_sets_need_no_file(name: str, train: tuple[int, int], classes: int | None) -> None:
    data = load_dataset(name)
    assert tuple(data.x_train.shape) == train
    assert data.classes == classes
    assert data.y_train.dtype == (torch.float32 if classes is None else torch.int64)


@pytest.mark.parametrize("name", ["digits", "breast-cancer"])
def test_the_other_embedded_sets_are_as_announced(name: str) -> None:
    assert load_dataset(name).features == dataset_info(name).features


def test_a_generated_set_takes_its_numbers_from_its_name() -> None:
    data = load_dataset("logistic:rows=100,features=3,seed=5")
    assert tuple(data.x_train.shape) == (75, 3)
    assert data.classes == 2
    assert set(data.y_train.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("teacher:rows", "form name=number"),
        ("teacher:rowz=3", "did you mean 'rows'"),
        ("teacher:rows=x", "whole number"),
        ("teacher:rows=1", "2 or more"),
        ("logistic:hidden=3", "Unknown number of logistic"),
        ("least-squares:condition=nan", "Invalid condition value: nan"),
        ("logistic:noise=2", "a number from 0 to 1"),
        ("teacher:noise=-1", "noise"),
        ("teacher:hidden=0", "Invalid hidden value: 0; expected a whole number >= 1"),
        ("teacher:seed=-1", "seed"),
    ],
)
def test_wrong_numbers_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_dataset(name)


@pytest.mark.parametrize("make", [generated.teacher_network, generated.least_squares, generated.logistic])
def test_generated_problems_repeat_with_their_seed(make: object) -> None:
    first, again, other = (make(70_000, 2, seed=seed) for seed in (1, 1, 2))  # type: ignore[operator]
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])
    assert len(first[0]) == len(first[1]) == 70_000


def test_noisy_least_squares_has_the_noise_it_is_given() -> None:
    x, y = generated.least_squares(5_000, 3, noise=0.1, condition=4.0)
    residual = y - x @ torch.linalg.lstsq(x, y).solution
    assert residual.std().item() == pytest.approx(0.1, rel=0.05)
    assert (x.std(dim=0) - torch.tensor([1.0, 0.5, 0.25])).abs().max() < 0.03


@pytest.mark.parametrize(("rows", "share", "train"), [(13750, 0.25, 10312), (8, 0.25, 6), (10, 0.3, 7), (5, 0.0, 5)])
def test_the_test_part_is_rounded_up(rows: int, share: float, train: int) -> None:
    assert training_count(rows, share) == train


@pytest.mark.parametrize("share", [1.0, -0.1, float("nan"), 0.99])
def test_a_share_that_leaves_nothing_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="test_share"):
        training_count(2, share)


def test_the_order_of_the_split_never_changes() -> None:
    assert permutation(6, 0).tolist() == [5, 2, 1, 3, 0, 4]
    with pytest.raises(ValueError, match="seed"):
        permutation(6, -1)


@given(st.integers(2, 60), st.floats(0, 0.4), st.integers(0, 2**32 - 1))
def test_every_row_is_in_one_part_and_scaled_by_the_training_part(rows: int, share: float, seed: int) -> None:
    values = np.arange(rows, dtype=np.float64)
    entry = register(Entry(name="steps", task="regression", source=None))  # type: ignore[arg-type]
    data = split(entry, Raw(np.stack([values, values * 0], axis=1), values), seed=seed, test_share=share)
    assert data.input_scaling is not None
    assert data.target_scaling is not None
    both = torch.cat([data.y_train, data.y_test]).double().numpy()
    assert sorted(np.round(data.target_scaling.undo(both))[:, 0].tolist()) == values.tolist()
    assert data.x_train[:, 0].min() == 0
    assert data.x_train[:, 1].abs().max() == 0
    assert torch.equal(data.x_train[:, :1], data.y_train)


def test_images_keep_the_publishers_split_and_lie_in_the_unit_interval(data_folder: Path) -> None:
    members = {"train.bin": cifar([[3, 9], [1, 0]]), "test.bin": cifar([[0, 4]])}
    path = tarred(data_folder / "cifar-100-binary.tar.gz", members)
    with pytest.raises(DataError, match="sha256"):
        load_dataset("cifar100")
    entry = dataset_info("cifar100")
    data = split(entry, entry.source.read({path.name: path}), seed=0, test_share=0.25)
    assert tuple(data.x_train.shape) == (2, 3, 32, 32)
    assert data.x_train[0, 0, 0, 0] == members["train.bin"][2] / 255
    assert data.y_train.tolist() == [9, 0]
    assert data.y_test.tolist() == [4]
    assert data.input_scaling is None
    assert repr(data) == "DataSplit('cifar100', classification, train (2, 3, 32, 32), test (1, 3, 32, 32), classes=100)"


def test_mnist_is_found_where_torchvision_puts_it(data_folder: Path) -> None:
    for file in dataset_info("mnist").files:
        gzipped(data_folder / file.other_names[0], idx(np.zeros(1, np.uint8)))
    assert where(dataset_info("mnist")) == "local file"


def test_ones_own_set_is_one_small_class() -> None:
    class Sine:
        def read(self, files: object) -> Raw:
            x = np.linspace(0, 6, 40)
            return Raw(x[:, np.newaxis], np.sin(x))

    register(Entry(name="sine", task="regression", source=Sine()))
    assert len(load_dataset("sine", test_share=0.5).x_test) == 20
    assert "sine" in [entry.name for entry in datasets()]
    with pytest.raises(ValueError, match="comes with the package"):
        register(Entry(name="Bikes", task="regression", source=Sine()))


def test_a_source_with_other_labels_than_announced_is_refused() -> None:
    class Wrong:
        def read(self, files: object) -> Raw:
            return Raw(np.zeros((8, 1)), np.arange(8))

    register(Entry(name="wrong", task="classification", classes=3, source=Wrong()))
    with pytest.raises(DataError, match="0 to 2"):
        load_dataset("wrong")


def test_a_part_of_a_data_set_is_its_first_rows_for_training_and_for_testing() -> None:
    whole, part = load_dataset("digits"), load_dataset("Digits:rows=100")
    assert (part.name, len(part.x_train), len(part.x_test)) == ("digits:rows=100", 100, 100)
    assert torch.equal(part.y_train, whole.y_train[:100])
    assert dataset_info("digits:rows=100").training_rows == 100
    assert dataset_info("digits:rows=999999").training_rows == len(whole.x_train)


@pytest.mark.parametrize("rows", ["0", "-3", "many", ""])
def test_a_part_needs_a_number(rows: str) -> None:
    with pytest.raises(DataError, match="expected a whole number >= 1"):
        load_dataset(f"digits:rows={rows}")
