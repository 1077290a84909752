"""Tables that are compressed, in another encoding, on standard input, or a sheet: as the plain file would be read."""

import gzip
import io
import sys

import numpy as np
import pandas
import pytest

from cmalight.errors import DataError
from cmalight.tables.reading import read_table
from cmalight.tables.table import Reading

TEXT = "name;size\nMüller;1,5\nØrsted;2,5\n"
COMMA = {"decimal": ","}


def check(table, source):
    assert table.source == source
    assert table.column("name").values.tolist() == ["Müller", "Ørsted"]
    assert table.column("size").values.tolist() == [1.5, 2.5]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252", "utf-16"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_encodings_and_compression(tmp_path, encoding, ending):
    path = tmp_path / f"t.{ending}"
    content = TEXT.encode(encoding)
    path.write_bytes(gzip.compress(content) if ending == "csv.gz" else content)
    check(read_table(path, Reading(encoding=encoding, **COMMA)), str(path))


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    check(read_table("-", Reading(**COMMA)), "standard input")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(DataError, match="standard input is empty"):
        read_table("-")


def test_a_wrong_encoding_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.encode("latin-1"))
    with pytest.raises(DataError, match=r"t\.csv is not UTF-8 text .* or name its encoding"):
        read_table(path)
    with pytest.raises(DataError, match=r"t\.csv is not text in ascii"):
        read_table(path, Reading(encoding="ascii"))
    with pytest.raises(ValueError, match=r"Unknown encoding of .*t\.csv: 'klingon'"):
        read_table(path, Reading(encoding="klingon"))


def test_messages_name_the_file_that_was_given_not_its_copy(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2,3\n"))
    with pytest.raises(DataError, match=r"t\.csv\.gz: line 2 has 3 cells"):
        read_table(path)


def test_what_is_cut_off_or_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.csv.gz"
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 100_000)
    path.write_bytes(whole[:-9])
    with pytest.raises(DataError, match="no whole gzip file"):
        read_table(path)
    path.write_bytes(whole)
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "100000")
    with pytest.raises(DataError, match="above the limit"):
        read_table(path)


def test_the_first_sheet_of_an_excel_file(tmp_path, monkeypatch):
    path = tmp_path / "t.xlsx"
    frame = pandas.DataFrame({"name": ["Müller", "Ørsted"], "size": [1.5, 2.5], "code": ["007", "?"], "n": [1, None]})
    frame.to_excel(path, index=False)
    table = read_table(path, Reading(missing=("?",)))
    check(table, str(path))
    assert table.column("code").values.tolist() == ["007", None]
    assert np.isnan(table.column("n").values[1])
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    with pytest.raises(DataError, match="not a complete Excel file"):
        read_table(path)
    path.write_bytes(content)
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "1000")
    with pytest.raises(DataError, match="above the limit"):
        read_table(path)


def test_a_sheet_with_a_cell_far_out_is_refused_before_it_is_filled(tmp_path, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["a", "b"])
    book.active.append([1, 2])
    book.active.cell(row=2000, column=900, value=3)
    book.save(tmp_path / "far.xlsx")
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "1e6")
    with pytest.raises(ValueError, match=r"far[.]xlsx would take .* above the limit of 1 MB"):
        read_table(tmp_path / "far.xlsx")
