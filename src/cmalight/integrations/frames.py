"""Tables as frames of plain numbers and words, the same whether they come from a file or from a pandas frame."""

from __future__ import annotations

import errno
import gzip
import logging
import os
import re
import zipfile
from collections.abc import Collection, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from cmalight.errors import DataError, needed, unknown_name

with needed("Tables need pandas", "data"):
    import numpy as np
    import pandas as pd

logger = logging.getLogger("cmalight")

SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".parquet", ".xlsx")
_INDEX = re.compile(r"Unnamed: \d+")  # what pandas calls a column without a name: the index of `to_csv()`
_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[ T].*)?"
_SAMPLE_ROWS = 1000
_PARTS = ("month", "day", "day_of_week", "hour")


def read_table(source: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a csv, parquet or xlsx file.

    Args:
        source: The file. A csv file may be separated by commas, semicolons, tabs or bars, and be compressed (.csv.gz).

    Returns:
        One column per column of the file. Digits with leading zeros, such as zip codes, stay text.

    Raises:
        OSError: The file is missing or not a regular file.
        DataError: The file cannot be read as what its name says, or has no rows.
    """
    path = require_file(source)
    if not path.name.lower().endswith(SUFFIXES):
        raise DataError(f"{source} has an unknown type; expected a name ending in {', '.join(SUFFIXES)}")
    try:
        frame = _read(path)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, OSError) as error:
        if isinstance(error, OSError) and error.strerror is not None:
            raise
        raise DataError(f"{source} cannot be read ({' '.join(str(error).split())}); is it cut off?") from error
    if frame.empty:
        raise DataError(f"{source} has no rows")
    return frame


def require_file(source: str | os.PathLike[str]) -> Path:
    """Refuse what is not a regular file, such as a folder or /dev/zero.

    Args:
        source: The path.

    Returns:
        The path.

    Raises:
        OSError: There is no such file, or it is something else.
    """
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "there is no such file", str(source))
    if not path.is_file():
        kind = "is a directory" if path.is_dir() else "is not a regular file"
        raise IsADirectoryError(f"{source} {kind}; name a file")
    return path


def _read(path: Path) -> pd.DataFrame:
    if path.suffix.lower() == ".parquet":
        return pd.read_parquet(path)
    if path.suffix.lower() == ".xlsx":
        with needed(f"Reading {path} needs openpyxl", "excel"):
            codes = _codes(pd.read_excel(path, dtype=str, nrows=_SAMPLE_ROWS))
        return pd.read_excel(path, dtype=codes)
    try:
        return _read_csv(path, "utf-8-sig")
    except UnicodeDecodeError:
        logger.info("%s is not UTF-8 text; it is read as Windows-1252", path)
        return _read_csv(path, "cp1252")


def _read_csv(path: Path, encoding: str) -> pd.DataFrame:
    with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rt", encoding=encoding) as file:
        header = re.sub(r'"[^"]*"', "", file.readline())
    separator = max(",;\t|", key=header.count)
    options: dict[str, Any] = {"encoding": encoding, "sep": separator, "na_values": ["?"], "skipinitialspace": True}
    cells = pd.read_csv(path, dtype=str, nrows=_SAMPLE_ROWS, **options)
    if separator == ";" and any(column.str.fullmatch(r"-?\d+,\d+").any() for _, column in cells.items()):
        options["decimal"] = ","
    frame: pd.DataFrame = pd.read_csv(path, dtype=_codes(cells), low_memory=False, **options)
    return frame


def _codes(cells: pd.DataFrame) -> dict[Any, type[str]]:
    """Columns with leading zeros: codes such as zip codes, which a reader would take for numbers."""
    return {name: str for name, column in cells.items() if column.str.fullmatch(r"0\d+").any()}


def column_kinds(
    frame: pd.DataFrame, *, categorical: Collection[str] = (), drop: Collection[str] = ()
) -> dict[str, str]:
    """Decide what each column is: "number", "text", "date" or "date, day first".

    Args:
        frame: The training rows, without the target.
        categorical: Columns that are text although they hold numbers.
        drop: Columns to leave out.

    Returns:
        The kind of each column that is used. Columns that are constant or the index of `to_csv()` are left out, with a
        note in the log.

    Raises:
        DataError: A name is unknown, or no column is left.
    """
    for name in (*categorical, *drop):
        require_column(frame, name, "the table")
    kinds: dict[str, str] = {}
    left_out: dict[str, list[str]] = {}
    for label, column in frame.items():
        name = str(label)
        if name in drop:
            continue
        if _INDEX.fullmatch(name):
            left_out.setdefault("looks like the index of to_csv()", []).append(name)
        elif column.nunique(dropna=False) <= 1:
            left_out.setdefault("has one value only", []).append(name)
        else:
            kinds[name] = "text" if name in categorical else _kind(column)
    for why, names in left_out.items():
        logger.info("left out: %s (%s)", ", ".join(names), why)
    if not kinds:
        raise DataError("no column is left to predict from; give a table with other columns beside the target")
    return kinds


def _kind(column: pd.Series) -> str:
    if pd.api.types.is_datetime64_any_dtype(column):
        return "date"
    if pd.api.types.is_bool_dtype(column):
        return "text"
    if pd.api.types.is_numeric_dtype(column):
        return "number"
    words = column.dropna().astype(str).str.strip()
    if words.str.fullmatch(_DATE).all():
        day_first = words.str.extract(r"^(\d{1,2})\D")[0].astype(float).gt(12).any()
        if not _dates(words, day_first=bool(day_first)).isna().any():
            return "date, day first" if day_first else "date"
    return "text"


def convert(frame: pd.DataFrame, kinds: Mapping[str, str], source: str) -> pd.DataFrame:
    """Apply the kinds decided at training, so that it does not matter how the columns were read.

    Args:
        frame: Rows with at least these columns.
        kinds: The kind of each column.
        source: Name of the table in messages.

    Returns:
        Float columns for numbers and the parts of dates, object columns of words for text.

    Raises:
        DataError: A column is missing, or holds something else than at training.
    """
    if missing := [name for name in kinds if name not in frame]:
        raise DataError(f"{source} has no column {', '.join(missing)}, which the model was trained on")
    converted: dict[str, Any] = {}
    for name, kind in kinds.items():
        column = frame[name]
        if kind == "text":
            words = {value: _word(value) for value in column.dropna().unique()}
            converted[name] = column.map(words).astype(object).where(column.notna(), "")
        elif kind == "number":
            converted[name] = _checked(column, pd.to_numeric(column, errors="coerce"), "numbers", source)
        else:
            dates = _checked(column, _dates(column, day_first=kind != "date"), "dates", source)
            converted[f"{name} (days)"] = (dates - pd.Timestamp(2000, 1, 1)) / pd.Timedelta(days=1)
            converted |= {f"{name} ({part})": getattr(dates.dt, part).astype(float) for part in _PARTS}
    table = pd.DataFrame(converted, index=frame.index)
    numbers = table.columns[[kind != np.dtype(object) for kind in table.dtypes]]
    table[numbers] = table[numbers].astype(float).replace([np.inf, -np.inf], np.nan)
    return table


def _checked(column: pd.Series, converted: pd.Series, expected: str, source: str) -> pd.Series:
    wrong = column[converted.isna() & column.notna()]
    if len(wrong):
        raise DataError(f"{source}: column {str(column.name)!r} holds {wrong.iloc[0]!r}; expected {expected}")
    return converted


def _dates(column: Any, *, day_first: bool) -> Any:
    if pd.api.types.is_datetime64_any_dtype(column):
        return pd.to_datetime(column, utc=True).dt.tz_localize(None)
    return pd.to_datetime(column, errors="coerce", format="mixed", dayfirst=day_first, utc=True).dt.tz_localize(None)


def _word(value: Any) -> str:
    """One word per category, however a reader typed it: 1, 1.0, '01' and '1' are '1'; True and 'TRUE' are 'true'."""
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.lower()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return format(number.normalize(), "f") if number.is_finite() else text


def require_column(frame: pd.DataFrame, name: str, source: str) -> None:
    """Refuse an unknown column.

    Args:
        frame: The table.
        name: The column.
        source: Name of the table in messages.

    Raises:
        DataError: The table has no such column; the message names the nearest.
    """
    if name not in frame:
        raise DataError(f"{source}: {unknown_name('column', name, map(str, frame.columns))}")
