"""Data of one's own: files and functions."""

import numpy as np
import pandas as pd
import pytest

from cmalight.datasets import DataError, dataset_info, known, load_dataset, register, where

SHOP = "colour,size,price\nred,3,10\nblue,4,20\nblue,5,30\nred,6,40\n"


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.csv").write_text(SHOP)
    return tmp_path / "shop.csv"


def test_a_csv_file_has_numbers_as_they_are_and_text_one_hot(shop):
    data = load_dataset("shop.csv:target=price", test_fraction=0, scale=False)
    assert data.task == "regression"
    assert data.feature_names == ("size", "colour=blue", "colour=red")
    rows = sorted(np.hstack([data.x_train, data.y_train]).tolist())
    assert rows == [[3, 0, 1, 10], [4, 1, 0, 20], [5, 1, 0, 30], [6, 0, 1, 40]]


def test_a_parquet_file_works_alike(shop):
    pd.read_csv(shop).to_parquet(shop.with_suffix(".parquet"))
    parquet, csv = (load_dataset(f"shop.{kind}:target=price") for kind in ("parquet", "csv"))
    assert (parquet.x_train == csv.x_train).all()


def test_a_file_can_be_named_with_its_target_and_task(shop):
    data = load_dataset("shop.csv:target=colour")
    assert (data.task, data.classes, data.class_names) == ("classification", 2, ("blue", "red"))
    assert load_dataset("shop.csv:target=size,task=classification").class_names == ("3", "4", "5", "6")
    assert where(dataset_info("shop.csv:target=colour")) == "your own"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shop.csv", r"needs the column to predict, as in shop\.csv:target=price"),
        ("shop.csv:target=prize", "Unknown column 'prize'; did you mean 'price'"),
        ("shop.csv:target=price,task=guess", "Invalid task value: 'guess'"),
        ("shop.csv:targt=price", "did you mean 'target'"),
        ("absent.csv:target=y", r"absent\.csv is not a file"),
        ("gap.csv:target=b", "column 'a' lacks 1 values; fill or drop them"),
        ("date.parquet:target=b", "column 'a' is neither numbers nor text"),
        ("words.csv:target=a", "column 'b' is neither numbers nor text of at most 1000 values"),
        ("empty.csv:target=a", r"empty\.csv cannot be read"),
        ("inf.csv:target=b", "not a finite number"),
        ("shop.csv:target=colour,task=regression", "regression needs numbers"),
    ],
)
def test_a_wrong_file_or_option_is_refused_in_one_line(shop, name, message):
    folder = shop.parent
    (folder / "gap.csv").write_text("a,b\n1,2\n,4\n")
    pd.DataFrame({"a": pd.to_datetime(["2020-01-01"]), "b": [1]}).to_parquet(folder / "date.parquet")
    (folder / "words.csv").write_text("a,b\n" + "".join(f"{i},w{i}\n" for i in range(1001)))
    (folder / "empty.csv").write_text("")
    (folder / "inf.csv").write_text("a,b\ninf,2\n1,4\n")
    with pytest.raises(ValueError, match=message) as caught:
        load_dataset(name)
    assert "\n" not in str(caught.value)


def test_a_function_gives_arrays():
    x = np.linspace(0, 6, 40)
    register("sine", lambda: (x[:, np.newaxis], np.sin(x)))
    assert "sine" in known()
    assert len(load_dataset("Sine", test_fraction=0.5).x_test) == 20
    register("sine", lambda: (x[:, np.newaxis], ["up", "down"] * 20))
    data = load_dataset("sine")
    assert (data.task, data.class_names) == ("classification", ("down", "up"))
    register("sine", lambda: (x[:, np.newaxis], x > 3), task="regression")
    assert load_dataset("sine").task == "regression"


def test_a_function_may_give_a_test_part():
    register("two", lambda: (np.zeros((3, 1)), ["a", "b", "b"], np.ones((2, 1)), ["c", "a"]))
    data = load_dataset("two", test_fraction=0.9)
    assert (data.y_train.tolist(), data.y_test.tolist(), data.classes) == ([0, 1, 1], [2, 0], 3)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((np.zeros(3), np.zeros(3)), "expected x, y or"),
        ((np.array([["a"]]), np.zeros(1)), "expected x, y or"),
        ((np.zeros((3, 1)),), "expected x, y or"),
        ((np.zeros((3, 1)), np.zeros(2)), r"3 rows and targets of shape \(2,\)"),
        ((np.zeros((0, 1)), np.zeros(0)), "0 rows"),
        ((np.full((3, 1), np.nan), np.zeros(3)), "not a finite number"),
    ],
)
def test_wrong_arrays_are_refused(arrays, message):
    register("wrong", lambda: arrays)
    with pytest.raises(DataError, match=message):
        load_dataset("wrong")


def test_names_of_the_package_are_taken():
    for name in ("Bikes", "TEACHER", "?"):
        with pytest.raises(ValueError, match="choose another"):
            register(name, lambda: (np.zeros((2, 1)), np.zeros(2)))
