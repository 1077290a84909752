"""Columns to inputs of a network: what is learnt from the training rows, and applied to any others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cmalight.errors import DataError
from cmalight.files import refuse_larger
from cmalight.tables.scaling import (
    Array,
    Scaling,
    ScalingKind,
    fitted_scaling,
    scaling_from_dict,
)
from cmalight.tables.splitting import Rows
from cmalight.tables.table import FEW_VALUES, Column, Table, are_codes, first_unreadable, is_number_like, refuse_large

_LARGEST_INPUT = 1e30  # fits the network's floats
_FAR = 1000
MOST_CATEGORIES = 1000


@dataclass(frozen=True)
class NumericFeature:
    """A column of numbers; `fill` stands for a missing one, None refuses it."""

    name: str
    fill: float | None

    @classmethod
    def fitted_on(cls, column: Column, *, impute: bool) -> NumericFeature:
        return cls(column.name, float(np.nanmedian(column.values)) if impute else None)

    def apply(self, table: Table) -> Array:
        column = table.column(self.name)
        if not column.is_numeric and not column.missing.all():
            # The first cell that is no number; else a number that could not be read, such as 1,5.
            row = min(np.flatnonzero(~column.missing).tolist(), key=lambda r: is_number_like(str(column.values[r])))
            raise DataError(
                f"{table.source}: column {self.name!r}, row {row + 1} holds {column.values[row]!r}; "
                "expected numbers, as in the training data"
            )
        values = column.values.astype(np.float64)
        refuse_large(table, column)
        if self.fill is None:
            _refuse_missing(table, column)
            return values[:, None]
        return np.where(np.isnan(values), self.fill, values)[:, None]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "numeric", "name": self.name, "fill": self.fill}


@dataclass(frozen=True)
class CategoricalFeature:
    """A column of text, one output per category; `fill` stands for a missing cell, None refuses it.

    A category that was not among the training rows gives zeros in all outputs.
    """

    name: str
    categories: tuple[str, ...]
    fill: str | None

    @property
    def width(self) -> int:
        return len(self.categories)

    @classmethod
    def fitted_on(cls, column: Column, *, impute: bool) -> CategoricalFeature:
        counts = Counter(cell for cell in column.values if cell is not None)
        categories = tuple(ordered(counts))
        return cls(column.name, categories, max(categories, key=counts.__getitem__) if impute else None)

    def apply(self, table: Table) -> Array:
        column = table.column(self.name)
        if self.fill is None:
            _refuse_missing(table, column)
        cells = (self.fill if cell is None else cell for cell in column.as_text())
        return indicators(codes(cells, self.categories), self.width)

    def unknown(self, table: Table) -> list[str]:
        return sorted({cell for cell in table.column(self.name).as_text() if cell is not None} - set(self.categories))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "categorical", "name": self.name, "categories": list(self.categories), "fill": self.fill}


@dataclass(frozen=True)
class FeatureEncoding:
    """Numbers, scaled, then the categories one-hot, each in the order of the columns."""

    numeric: tuple[NumericFeature, ...]
    scaling: Scaling
    categorical: tuple[CategoricalFeature, ...]

    @classmethod
    def fitted_on(
        cls,
        table: Table,
        training: Rows,
        *,
        impute: bool = False,
        categorical: Collection[str] = (),
        scaling: ScalingKind = "minmax",
    ) -> FeatureEncoding:
        """Looks at every row for what is wrong, but learns from the training rows alone.

        Args:
            impute: fill missing numbers with the column's median, missing text with its most frequent category.
            categorical: columns that are categories even if they look like numbers; they have to be text in `table`.
            scaling: of the numbers: "minmax" to [0, 1], "standard" by mean and standard deviation, "robust" by median
                and quartiles, with outliers drawn in.
        """
        if not table.columns:
            raise DataError(f"{table.source} has no column beside the target; expected at least one feature")
        for column in table.columns:
            _check_feature(table, column, training, impute=impute, categorical=categorical)
        part = table.take(training)
        numeric = tuple(NumericFeature.fitted_on(c, impute=impute) for c in part.columns if c.is_numeric)
        text = tuple(CategoricalFeature.fitted_on(c, impute=impute) for c in part.columns if not c.is_numeric)
        numbers = _joined([feature.apply(part) for feature in numeric], part.rows)
        return cls(numeric, fitted_scaling(numbers, scaling), text)

    @property
    def features(self) -> tuple[NumericFeature | CategoricalFeature, ...]:
        return (*self.numeric, *self.categorical)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features)

    @property
    def width(self) -> int:
        return len(self.numeric) + sum(feature.width for feature in self.categorical)

    def apply(self, table: Table) -> Array:
        """One row of numbers per row; the table may hold other columns too.

        Raises:
            DataError: a column is not there or not what it was in training, or the numbers would take too much memory.
        """
        for name in self.names:
            table.column(name)  # one that is not there is an error
        refuse_larger(f"{table.source} as {self.width} inputs", table.rows * self.width * 8, error=DataError)
        numbers = self._numbers(table)
        scaled = np.clip(self.scaling.apply(numbers), -_LARGEST_INPUT, _LARGEST_INPUT)
        return _joined([scaled, *(f.apply(table) for f in self.categorical)], table.rows)

    def _numbers(self, table: Table) -> Array:
        return _joined([feature.apply(table) for feature in self.numeric], table.rows)

    def outlying(self, table: Table) -> list[str]:
        """The columns of numbers with a value that is a thousand times as far from the median as the quartiles are."""
        numbers = self._numbers(table)
        first, middle, third = np.quantile(numbers, (0.25, 0.5, 0.75), axis=0)
        far = np.abs(numbers - middle).max(axis=0) > _FAR * (third - first)
        return [feature.name for feature, is_far in zip(self.numeric, far & (third > first), strict=True) if is_far]

    def unknown(self, table: Table) -> dict[str, list[str]]:
        """By column, the categories in `table` that the training rows did not have."""
        found = {feature.name: feature.unknown(table) for feature in self.categorical}
        return {name: categories for name, categories in found.items() if categories}

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, for files."""
        return {"columns": [feature.to_dict() for feature in self.features], "scaling": self.scaling.to_dict()}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> FeatureEncoding:
        columns = plain["columns"]
        numeric = tuple(NumericFeature(c["name"], c["fill"]) for c in columns if c["kind"] == "numeric")
        categorical = tuple(
            CategoricalFeature(c["name"], tuple(c["categories"]), c["fill"])
            for c in columns
            if c["kind"] == "categorical"
        )
        scaling = scaling_from_dict(plain["scaling"])
        if scaling.columns != len(numeric):
            raise ValueError("the scaling does not fit the columns")
        return cls(numeric, scaling, categorical)


def _check_feature(table: Table, column: Column, training: Rows, *, impute: bool, categorical: Collection[str]) -> None:
    where = f"{table.source}: column {column.name!r}"
    if column.take(training).missing.all():
        raise DataError(f"{where} has no value in the training rows; leave it out (drop)")
    if not impute:
        _refuse_missing(table, column)
    if column.is_numeric:
        refuse_large(table, column)
        return
    cells = [cell for cell in column.values if cell is not None]
    if column.name not in categorical:
        _refuse_numbers_among_text(where, column, cells)
    different = len(set(cells))
    if different > MOST_CATEGORIES or (different == table.rows > FEW_VALUES):
        raise DataError(
            f"{where} has {different} different texts in {table.rows} rows, too many for categories; "
            "leave it out (drop)"
        )


def _refuse_numbers_among_text(where: str, column: Column, cells: list[str]) -> None:
    if are_codes(cells):
        return
    odd = next((cell for cell in cells if not is_number_like(cell)), None)
    numbers = sum(is_number_like(cell) for cell in cells)
    if odd is None:
        raise DataError(
            f"{where} holds numbers that cannot be read, such as {first_unreadable(cells)!r}; write 1234.5, "
            "or name the decimal sign (decimal ','), or take the column as categories (categorical)"
        )
    if 2 * numbers >= len(cells):
        row = list(column.values).index(odd) + 1
        raise DataError(
            f"{where} holds numbers, but row {row} holds {odd!r}; correct it, "
            f"say that it stands for a missing value (missing {odd!r}), or take the column as categories (categorical)"
        )


def _refuse_missing(table: Table, column: Column) -> None:
    missing = column.missing
    if missing.any():
        row = int(missing.argmax()) + 1
        raise DataError(
            f"{table.source}: column {column.name!r} has {int(missing.sum())} missing values (NaN), "
            f"the first in row {row}; fill them in, or have them filled in training (impute 'median')"
        )


def _joined(parts: list[Array], rows: int) -> Array:
    return np.hstack([np.zeros((rows, 0)), *parts])


def ordered(categories: Iterable[str]) -> list[str]:
    """The different ones: by size if all are numbers, by the alphabet otherwise."""
    different = sorted(set(categories))
    try:
        sizes = [float(category) for category in different]
    except ValueError:
        return different
    if any(math.isnan(size) for size in sizes):
        return different
    return [category for _, category in sorted(zip(sizes, different, strict=True))]


def codes(cells: Iterable[str | None], categories: Sequence[str]) -> npt.NDArray[np.intp]:
    """The place of each cell among the categories, -1 for none of them."""
    place = {category: index for index, category in enumerate(categories)}
    return np.array([-1 if cell is None else place.get(cell, -1) for cell in cells], dtype=np.intp)


def indicators(codes: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.float64]:
    """One column for each of `count` categories, 1 where a row has it and 0 elsewhere."""
    return np.asarray(codes[:, np.newaxis] == np.arange(count), dtype=np.float64)
