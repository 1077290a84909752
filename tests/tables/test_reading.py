"""Tables are read as they were meant, or refused with what is wrong."""

import datetime
from decimal import Decimal

import numpy as np
import pandas
import pytest

from cmalight.tables.reading import read_table
from cmalight.tables.table import Reading


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("delimiter", "word"), [(",", "comma"), (";", "semicolon"), ("\t", "tab"), ("|", "bar")])
def test_the_delimiter_is_found_out_and_said(tmp_path, delimiter, word):
    rows = [["name", "value"], ["a", "1"], ["b", "2.5"]]
    table = read_table(write(tmp_path / "t.csv", "\n".join(delimiter.join(row) for row in rows) + "\n"))
    assert table.layout == f"{word} separated"
    assert table.names == ("name", "value")
    assert table.column("value").values.tolist() == [1.0, 2.5]
    assert table.column("name").values.tolist() == ["a", "b"]


def test_a_decimal_comma_does_not_pass_for_a_delimiter(tmp_path):
    path = write(tmp_path / "t.csv", "a;b\n1,5;2,5\n3,5;4,5\n")
    assert read_table(path, Reading(decimal=",")).column("b").values.tolist() == [2.5, 4.5]


def test_a_quoted_cell_may_hold_the_delimiter_and_a_line_break(tmp_path):
    path = write(tmp_path / "t.csv", 'a,b\n"x, y",1\n"two\nlines",2\n')
    table = read_table(path)
    assert table.column("a").values.tolist() == ["x, y", "two\nlines"]
    assert table.rows == 2


def test_empty_cells_and_those_named_are_missing(tmp_path):
    path = write(tmp_path / "t.csv", "a,b\n1,x\n?,?\n,\n")
    table = read_table(path, Reading(missing=("?",)))
    assert table.column("a").missing.tolist() == [False, True, True]
    assert table.column("b").values.tolist() == ["x", None, None]


def test_text_is_kept_as_written(tmp_path):
    path = write(tmp_path / "t.csv", "flag,code\ntrue,007\nTRUE,08\n,1\n")
    table = read_table(path, Reading(as_text=frozenset({"code"})))
    assert table.column("flag").values.tolist() == ["true", "TRUE", None]
    assert table.column("code").values.tolist() == ["007", "08", "1"]


def test_a_byte_order_mark_and_blanks_around_names_are_not_part_of_them(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a , b\n1, x\n2, y\n", encoding="utf-8-sig")
    table = read_table(path)
    assert table.names == ("a", "b")
    assert table.column("b").values.tolist() == ["x", "y"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b\n", "no rows"),
        ("a,b\n1,2\n3\n", "line 3 has 1 cells, but the header has 2"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 cells, but the header has 2"),
        ('a,b\n1,"cut off', "cut off in a quoted cell"),
        ("1,2\n3,4\n", "holds numbers"),
        ("a,a\n1,2\n", "two columns named 'a'"),
        (",a\n0,2\n", "column 1 has no name"),
        ("a,b\0\n1,2\n", "binary"),
    ],
)
def test_a_csv_file_that_is_not_right_is_refused(tmp_path, content, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_table(write(tmp_path / "t.csv", content))


def test_a_file_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("a,b\nGrüße,1\n".encode("latin-1"))
    with pytest.raises(ValueError, match="not UTF-8"):
        read_table(path)


def test_a_missing_file_names_its_neighbour(tmp_path):
    write(tmp_path / "houses.csv", "a,b\n1,2\n")
    with pytest.raises(FileNotFoundError, match=r"did you mean .*houses.csv"):
        read_table(tmp_path / "house.csv")


def test_a_directory_and_an_unknown_type_are_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a directory"):
        read_table(tmp_path)
    with pytest.raises(ValueError, match=r"unknown type '[.]ods'"):
        read_table(write(tmp_path / "t.ods", "x"))


def test_an_unknown_column_names_the_nearest_also_among_many(tmp_path):
    names = [f"column {i}" for i in range(30)] + ["price"]
    path = write(tmp_path / "t.csv", ",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    with pytest.raises(ValueError, match=r"'prize'; did you mean 'price'\?.*31 in all"):
        read_table(path).column("prize")


def test_parquet_keeps_its_types(tmp_path):
    path = tmp_path / "t.parquet"
    frame = pandas.DataFrame(
        {
            "whole": pandas.array([1, None], dtype="Int64"),
            "word": ["a", None],
            "flag": [True, False],
            "exact": [Decimal("1.5"), Decimal("2.5")],
            "kind": pandas.Categorical(["u", "v"]),
        }
    )
    frame.to_parquet(path)
    table = read_table(path)
    np.testing.assert_array_equal(table.column("whole").values, [1.0, np.nan])
    assert table.column("word").values.tolist() == ["a", None]
    assert table.column("flag").values.tolist() == ["True", "False"]
    assert table.column("exact").values.tolist() == [1.5, 2.5]
    assert table.column("kind").values.tolist() == ["u", "v"]
    assert read_table(path, Reading(as_text=frozenset({"whole"}))).column("whole").values.tolist() == ["1", None]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (datetime.datetime(2020, 1, 31, 7, 30), "2020-01-31 07:30:00"),
        (datetime.date(2020, 1, 31), "2020-01-31"),
        (pandas.Timestamp("2020-01-31 07:30", tz="Europe/Rome"), "2020-01-31 07:30:00"),
    ],
)
def test_dates_in_parquet_are_text_as_in_csv(tmp_path, cell, text):
    pandas.DataFrame({"when": [cell, None]}).to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").column("when").values.tolist() == [text, None]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_codes_with_leading_zeros_are_text(tmp_path, kind):
    frame = pandas.DataFrame({"zip": ["0150", "1234"], "year": ["2020", "2021"], "hour": ["07", "11"]})
    path = tmp_path / f"t.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
        assert read_table(path).column("year").values.tolist() == [2020, 2021]
    else:
        frame.to_parquet(path)
    assert read_table(path).column("zip").values.tolist() == ["0150", "1234"]
    assert read_table(path).column("hour").values.tolist() == ["07", "11"]


def test_a_wrong_delimiter_is_guessed_at_in_the_message(tmp_path):
    path = write(tmp_path / "t.csv", "a;b\n1;2\n")
    with pytest.raises(ValueError, match=r"t[.]csv: only one column was found; is the delimiter ';'[?]"):
        read_table(path, Reading(delimiter=","))


@pytest.mark.parametrize("cells", [[[1, 2]], [datetime.timedelta(1)]])
def test_parquet_columns_that_are_neither_numbers_nor_text_are_refused(tmp_path, cells):
    path = tmp_path / "t.parquet"
    pandas.DataFrame({"odd": cells}).to_parquet(path)
    with pytest.raises(ValueError, match="column 'odd' holds"):
        read_table(path)


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_a_file_that_is_cut_off_is_refused(tmp_path, kind):
    path = tmp_path / f"t.{kind}"
    if kind == "parquet":
        pandas.DataFrame({"a": range(100)}).to_parquet(path)
    else:
        np.savez(path, x=np.zeros((10, 2)), y=np.zeros(10))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=f"not a complete {kind} file"):
        read_table(path)


def test_npz_gives_features_by_number_and_the_target_by_name(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.arange(6).reshape(3, 2), label=np.array(["u", "v", "u"]))
    table = read_table(tmp_path / "t.npz", Reading(target="label"))
    assert table.names == ("x0", "x1", "label")
    assert table.column("x1").values.tolist() == [1.0, 3.0, 5.0]
    assert table.column("label").values.tolist() == ["u", "v", "u"]


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"a": np.zeros((3, 2)), "b": np.zeros((3, 2))}, "in one named 'x'"),
        ({"x": np.zeros((3, 2, 2))}, r"shape \(3, 2, 2\)"),
        ({"x": np.array([["a", "b"]])}, "expected numbers"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(4)}, "one value for each of the 3 rows"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3, dtype=complex)}, "expected numbers or text"),
        ({"x": np.zeros((3, 2)), "y": np.array([{}, {}, {}])}, "Python objects"),
    ],
)
def test_an_npz_file_that_is_not_right_is_refused(tmp_path, arrays, complaint):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(ValueError, match=complaint):
        read_table(tmp_path / "t.npz")


def test_a_parquet_file_with_two_columns_of_one_name_is_refused(tmp_path):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table([[1.0, 2.0], [3.0, 4.0]], names=["a", "a"])
    pyarrow.parquet.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(ValueError, match="'a'"):
        read_table(tmp_path / "twice.parquet")
