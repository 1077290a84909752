"""Tables from csv, Excel, parquet and npz files, and from standard input."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from cmalight.errors import DataError
from cmalight.tables.npz import read_npz
from cmalight.tables.parquet import read_parquet
from cmalight.tables.table import Reading, Table
from cmalight.tables.wrapped import STANDARD_INPUT, read_gzip, read_plain_or_not, read_sheet, read_standard_input

READERS: dict[str, Callable[[Path, Reading], Table]] = {
    ".csv": read_plain_or_not,
    ".tsv": read_plain_or_not,
    ".csv.gz": read_gzip,
    ".tsv.gz": read_gzip,
    ".xlsx": read_sheet,
    ".parquet": read_parquet,
    ".npz": read_npz,
}


def read_table(path: str | Path, reading: Reading | None = None) -> Table:
    """Reads a table by the ending of its file's name.

    Args:
        path: a csv, tsv, xlsx, parquet or npz file, csv also compressed by gzip; `-` is csv by standard input.
        reading: how, where the file's looks are not enough.

    Returns:
        The table, with at least one row.

    Raises:
        DataError: whatever is wrong with the content; the message names the file.
        OSError: there is no such file, or it may not be read.
    """
    path = Path(path)
    if path == STANDARD_INPUT:
        return _with_rows(read_standard_input(reading or Reading()))
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give a file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}{_nearest_file(path)}")
    if file_type(path) not in READERS:
        kinds = ", ".join(READERS)
        raise DataError(f"{path} is of unknown type {file_type(path)!r}; save it as one that ends in {kinds}")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path} is empty; expected a table with named columns")
    path.open("rb").close()  # a file that may not be read is no file of the wrong type
    return _with_rows(READERS[file_type(path)](path, reading or Reading()))


def file_type(path: Path) -> str:
    """The ending of a file's name that says what it is: the last, or the last two of what is compressed."""
    ending = path.suffix.lower()
    return f"{Path(path.stem).suffix.lower()}{ending}" if ending == ".gz" else ending


def _with_rows(table: Table) -> Table:
    if not table.columns or table.rows == 0:
        raise DataError(f"{table.source} has no rows of data; expected at least one below the header")
    return table


def _nearest_file(path: Path) -> str:
    neighbours = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    nearest = difflib.get_close_matches(path.name, neighbours, n=1)
    return f"; did you mean {path.parent / nearest[0]}?" if nearest else "; check the name and the directory"
