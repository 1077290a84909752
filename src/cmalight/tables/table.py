"""Named columns of numbers or of text, and how messages speak of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cmalight.errors import DataError

MOST_COLUMNS = 100_000
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_DIGITS = re.compile(r"\d+")
_LISTED = 8  # names that a message lists at most
_LARGEST = 1e100  # squares and sums of such numbers are still numbers
FEW_VALUES = 10  # whole numbers with no more different values than this may be classes


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

    def as_text(self) -> list[str | None]:
        """Each cell, None where it is missing; 3 rather than 3.0."""
        if not self.is_numeric:
            return list(self.values)
        return [None if np.isnan(number) else number_name(number) for number in self.values]


@dataclass(frozen=True)
class Table:
    """Columns of equal length; `source` is what messages call the table, `layout` says how it was read."""

    source: str
    columns: tuple[Column, ...]
    layout: str = ""

    @property
    def rows(self) -> int:
        return len(self.columns[0].values)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def column(self, name: str) -> Column:
        found = self._by_name.get(name)
        if found is None:
            raise unknown_column(self.source, name, self.names)
        return found

    def without(self, names: Collection[str]) -> Table:
        left_out = {self.column(name).name for name in names}  # a name that is not there is a typo
        return self.only([name for name in self.names if name not in left_out])

    def only(self, names: Sequence[str]) -> Table:
        return Table(self.source, tuple(self.column(name) for name in names), self.layout)

    def take(self, rows: npt.NDArray[np.intp]) -> Table:
        return Table(self.source, tuple(column.take(rows) for column in self.columns), self.layout)

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}


@dataclass(frozen=True)
class Reading:
    """How to read a file where its looks are not enough. All but `target` are for csv files.

    Args:
        encoding: of a csv file.
        delimiter: None finds it out: comma, semicolon, tab or bar.
        decimal: the decimal sign of a csv file.
        missing: cells that stand for a missing value, besides those that pandas knows (empty, NA, null, nan, ...).
        as_text: columns that are text even if they look like numbers.
        target: in an npz file, the array that is not the features.
    """

    encoding: str = "utf-8"
    delimiter: str | None = None
    decimal: str = "."
    missing: tuple[str, ...] = ()
    as_text: frozenset[str] = frozenset()
    target: str = "y"


def check_names(source: object, names: Sequence[str]) -> None:
    """Refuses columns that cannot be told apart, or of which there are too many.

    Args:
        source: the file, as the message names it.
        names: of its columns, in their order.

    Raises:
        DataError: a name is empty, or there twice, or all are numbers; or there are more than `MOST_COLUMNS`.
    """
    if not any(names):
        raise DataError(f"{source} is empty; expected a first line with the names of the columns")
    refuse_wide(source, len(names))
    if "" in names:
        raise DataError(
            f"{source}: column {names.index('') + 1} has no name; name it in the first line "
            "(an index written by pandas: to_csv(index=False) leaves it out)"
        )
    if all(_is_number(name) for name in names):
        raise DataError(
            f"{source}: the first line holds numbers ({listed(names)}), not names; add a line that names the columns"
        )
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{source} has two columns named {name!r}; rename one")
        seen.add(name)


def refuse_uncut(source: object, names: Sequence[object], separator: str) -> None:
    """Refuses a single column whose name holds another delimiter: the file was cut at the wrong character.

    Raises:
        DataError: it looks like that.
    """
    if len(names) == 1:
        other = next((d for d in DELIMITERS if d != separator and d in str(names[0])), None)
        if other is not None:
            line = str(names[0])[:80]
            raise DataError(f"{source}: only one column was found; is the delimiter {other!r}? The first is {line!r}")


def refuse_wide(source: object, columns: int) -> None:
    """Refuses a table of more than `MOST_COLUMNS` columns."""
    if columns > MOST_COLUMNS:
        raise DataError(f"{source} has {columns} columns; the most that are read are {MOST_COLUMNS}")


def unknown_column(source: object, name: object, names: Sequence[object]) -> DataError:
    """The error for a column that is not there, with the nearest of those that are."""
    known = [str(one) for one in names]
    nearest = difflib.get_close_matches(str(name), known[:1000], n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return DataError(f"{source} has no column {name!r}; {hint}it has {listed(known)}")


def listed(names: Collection[str]) -> str:
    """Names for a message, the first few of many."""
    shown = ", ".join(list(names)[:_LISTED])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > _LISTED else shown


def number_name(number: float) -> str:
    """A number as a category or class: 3 rather than 3.0."""
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def is_number_like(text: str) -> bool:
    """Whether it is written as a number, with commas anywhere."""
    return _is_number(text.replace(",", ""))


def are_codes(cells: Collection[str]) -> bool:
    """Digits with leading zeros, such as zip codes: names, not numbers."""
    return any(cell[0] == "0" and len(cell) > 1 for cell in cells) and all(_DIGITS.fullmatch(cell) for cell in cells)


def refuse_large(table: Table, column: Column) -> None:
    """Refuses numbers that cannot be reckoned with."""
    values = column.values.astype(np.float64)
    large = np.abs(values) > _LARGEST
    if large.any():
        row = int(large.argmax())
        found = "infinite" if np.isinf(values[row]) else f"{values[row]:g}"
        raise DataError(
            f"{table.source}: column {column.name!r}, row {row + 1} is {found}; "
            f"expected finite numbers up to {_LARGEST:g}, correct the cell, or give the column in other units"
        )


def first_unreadable(cells: list[str]) -> str:
    """The first cell that is not written as a number, if all were; else the first that is written in another way."""
    odd = [cell for cell in cells if not is_number_like(cell)] or [cell for cell in cells if "," in cell]
    return (odd or cells)[0]


def object_array(cells: Iterable[str | None]) -> npt.NDArray[Any]:
    """Cells of text as an array that nothing is converted in."""
    held = list(cells)
    array = np.empty(len(held), dtype=object)
    array[:] = held
    return array


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
