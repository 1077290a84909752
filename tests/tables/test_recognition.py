"""Columns that are not what they seem are recognised, said, and done again to new rows."""

import numpy as np
import pytest

from cmalight.tables.recognition import Recognition, recognise
from cmalight.tables.table import Column, Table

ROWS = 30


def text(name, cells):
    return Column(name, np.array([cells[i % len(cells)] for i in range(ROWS)], dtype=object))


def table(*columns):
    return Table("t.csv", columns)


@pytest.mark.parametrize(
    ("cells", "parts"),
    [
        (["2024-01-31", "2023-12-01", None], ["year", "month", "day", "weekday"]),
        (["31.01.2024", "1.12.2023"], ["year", "month", "day", "weekday"]),
        (["31/01/2024", "01/12/2023"], ["year", "month", "day", "weekday"]),
        (["01/31/2024", "12/01/2023"], ["year", "month", "day", "weekday"]),
        (["2024-01-31 07:30", "2023-12-01 08:00"], ["year", "month", "day", "weekday", "hour", "minute"]),
        (["2024-01-31T00:00:00Z", "2023-12-01T00:00:00Z"], ["year", "month", "day", "weekday"]),
    ],
)
def test_dates_become_numbers(cells, parts):
    whole = table(text("when", cells))
    found = recognise(whole)
    assert "column 'when': dates such as" in found.notes[0]
    converted = found.apply(whole)
    assert converted.names == tuple(f"when ({part})" for part in parts)
    assert [column.values[0] for column in converted.columns][:4] == [2024, 1, 31, 2]
    assert [column.values[1] for column in converted.columns][:4] == [2023, 12, 1, 4]
    assert np.isnan(converted.columns[0].values[2]) == (len(cells) == 3)
    again = Recognition.from_list(found.to_list())
    assert again.apply(whole).names == converted.names


def test_days_and_months_that_cannot_be_told_apart_are_not_guessed_at():
    assert recognise(table(text("when", ["01/02/2024", "03/04/2024"]))).columns == ()


@pytest.mark.parametrize(
    ("cells", "decimal", "numbers"),
    [
        (["$94.1", "$1,234.50", "-$3"], ".", [94.1, 1234.5, -3]),
        (["45%", "5.5 %", "0%"], ".", [45, 5.5, 0]),
        (["94,1 €", "1.234,50 €", "3"], ",", [94.1, 1234.5, 3]),
    ],
)
def test_amounts_become_numbers(cells, decimal, numbers):
    whole = table(text("price", cells))
    found = recognise(whole, target="price", decimal=decimal)
    assert found.apply(whole).column("price").values[:3].tolist() == numbers
    assert f"amounts such as {cells[0]}" in found.notes[0]
    with pytest.raises(ValueError, match=r"t\.csv: column 'price', row 2 holds 'free'; expected numbers with"):
        found.apply(table(text("price", [cells[0], "free"])))


@pytest.mark.parametrize("cells", [["$3", "3%"], ["$3", "many"], ["1,234"], ["a$", "b$"], ["$1,23"]])
def test_what_is_only_like_amounts_is_left_alone(cells):
    assert recognise(table(text("price", cells))).columns == ()


def test_ids_and_texts_that_differ_in_every_row_are_left_out():
    numbers = Column("customer_id", np.arange(100.0, 100 + ROWS))
    names = text("name", [f"n{i}" for i in range(ROWS)])
    plain = Column("size", np.arange(float(ROWS)))
    words = text("colour", ["red", "blue"])
    whole = table(numbers, names, plain, words)
    found = recognise(whole)
    assert found.left_out == ("customer_id", "name")
    assert found.apply(whole).names == ("size", "colour")
    assert "an id: a different whole number in every row (as_is takes it as it is)" in found.notes[0]
    assert "30 different texts in 30 rows" in found.notes[1]
    assert recognise(whole, as_is=("customer_id", "name")) == Recognition()
    assert recognise(whole, target="name").left_out == ("customer_id",)


def test_codes_with_leading_zeros_are_categories_and_said():
    found = recognise(table(text("zip", ["1234", "0150"])))
    assert found.columns == found.left_out == ()
    assert found.notes == ("column 'zip': codes with leading zeros such as 0150, taken as categories",)


def test_new_rows_with_other_dates_are_refused():
    found = recognise(table(text("when", ["2024-01-31", "2023-12-01"])))
    parquet = found.apply(Table("new.parquet", (text("when", ["2024-01-31 00:00:00"]),)))
    assert parquet.column("when (day)").values[0] == 31
    with pytest.raises(ValueError, match=r"new\.csv: column 'when', row 1 holds 'soon'; expected dates in the form"):
        found.apply(Table("new.csv", (text("when", ["soon"]),)))
