"""Delimited text: one call of pandas for every such file, with its size known before and its errors in words."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from cmalight.errors import DataError, needed
from cmalight.files import refuse_larger
from cmalight.tables.from_frame import table_from_frame
from cmalight.tables.table import (
    DELIMITERS,
    MOST_COLUMNS,
    Reading,
    Table,
    are_codes,
    check_names,
    refuse_uncut,
    refuse_wide,
)

if TYPE_CHECKING:
    import pandas

_SAMPLE = 1 << 16  # characters from which the delimiter is told, at least the first line
_LONGEST_LINE = 64 * MOST_COLUMNS
_NUMBER = 8  # bytes of a cell in memory
_BLOCK = 1 << 20
_LEADING_ZERO = re.compile(rb"[^0-9.:/+eE-]0[0-9]")


def read_csv(path: Path, reading: Reading) -> Table:
    """A csv file with a header: the delimiter is found out, every line has as many cells as the header."""
    with needed(f"{path} needs pandas", "cli"):
        import pandas
    try:
        delimiter = reading.delimiter or _find_delimiter(path)
        header = _checked_header(path, delimiter)
        settings: dict[str, Any] = {
            "separator": delimiter,
            "names": header,
            "decimal": reading.decimal,
            "missing": reading.missing,
            "keep_default_na": True,
        }
        as_text = [name for name in header if name in reading.as_text]
        with path.open("rb") as file:
            frame = read_frame(file, path, dtype=dict.fromkeys(as_text, str), **settings)
        # pandas makes True of "true" and "TRUE", and 150 of "0150": text is kept as it was written.
        kinds = (bool, object, np.int64) if _has_leading_zeros(path) else (bool, object)
        doubtful = [name for name, dtype in zip(header, frame.dtypes, strict=True) if dtype in kinds]
        if doubtful:
            with path.open("rb") as file:
                written = read_frame(file, path, dtype=dict.fromkeys(doubtful, str), columns=doubtful, **settings)
            whole = [n for n in doubtful if frame[n].dtype == np.int64 and not are_codes(written[n].dropna().tolist())]
            written = written.drop(columns=whole)
            frame = pandas.concat([frame.drop(columns=written.columns), written], axis=1)[header]
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8, or name its encoding"
        ) from error
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV ({error}); it may be cut off in a quoted cell") from error
    except pandas.errors.ParserError as error:
        raise DataError(f"{path} cannot be read as CSV: {error}") from error
    return table_from_frame(frame, path, reading, f"{DELIMITERS.get(delimiter, repr(delimiter))} separated")


def read_frame(
    stream: IO[bytes],
    source: object,
    *,
    separator: str,
    names: Sequence[str] | None = None,
    header: bool = True,
    dtype: Any = None,
    columns: Collection[str] | None = None,
    missing: Collection[str] = (),
    keep_default_na: bool = False,
    decimal: str = ".",
    quoted: bool = True,
) -> pandas.DataFrame:
    """A frame of delimited text in UTF-8, each number as the double nearest to its text.

    Args:
        stream: the text's bytes.
        source: the file, as messages name it.
        separator: one character; a blank stands for any run of blanks.
        names: of the columns, in place of those in the first line.
        header: whether the first line has names; otherwise columns go by position.
        dtype: of all columns, or by column; None lets pandas find it out.
        columns: the only ones to read.
        missing: cells that stand for a missing value.
        keep_default_na: whether those that pandas knows do, too.
        decimal: the decimal sign.
        quoted: whether a cell in quotes may hold the separator.

    Raises:
        DataError: the table has too many columns, or would take too much memory.
        pandas.errors.ParserError: it is no such table.
    """
    import pandas

    version = tuple(int(part) for part in pandas.__version__.split(".")[:2])
    # From 3.1 on pandas always reads the nearest double, and warns if it is asked to.
    exact: dict[str, Any] = {"float_precision": "round_trip"} if version < (3, 1) else {}
    measured = io.BufferedReader(_Measured(stream, separator, source), _BLOCK)
    frame: pandas.DataFrame = pandas.read_csv(
        measured,
        sep=r"\s+" if separator == " " else separator,
        names=list(names) if names is not None else None,
        header=0 if header else None,
        dtype=dtype,
        usecols=list(columns) if columns is not None else None,
        na_values=list(missing),
        keep_default_na=keep_default_na,
        decimal=decimal,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        encoding="utf-8-sig",
        skipinitialspace=True,
        low_memory=isinstance(dtype, str | defaultdict),  # in pieces, where nothing is found out from the whole column
        **exact,
    )
    return frame


def _has_leading_zeros(path: Path) -> bool:
    """Whether any cell may begin with a zero and another digit, as zip codes do."""
    before = b"\n"
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            if _LEADING_ZERO.search(before + block):
                return True
            before = block[-2:]
    return False


class _Measured(io.RawIOBase):
    """A stream that stops where its cells, as numbers, would take more memory than the limit."""

    def __init__(self, stream: IO[bytes], separator: str, source: object) -> None:
        self._stream, self._source = stream, source
        self._separator = separator.encode()
        self._cells = self._lines = self._first = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), _BLOCK))
        buffer[: len(data)] = data
        if self._lines == 0:
            start = data.replace(b"\r", b"\n").partition(b"\n")[0]
            self._first += self._separators(start)
            refuse_wide(self._source, self._first + 1)
        self._lines += max(data.count(b"\n"), data.count(b"\r"))
        self._cells += self._separators(data)
        # A line with fewer cells than the first is filled up.
        cells = max(self._cells + self._lines, self._lines * (self._first + 1))
        refuse_larger(str(self._source), cells * _NUMBER, error=DataError)
        return len(data)

    def _separators(self, data: bytes) -> int:
        if self._separator != b" ":
            return data.count(self._separator)
        blank = np.isin(np.frombuffer(data, dtype=np.uint8), (9, 32))
        return int(np.count_nonzero(blank[1:] & ~blank[:-1]))


def _find_delimiter(path: Path) -> str:
    """The one that cuts the first lines into the same number of cells, more than one; else the header's best."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        sample = file.read(_SAMPLE)
        if len(sample) == _SAMPLE:
            sample += file.readline(_LONGEST_LINE)  # to the end of a line
    if "\0" in sample:
        raise DataError(f"{path} is a binary file; expected text with cells separated by a comma, semicolon or tab")
    lines = sample.splitlines(keepends=True)
    widths = {d: _widths(lines, d) for d in DELIMITERS}
    several = [d for d, width in widths.items() if width and width[0] > 1]
    regular = [d for d in several if len(set(widths[d])) == 1]
    return max(regular or several, key=lambda d: widths[d][0], default=",")


def _widths(lines: list[str], delimiter: str) -> list[int]:
    try:
        return [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:  # a long line that this delimiter does not cut
        return []


def _checked_header(path: Path, delimiter: str) -> list[str]:
    """The names in the first line, after a look at every line: a short one would be taken for missing values."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True)
        rows = ((reader.line_num, row) for row in reader if row)
        _, cells = next(rows, (0, []))
        header = [cell.strip() for cell in cells]
        refuse_uncut(path, header, delimiter)
        check_names(path, header)
        for line, row in rows:
            if len(row) != len(header):
                raise DataError(
                    f"{path}: line {line} has {len(row)} cells, but the header has {len(header)} "
                    f"({DELIMITERS.get(delimiter, repr(delimiter))} separated); repair the line, or give the delimiter"
                )
    return header
