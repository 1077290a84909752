"""One split for files and for the registry."""

import numpy as np
import pytest

from cmalight.tables.encoding import codes, indicators, ordered
from cmalight.tables.splitting import permutation, split_rows


def test_without_labels_the_first_of_a_permutation_train_and_the_test_part_is_rounded_up():
    training, test = split_rows(10, 0.25, 3)
    assert [*training, *test] == permutation(10, 3).tolist()
    assert len(test) == 3


def test_with_labels_each_class_gives_its_share_and_keeps_a_row():
    labels = np.array(["rare"] + ["common"] * 40, dtype=object)
    training, test = split_rows(41, 0.75, 0, labels)
    assert 0 in training
    assert len(test) == 30
    assert sorted([*training, *test]) == list(range(41))
    assert training.tolist() != sorted(training)  # no class comes first


def test_too_few_rows_are_refused_by_the_name_of_their_table():
    with pytest.raises(ValueError, match=r"t\.csv has too few rows \(1\) for a test share of 0\.25"):
        split_rows(1, 0.25, 0, source="t.csv")


def test_categories_are_ordered_by_size_where_they_are_numbers():
    assert ordered(["10", "9", "9", "-1"]) == ["-1", "9", "10"]
    assert ordered(["10", "9", "b"]) == ["10", "9", "b"]
    assert ordered(["2", "nan", "1"]) == ["1", "2", "nan"]


def test_a_category_is_a_column_and_an_unknown_one_is_none():
    found = codes(["b", None, "c", "a"], ["a", "b"])
    assert found.tolist() == [1, -1, -1, 0]
    assert indicators(found, 2).tolist() == [[0, 1], [0, 0], [0, 0], [1, 0]]
