"""Tables from csv, parquet and npz files."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from cmalight.errors import DataError
from cmalight.tables.delimited import read_csv
from cmalight.tables.npz import read_npz
from cmalight.tables.parquet import read_parquet
from cmalight.tables.table import Reading, Table

READERS: dict[str, Callable[[Path, Reading], Table]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
    ".npz": read_npz,
}


def read_table(path: str | Path, reading: Reading | None = None) -> Table:
    """Reads a table by the ending of its file's name.

    Args:
        path: a csv, tsv, parquet or npz file.
        reading: how, where the file's looks are not enough.

    Returns:
        The table, with at least one row.

    Raises:
        DataError: whatever is wrong with the content; the message names the file.
        OSError: there is no such file, or it may not be read.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give a file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}{_nearest_file(path)}")
    if path.suffix.lower() not in READERS:
        raise DataError(f"{path} is of unknown type {path.suffix!r}; expected a file ending in {', '.join(READERS)}")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path} is empty; expected a table with named columns")
    path.open("rb").close()  # a file that may not be read is no file of the wrong type
    table = READERS[path.suffix.lower()](path, reading or Reading())
    if not table.columns or table.rows == 0:
        raise DataError(f"{path} has no rows of data; expected at least one below the header")
    return table


def _nearest_file(path: Path) -> str:
    neighbours = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    nearest = difflib.get_close_matches(path.name, neighbours, n=1)
    return f"; did you mean {path.parent / nearest[0]}?" if nearest else "; check the name and the directory"
