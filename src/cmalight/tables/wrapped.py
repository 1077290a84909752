"""Tables that come otherwise than as a plain file: compressed, in another encoding, by standard input, as a sheet."""

from __future__ import annotations

import codecs
import gzip
import sys
import tempfile
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from cmalight.errors import DataError, needed
from cmalight.files import refuse_larger
from cmalight.tables.delimited import read_csv
from cmalight.tables.from_frame import table_from_frame
from cmalight.tables.table import Reading, Table, refuse_wide

STANDARD_INPUT = Path("-")
_BLOCK = 1 << 20


def read_plain_or_not(path: Path, reading: Reading) -> Table:
    """A csv file as it is, or first decoded."""
    if _is_utf8(path, reading.encoding):
        return read_csv(path, reading)
    with path.open("rb") as stream:
        return _read_stream(stream, str(path), reading)


def read_gzip(path: Path, reading: Reading) -> Table:
    """A csv file that gzip compressed.

    Raises:
        DataError: it is damaged, or takes too much when it is unpacked.
    """
    try:
        with gzip.open(path, "rb") as stream:
            return _read_stream(stream, str(path), reading)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is no whole gzip file ({error}); compress it again") from error


def read_standard_input(reading: Reading) -> Table:
    """A csv table that another program writes."""
    return _read_stream(sys.stdin.buffer, "standard input", reading)


def read_sheet(path: Path, reading: Reading) -> Table:
    """The first sheet of an Excel file, with the names of the columns in its first row.

    Raises:
        DataError: it is damaged, or would take too much memory.
    """
    with needed(f"{path} needs openpyxl", "excel"):
        import openpyxl  # type: ignore[import-untyped]
        import pandas
    try:
        with zipfile.ZipFile(path) as archive:
            refuse_larger(path, sum(member.file_size for member in archive.infolist()), error=DataError)
        _refuse_sparse(path, openpyxl)
        # As objects, since a cell says itself whether it is a number or text such as 007.
        frame = pandas.read_excel(path, engine="openpyxl", na_values=list(reading.missing), dtype=object)
    except DataError:
        raise
    except Exception as error:  # damaged bytes make the reader raise almost anything
        raise DataError(f"{path} is not a complete Excel file (xlsx): it may be cut off, or of another type") from error
    return table_from_frame(frame.infer_objects(), path, reading, "first sheet")


def _refuse_sparse(path: Path, openpyxl: Any) -> None:
    """A sheet with one cell far out has as many rows and columns as lie before it, which would all be filled."""
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # what the file says of its size may be wrong
        width = 0
        for count, row in enumerate(sheet.iter_rows(values_only=True), start=1):
            width = max(width, len(row))
            refuse_wide(path, width)
            refuse_larger(path, count * width * 8, error=DataError)
    finally:
        book.close()


def _is_utf8(path: Path, encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name == "utf-8"
    except LookupError as error:
        raise ValueError(
            f"Unknown encoding of {path}: {encoding!r}; expected a name such as utf-8, latin-1, cp1252 or utf-16"
        ) from error


def _read_stream(stream: BinaryIO | gzip.GzipFile, name: str, reading: Reading) -> Table:
    """By way of a file in UTF-8, which is read more than once; messages name what the user gave."""
    _is_utf8(Path(name), reading.encoding)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "table.csv"
        decoder = codecs.getincrementaldecoder(reading.encoding)()
        size = 0
        with copy.open("w", encoding="utf-8", newline="") as file:
            while block := stream.read(_BLOCK):
                size += len(block)
                refuse_larger(name, size, error=DataError)
                file.write(_decoded(decoder, block, name, reading.encoding))
            file.write(_decoded(decoder, b"", name, reading.encoding, final=True))
        if not size:
            raise DataError(f"{name} is empty; expected a table with named columns")
        try:
            return replace(read_csv(copy, reading), source=name)
        except DataError as error:
            raise DataError(str(error).replace(str(copy), name)) from error


def _decoded(decoder: codecs.IncrementalDecoder, block: bytes, name: str, encoding: str, *, final: bool = False) -> str:
    try:
        return decoder.decode(block, final)
    except UnicodeError as error:
        raise DataError(f"{name} is not text in {encoding}; name its encoding, such as latin-1 or utf-16") from error
