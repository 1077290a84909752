"""What is learnt from the training rows is applied to the others, and nothing is learnt from those."""

import numpy as np
import pytest

from cmalight.tables.encoding import FeatureEncoding
from cmalight.tables.table import Column, Table
from cmalight.tables.targets import ClassTarget, NumberTarget, detect_task, target_from_dict


def numbers(name, *values):
    return Column(name, np.array(values, dtype=np.float64))


def words(name, *values):
    return Column(name, np.array(values, dtype=object))


def table(*columns):
    return Table("t.csv", columns)


def every(part):
    return np.arange(part.rows)


def test_numbers_are_scaled_by_the_training_rows_and_words_become_one_hot():
    whole = table(words("city", "Rome", "Oslo", "Rome"), numbers("size", 10.0, 20.0, 40.0))
    encoding = FeatureEncoding.fitted_on(whole, np.array([0, 1]))
    assert encoding.width == 3
    np.testing.assert_allclose(encoding.apply(whole), [[0, 0, 1], [1, 1, 0], [3, 0, 1]])


def test_columns_are_found_by_name_whatever_their_order():
    encoding = FeatureEncoding.fitted_on(table(numbers("a", 0.0, 1.0), numbers("b", 0.0, 10.0)), np.array([0, 1]))
    np.testing.assert_allclose(encoding.apply(table(numbers("b", 5.0), numbers("a", 1.0))), [[1.0, 0.5]])


def test_a_missing_column_is_named():
    encoding = FeatureEncoding.fitted_on(table(numbers("age", 0.0, 1.0)), np.array([0, 1]))
    with pytest.raises(ValueError, match="'age'; did you mean 'Age'"):
        encoding.apply(table(numbers("Age", 0.0)))


def test_a_category_that_training_did_not_see_is_none_of_the_known_and_reported():
    encoding = FeatureEncoding.fitted_on(table(words("city", "Rome", "Oslo")), np.array([0, 1]))
    new = table(words("city", "Lima", "Rome"))
    np.testing.assert_allclose(encoding.apply(new), [[0, 0], [0, 1]])
    assert encoding.unknown(new) == {"city": ["Lima"]}


def test_missing_values_are_refused_with_their_row():
    whole = table(numbers("age", 1.0, np.nan, np.nan))
    with pytest.raises(ValueError, match=r"column 'age' has 2 missing values \(NaN\), the first in row 2.*impute"):
        FeatureEncoding.fitted_on(whole, every(whole))


def test_imputing_uses_the_median_and_the_most_frequent_word_of_the_training_rows():
    whole = table(numbers("age", 1.0, 2.0, 9.0, 1000.0, np.nan), words("city", "Rome", "Oslo", "Oslo", "Rome", None))
    encoding = FeatureEncoding.fitted_on(whole, np.array([0, 1, 2]), impute=True)
    np.testing.assert_allclose(encoding.apply(whole)[-1], [(2 - 1) / (9 - 1), 1, 0])


def test_missing_values_in_new_rows_are_refused_unless_training_imputed():
    encoding = FeatureEncoding.fitted_on(table(numbers("age", 1.0, 2.0), words("c", "u", "v")), np.array([0, 1]))
    with pytest.raises(ValueError, match="column 'age' has 1 missing"):
        encoding.apply(table(numbers("age", np.nan), words("c", "u")))
    with pytest.raises(ValueError, match="column 'c' has 1 missing"):
        encoding.apply(table(numbers("age", 1.0), words("c", None)))


@pytest.mark.parametrize("cell", ["abc", "1,5"])
def test_text_where_training_had_numbers_is_refused(cell):
    encoding = FeatureEncoding.fitted_on(table(numbers("age", 1.0, 2.0)), np.array([0, 1]))
    with pytest.raises(ValueError, match=f"column 'age', row 2 holds '{cell}'; expected numbers"):
        encoding.apply(table(words("age", None, cell)))


def test_a_column_of_numbers_with_a_word_in_it_is_refused_unless_declared_categorical():
    whole = table(words("age", "12", "13", "unknown", "14"))
    with pytest.raises(ValueError, match=r"row 3 holds 'unknown'.*missing 'unknown'.*categorical"):
        FeatureEncoding.fitted_on(whole, every(whole))
    assert FeatureEncoding.fitted_on(whole, every(whole), categorical=["age"]).width == 4


def test_numbers_with_a_decimal_comma_do_not_become_categories():
    whole = table(words("size", "1,5", "2,5", "1,5"))
    with pytest.raises(ValueError, match=r"such as '1,5'.*decimal ','"):
        FeatureEncoding.fitted_on(whole, every(whole))


def test_infinity_is_refused():
    whole = table(numbers("age", 1.0, np.inf))
    with pytest.raises(ValueError, match="column 'age', row 2 is infinite"):
        FeatureEncoding.fitted_on(whole, every(whole))


def test_a_column_that_is_empty_or_different_in_every_row_is_refused():
    empty = table(numbers("age", np.nan, np.nan))
    with pytest.raises(ValueError, match="no value in the training rows"):
        FeatureEncoding.fitted_on(empty, every(empty), impute=True)
    names = table(words("name", *(f"person {i}" for i in range(20))))
    with pytest.raises(ValueError, match=r"20 different texts in 20 rows.*drop"):
        FeatureEncoding.fitted_on(names, every(names))


def test_a_table_with_the_target_alone_has_nothing_to_learn_from():
    with pytest.raises(ValueError, match="no column beside the target"):
        FeatureEncoding.fitted_on(Table("t.csv", ()), np.array([0]))


def test_an_encoding_survives_the_way_through_plain_values():
    whole = table(numbers("a", 1.0, np.nan, 3.0), words("b", "u", "v", None))
    encoding = FeatureEncoding.fitted_on(whole, every(whole), impute=True)
    again = FeatureEncoding.from_dict(encoding.to_dict())
    np.testing.assert_array_equal(again.apply(whole), encoding.apply(whole))
    assert again.names == encoding.names


def test_a_number_target_comes_back_in_its_own_units():
    whole = table(numbers("price", 100.0, 300.0, 700.0))
    target = NumberTarget.fitted_on(whole, "price", np.array([0, 1]))
    np.testing.assert_allclose(target.encode(whole), [[0.0], [1.0], [3.0]])
    np.testing.assert_allclose(target.decode(target.encode(whole)), [100.0, 300.0, 700.0])
    assert target_from_dict(target.to_dict()).decode(np.array([[0.5]])) == pytest.approx([200.0])


def test_classes_are_known_by_name_and_whole_numbers_have_no_point():
    whole = table(numbers("label", 10.0, 2.0, 10.0))
    target = ClassTarget.fitted_on(whole, "label")
    assert target.classes == ("2", "10")
    assert target.encode(whole).tolist() == [1, 0, 1]
    assert target_from_dict(target.to_dict()).decode(np.array([[0.1, 0.9], [3.0, 0.0]])) == ["10", "2"]


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        (numbers("t", 3.5, 3.5, 3.5), "is 3.5 in all 3 training rows"),
        (numbers("t", 1.0, np.nan, 2.0), "is missing .* first is row 2"),
        (numbers("t", 1.0, np.inf, 2.0), "row 2 is infinite"),
        (words("t", "a", "b", "c"), "holds text such as 'a'"),
    ],
)
def test_a_number_target_that_cannot_be_learnt_is_refused(column, complaint):
    with pytest.raises(ValueError, match=complaint):
        NumberTarget.fitted_on(table(column), "t", np.array([0, 1, 2]))


def test_one_class_only_is_refused():
    with pytest.raises(ValueError, match="'yes' in all rows, one class only"):
        ClassTarget.fitted_on(table(words("t", "yes", "yes")), "t")


def test_as_many_classes_as_numbers_are_refused():
    with pytest.raises(ValueError, match=r"1500 different values.*is the task regression"):
        ClassTarget.fitted_on(table(numbers("t", *range(1500))), "t")


@pytest.mark.parametrize(
    ("column", "task"),
    [
        (words("t", "a", "b"), "classification"),
        (numbers("t", 0, 1, 0, 1), "classification"),
        (numbers("t", *[0, 1, 2] * 5), "classification"),
        (numbers("t", 0, 1, 2, 3), "regression"),
        (numbers("t", *range(100)), "regression"),
        (numbers("t", *[0.5, 1.5] * 50), "regression"),
    ],
)
def test_the_task_is_told_from_the_target(column, task):
    found, why = detect_task("t.csv", column)
    assert found == task
    assert why


def test_a_target_of_numbers_that_cannot_be_read_is_not_taken_for_classes():
    column = Column("price", np.array(["1234,5", "99,9", "12,0"], dtype=object))
    with pytest.raises(ValueError, match=r"target 'price' holds numbers, but row 1 holds '1234,5'.*decimal ','"):
        detect_task("t.csv", column)
