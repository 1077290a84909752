"""Columns that are not what they seem: dates, amounts with a sign, ids, texts that are different in every row.

What is found on the training table is kept with the model and done again to new rows.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cmalight.errors import DataError
from cmalight.tables.encoding import MOST_CATEGORIES
from cmalight.tables.table import Column, Table, are_codes, is_number_like

_DATES = (
    *("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f"),
    *("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%fZ"),
    *("%Y/%m/%d", "%d.%m.%Y", "%d.%m.%Y %H:%M", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"),
    *("%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%b %d, %Y", "%d-%b-%Y"),
)
_WRITTEN = "%Y-%m-%d %H:%M:%S"
_SIGNS = "$€£¥%"
_ID_NAME = re.compile(r"(^|[\W_])(id|ids|idx|index|row|uuid|guid)$|[a-z]I[dD]$", re.IGNORECASE)
_LIKE_A_DATE = re.compile(r"\d{1,4}[-/.]\d|\d{1,2}[ -][A-Za-z]{3}|[A-Za-z]{3} \d")
_SAMPLE = 50  # cells that tell whether it is worth a look at all of them
_FEW_ROWS = 20  # in a table that small nothing is left out

Part = Literal["year", "month", "day", "weekday", "hour", "minute"]
_DAYS: tuple[Part, ...] = ("year", "month", "day", "weekday")
_TIMES: tuple[Part, ...] = ("hour", "minute")


@dataclass(frozen=True)
class Dates:
    """A column of dates in one format, which becomes one column of numbers for each of its parts."""

    name: str
    format: str
    parts: tuple[Part, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns that it becomes."""
        return tuple(f"{self.name} ({part})" for part in self.parts)

    def apply(self, source: str, column: Column) -> list[Column]:
        parsed = _parsed(column, self.format)
        if np.isnat(parsed).any():  # what a frame or a parquet file holds is written in one form only
            parsed = np.where(np.isnat(parsed), _parsed(column, _WRITTEN), parsed)
        wrong = np.flatnonzero(np.isnat(parsed) & ~column.missing)
        if len(wrong):
            raise DataError(
                f"{source}: column {self.name!r}, row {wrong[0] + 1} holds {column.values[wrong[0]]!r}; "
                f"expected dates in the form {self.format}, as in the training data"
            )
        return [Column(name, _part(parsed, part)) for name, part in zip(self.names, self.parts, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "dates", "name": self.name, "format": self.format, "parts": list(self.parts)}


@dataclass(frozen=True)
class Amounts:
    """A column of numbers with a sign of currency or a percent sign, which become numbers."""

    name: str
    sign: str
    decimal: str

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns that it becomes."""
        return (self.name,)

    def apply(self, source: str, column: Column) -> list[Column]:
        if column.is_numeric:
            return [column]
        numbers = np.full(len(column.values), np.nan)
        for row, cell in enumerate(column.values):
            if cell is None:
                continue
            number = _amount(cell, self.sign, self.decimal)
            if number is None:
                raise DataError(
                    f"{source}: column {self.name!r}, row {row + 1} holds {cell!r}; "
                    f"expected numbers with {self.sign}, as in the training data"
                )
            numbers[row] = number
        return [Column(self.name, numbers)]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "amounts", "name": self.name, "sign": self.sign, "decimal": self.decimal}


@dataclass(frozen=True)
class Recognition:
    """What the columns of a table are taken for, besides numbers and categories.

    Attributes:
        columns: those that are converted.
        left_out: names of columns that say nothing of other rows.
        notes: one line for each, on what was done and how to have it otherwise.
    """

    columns: tuple[Dates | Amounts, ...] = ()
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def apply(self, table: Table) -> Table:
        """The table with its columns converted, and without those left out.

        Raises:
            DataError: a column that is converted is not there, or holds something else.
        """
        by_name = {one.name: one for one in self.columns}
        for name in by_name:
            table.column(name)
        converted: list[Column] = []
        for column in table.columns:
            if column.name in self.left_out:
                continue
            known = by_name.get(column.name)
            converted += [column] if known is None else known.apply(table.source, column)
        return Table(table.source, tuple(converted), table.layout)

    def to_list(self) -> list[dict[str, Any]]:
        """Plain values, for files; what is left out is known by the model's columns."""
        return [one.to_dict() for one in self.columns]

    @classmethod
    def from_list(cls, plain: list[dict[str, Any]]) -> Recognition:
        """What `to_list` was made from.

        Raises:
            ValueError: the form of dates or amounts is not one of those known here.
        """
        columns: list[Dates | Amounts] = []
        for one in plain:
            if one["kind"] == "amounts":
                if len(one["sign"]) != 1 or one["sign"] not in _SIGNS or one["decimal"] not in (".", ","):
                    raise ValueError(f"the amounts of {one['name']!r} are in no known form")
                columns.append(Amounts(one["name"], one["sign"], one["decimal"]))
                continue
            if one["format"] not in _DATES or not set(one["parts"]) <= {*_DAYS, *_TIMES}:
                raise ValueError(f"the dates of {one['name']!r} are in no known form")
            columns.append(Dates(one["name"], one["format"], tuple(one["parts"])))
        return cls(tuple(columns))


def recognise(
    table: Table, *, target: str | None = None, as_is: Collection[str] = (), decimal: str = "."
) -> Recognition:
    """Looks at every column of a table for what it may be besides a number or a category.

    Args:
        table: the training table.
        target: the column to predict, which may be amounts but is never left out.
        as_is: columns that nothing is done to.
        decimal: the decimal sign of amounts.
    """
    columns: list[Dates | Amounts] = []
    left_out: list[str] = []
    notes: list[str] = []
    for column in table.columns:
        if column.name in as_is:
            continue
        found = None if column.is_numeric else _dates(column) or _amounts(column, decimal)
        if found is not None and not (column.name == target and isinstance(found, Dates)):
            columns.append(found)
            notes.append(_note(column, found))
        elif column.name != target and table.rows > _FEW_ROWS and (why := _says_nothing(column)):
            left_out.append(column.name)
            notes.append(f"column {column.name!r}: left out, {why} (as_is takes it as it is)")
        elif not column.is_numeric and are_codes(cells := column.values[~column.missing]):
            notes.append(f"column {column.name!r}: codes with leading zeros such as {min(cells)}, taken as categories")
    return Recognition(tuple(columns), tuple(left_out), tuple(notes))


def _note(column: Column, found: Dates | Amounts) -> str:
    first = next(cell for cell in column.values if cell is not None)
    what = "amounts" if isinstance(found, Amounts) else "dates"
    become = "numbers" if isinstance(found, Amounts) else ", ".join(found.parts)
    return f"column {column.name!r}: {what} such as {first}, taken as {become} (as_is takes them as text)"


def _says_nothing(column: Column) -> str | None:
    """Why a column cannot tell anything of other rows."""
    values = column.values[~column.missing]
    if column.is_numeric:
        if not _ID_NAME.search(column.name) or not np.equal(np.floor(values), values).all():
            return None
        return "an id: a different whole number in every row" if len(np.unique(values)) == len(values) > 0 else None
    if not are_codes(values) and 2 * sum(is_number_like(cell) for cell in values) >= len(values):
        return None  # numbers with a stray word among them
    different = len(set(values))
    if different > MOST_CATEGORIES or 2 * different > len(values) > 0:
        return f"{different} different texts in {len(column.values)} rows"
    return None


def _dates(column: Column) -> Dates | None:
    present = np.flatnonzero(~column.missing)
    sample = column.take(present[:_SAMPLE])
    if not len(present) or _LIKE_A_DATE.match(sample.values[0]) is None:
        return None
    fitting = [form for form in _DATES if not np.isnat(_parsed(sample, form)).any()]
    whole = column.take(present)
    fitting = [form for form in fitting if not np.isnat(_parsed(whole, form)).any()]
    if len(fitting) != 1:  # none, or day and month cannot be told apart
        return None
    parsed = _parsed(whole, fitting[0])
    times = any(len(np.unique(_part(parsed, part))) > 1 for part in _TIMES)
    return Dates(column.name, fitting[0], (*_DAYS, *_TIMES) if times else _DAYS)


def _parsed(column: Column, form: str) -> npt.NDArray[Any]:
    import pandas

    cells = pandas.Series(column.values, dtype=object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsed = pandas.to_datetime(cells, format=form, errors="coerce", utc="Z" in form)
    return np.asarray(parsed.dt.tz_localize(None).to_numpy())


def _part(parsed: npt.NDArray[Any], part: Part) -> npt.NDArray[np.float64]:
    import pandas

    name = "day_of_week" if part == "weekday" else part
    return np.asarray(getattr(pandas.Series(parsed).dt, name), dtype=np.float64)


def _amounts(column: Column, decimal: str) -> Amounts | None:
    cells = [cell for cell in column.values if cell is not None]
    signs = {character for cell in cells[:_SAMPLE] for character in cell if character in _SIGNS}
    if len(signs) != 1:
        return None
    (sign,) = signs
    if all(_amount(cell, sign, decimal) is not None for cell in cells):
        return Amounts(column.name, sign, decimal)
    return None


def _amount(cell: str, sign: str, decimal: str) -> float | None:
    """The number in `$1,234.50`, `-3 €` or `45%`."""
    bare = cell.replace(sign, "", 1).replace(" ", "")
    thousands = "," if decimal == "." else "."
    if re.fullmatch(rf"[-+]?(\d+|\d{{1,3}}(\{thousands}\d{{3}})+)(\{decimal}\d+)?", bare) is None:
        return None
    return float(bare.replace(thousands, "").replace(decimal, "."))
