"""Tables from csv, parquet and npz files: named columns of numbers or of text."""

from __future__ import annotations

import csv
import difflib
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cmalight.errors import unknown_name

if TYPE_CHECKING:
    import pandas

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_SAMPLE = 1 << 16  # characters from which the delimiter is told
_LISTED = 8  # names that a message lists at most


@dataclass(frozen=True)
class Column:
    """Numbers (float64, NaN where a cell is missing) or text (str, None where a cell is missing)."""

    name: str
    values: npt.NDArray[Any]

    @property
    def is_numeric(self) -> bool:
        return self.values.dtype != np.dtype(object)

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        found = np.isnan(self.values) if self.is_numeric else [cell is None for cell in self.values]
        return np.asarray(found, dtype=np.bool_)

    def take(self, rows: npt.NDArray[np.intp]) -> Column:
        return Column(self.name, self.values[rows])


@dataclass(frozen=True)
class Table:
    """Columns of equal length; `source` is what messages call the table, `layout` says how it was read."""

    source: str
    columns: tuple[Column, ...]
    layout: str = ""

    @property
    def rows(self) -> int:
        return len(self.columns[0].values)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise unknown_column(self.source, name, self.names)

    def without(self, names: Collection[str]) -> Table:
        for name in names:
            self.column(name)  # a name that is not there is a typo
        return self.only([name for name in self.names if name not in names])

    def only(self, names: Sequence[str]) -> Table:
        return Table(self.source, tuple(self.column(name) for name in names), self.layout)

    def take(self, rows: npt.NDArray[np.intp]) -> Table:
        return Table(self.source, tuple(column.take(rows) for column in self.columns), self.layout)


@dataclass(frozen=True)
class Reading:
    """How to read a file where its looks are not enough. All but `target` are for csv files.

    Args:
        delimiter: None finds it out: comma, semicolon, tab or bar.
        missing: cells that stand for a missing value, besides those that pandas knows (empty, NA, null, nan, ...).
        as_text: columns that are text even if they look like numbers.
        target: in an npz file, the array that is not the features.
    """

    delimiter: str | None = None
    decimal: str = "."
    missing: tuple[str, ...] = ()
    as_text: frozenset[str] = frozenset()
    target: str = "y"


def unknown_column(source: str, name: str, names: Sequence[str]) -> ValueError:
    """The error for a column that is not there; of many columns, the message lists the nearest and the first few."""
    if len(names) > _LISTED:
        nearest = difflib.get_close_matches(name, names, n=1)
        names = [*nearest, *(n for n in names[:_LISTED] if n not in nearest), f"... ({len(names)} in all)"]
    return ValueError(unknown_name(f"column in {source}:", name, names))


def listed(names: Collection[str]) -> str:
    """Names for a message, the first few of many."""
    shown = ", ".join(list(names)[:_LISTED])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > _LISTED else shown


def read_table(path: str | Path, reading: Reading | None = None) -> Table:
    """Reads a table; whatever is wrong with the file is a ValueError or an OSError that names it."""
    path = Path(path)
    readers: dict[str, Callable[[Path, Reading], Table]]
    readers = {".csv": _read_csv, ".tsv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give a file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}{_nearest_file(path)}")
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path} is of unknown type {path.suffix!r}; expected a file ending in {', '.join(readers)}")
    if path.is_file() and path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; expected a table with named columns")
    path.open("rb").close()  # a file that may not be read is no file of the wrong type
    table = readers[path.suffix.lower()](path, reading or Reading())
    if not table.columns or table.rows == 0:
        raise ValueError(f"{path} has no rows of data; expected at least one below the header")
    return table


def _nearest_file(path: Path) -> str:
    neighbours = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    nearest = difflib.get_close_matches(path.name, neighbours, n=1)
    return f"; did you mean {path.parent / nearest[0]}?" if nearest else "; check the name and the directory"


def _read_csv(path: Path, reading: Reading) -> Table:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f'{path} needs pandas: pip install "cmalight[cli]"') from error
    try:
        delimiter = reading.delimiter or _find_delimiter(path)
        header = _checked_header(path, delimiter)
        settings: dict[str, Any] = {
            "sep": delimiter,
            "decimal": reading.decimal,
            "na_values": list(reading.missing),
            "names": header,
            "header": 0,
            "skipinitialspace": True,
            "encoding": "utf-8-sig",
            "low_memory": False,
        }
        as_text = [name for name in header if name in reading.as_text]
        frame = pandas.read_csv(path, dtype=dict.fromkeys(as_text, str), **settings)
        # pandas makes True of "true" and "TRUE": text is kept as it was written.
        booleans = [name for name in header if frame[name].dtype in (bool, object)]
        if booleans:
            frame[booleans] = pandas.read_csv(path, dtype=str, usecols=booleans, **settings)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8") from error
    except csv.Error as error:
        raise ValueError(f"{path} cannot be read as CSV ({error}); it may be cut off in a quoted cell") from error
    except pandas.errors.ParserError as error:
        raise ValueError(f"{path} cannot be read as CSV: {error}") from error
    layout = f"{DELIMITERS.get(delimiter, repr(delimiter))} separated"
    return Table(str(path), tuple(_column(path, frame[name], reading) for name in header), layout)


def _find_delimiter(path: Path) -> str:
    """The one that cuts the first lines into the same number of cells, more than one; else the header's best."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        sample = file.read(_SAMPLE)
    if "\0" in sample:
        raise ValueError(f"{path} is a binary file; expected text with cells separated by a comma, semicolon or tab")
    lines = sample.splitlines(keepends=True)
    if len(sample) == _SAMPLE:
        lines = lines[:-1]  # the last one is cut
    widths = {d: [len(row) for row in csv.reader(lines, delimiter=d) if row] for d in DELIMITERS}
    several = [d for d, width in widths.items() if width and width[0] > 1]
    regular = [d for d in several if len(set(widths[d])) == 1]
    return max(regular or several, key=lambda d: widths[d][0], default=",")


def _checked_header(path: Path, delimiter: str) -> list[str]:
    """The names in the first line, after a look at every line: a short one would be taken for missing values."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True)
        rows = ((reader.line_num, row) for row in reader if row)
        _, cells = next(rows, (0, []))
        header = [cell.strip() for cell in cells]
        _check_names(path, header)
        for line, row in rows:
            if len(row) != len(header):
                raise ValueError(
                    f"{path}: line {line} has {len(row)} cells, but the header has {len(header)} "
                    f"({DELIMITERS.get(delimiter, repr(delimiter))} separated); repair the line, or give the delimiter"
                )
    return header


def _check_names(path: Path, header: list[str]) -> None:
    if not any(header):
        raise ValueError(f"{path} is empty; expected a first line with the names of the columns")
    if "" in header:
        raise ValueError(
            f"{path}: column {header.index('') + 1} has no name; name it in the first line "
            "(an index written by pandas: to_csv(index=False) leaves it out)"
        )
    if all(_is_number(name) for name in header):
        raise ValueError(
            f"{path}: the first line holds numbers ({listed(header)}), not names; add a line that names the columns"
        )
    repeated = [name for index, name in enumerate(header) if name in header[:index]]
    if repeated:
        raise ValueError(f"{path} has two columns named {repeated[0]!r}; rename one")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path, reading: Reading) -> Table:
    try:
        import pandas
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(f'{path} needs pandas and pyarrow: pip install "cmalight[cli]"') from error
    try:
        frame = pandas.DataFrame(pyarrow.parquet.ParquetFile(path).read().to_pandas())
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a complete parquet file: it may be cut off, or of another type") from error
    _check_names(path, [str(name) for name in frame.columns])
    columns = tuple(_column(path, frame[name], reading) for name in frame.columns)
    return Table(str(path), columns, "parquet")


def _column(path: Path, series: pandas.Series[Any], reading: Reading) -> Column:
    """Numbers as float64; booleans, text and what is named in `as_text` as text."""
    from pandas.api import types

    name = str(series.name)
    if types.is_complex_dtype(series.dtype) or types.is_datetime64_any_dtype(series.dtype):
        raise ValueError(f"{path}: column {name!r} holds {series.dtype}; make numbers or text of it, or leave it out")
    if types.is_numeric_dtype(series.dtype) and not types.is_bool_dtype(series.dtype):
        numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return Column(name, _texts(numbers) if name in reading.as_text else numbers)
    cells = series.astype(object).where(series.notna(), None).tolist()
    if any(isinstance(cell, Decimal) for cell in cells):
        return Column(name, np.array([np.nan if cell is None else float(cell) for cell in cells]))
    for cell in cells:
        if not isinstance(cell, str | bool | int | float | None):
            raise ValueError(
                f"{path}: column {name!r} holds {type(cell).__name__}; make numbers or text of it, or leave it out"
            )
    return Column(name, object_array(None if cell is None else str(cell).strip() or None for cell in cells))


def _texts(numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    return object_array(None if np.isnan(number) else number_name(number) for number in numbers)


def number_name(number: float) -> str:
    """A number as a category or class: 3 rather than 3.0."""
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def object_array(cells: Iterator[str | None]) -> npt.NDArray[Any]:
    held = list(cells)
    array = np.empty(len(held), dtype=object)
    array[:] = held
    return array


def _read_npz(path: Path, reading: Reading) -> Table:
    try:
        with path.open("rb") as stream:  # NumPy would leave it open where it fails
            file = np.load(stream, allow_pickle=False)
            arrays = {name: file[name] for name in file.files}  # a single array, as in npy files, has no `files`
    except (zipfile.BadZipFile, zlib.error, EOFError, AttributeError, KeyError, ValueError, OSError) as error:
        why = "it may be cut off, of another type, or hold Python objects"
        raise ValueError(f"{path} is not a complete npz file of plain arrays: {why}") from error
    features = _feature_array(path, arrays, reading.target)
    columns = [Column(f"x{index}", features[:, index]) for index in range(features.shape[1])]
    if reading.target in arrays:
        target = arrays[reading.target].squeeze()
        if target.shape != (len(features),):
            raise ValueError(
                f"{path}: array {reading.target!r} has shape {arrays[reading.target].shape}; "
                f"expected one value for each of the {len(features)} rows of the features"
            )
        columns.append(_target_column(path, reading, target))
    return Table(str(path), tuple(columns), "npz")


def _feature_array(path: Path, arrays: dict[str, npt.NDArray[Any]], target: str) -> npt.NDArray[np.float64]:
    others = {name: array for name, array in arrays.items() if name != target}
    flat = [name for name, array in others.items() if array.ndim == 2]
    name = "x" if "x" in others else flat[0] if len(flat) == 1 else None
    if name is None:
        raise ValueError(f"{path} holds the arrays {listed(arrays)}; expected the features in one named 'x'")
    array = others[name]
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{path}: array {name!r} has shape {array.shape}; expected (rows, features)")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{path}: array {name!r} holds {array.dtype}; expected numbers")
    return array.astype(np.float64)


def _target_column(path: Path, reading: Reading, target: npt.NDArray[Any]) -> Column:
    if target.dtype.kind in "USb":
        return Column(reading.target, object_array(str(cell) or None for cell in target.astype(str)))
    if target.dtype.kind not in "iuf":
        raise ValueError(f"{path}: array {reading.target!r} holds {target.dtype}; expected numbers or text")
    return Column(reading.target, target.astype(np.float64))
