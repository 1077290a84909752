"""Tables to numbers and back: what is learnt from the training rows, and applied to any others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from cmalight.errors import DataError
from cmalight.files import refuse_larger
from cmalight.tables.categories import MOST_CATEGORIES, codes, indicators, ordered
from cmalight.tables.scaling import (
    Array,
    MinMax,
    Scaling,
    ScalingKind,
    fitted_scaling,
    minmax_from_dict,
    scaling_from_dict,
)
from cmalight.tables.splitting import Rows
from cmalight.tables.table import Column, Table, are_codes, is_number_like, listed, number_name

Task = Literal["regression", "classification"]

_MOST_CLASSES = 1000
_LARGEST = 1e100  # squares and sums of such numbers are still numbers
_LARGEST_INPUT = 1e30  # fits the network's floats
_FAR = 1000
_FEW_VALUES = 10  # whole numbers with no more different values than this may be classes


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
        _refuse_large(table, column)
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
        cells = (self.fill if cell is None else cell for cell in _as_text(column))
        return indicators(codes(cells, self.categories), self.width)

    def unknown(self, table: Table) -> list[str]:
        return sorted({cell for cell in _as_text(table.column(self.name)) if cell is not None} - set(self.categories))

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
        _refuse_large(table, column)
        return
    cells = [cell for cell in column.values if cell is not None]
    if column.name not in categorical:
        _refuse_numbers_among_text(where, column, cells)
    different = len(set(cells))
    if different > MOST_CATEGORIES or (different == table.rows > _FEW_VALUES):
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
            f"{where} holds numbers that cannot be read, such as {_unreadable(cells)!r}; write 1234.5, "
            "or name the decimal sign (decimal ','), or take the column as categories (categorical)"
        )
    if 2 * numbers >= len(cells):
        row = list(column.values).index(odd) + 1
        raise DataError(
            f"{where} holds numbers, but row {row} holds {odd!r}; correct it, "
            f"say that it stands for a missing value (missing {odd!r}), or take the column as categories (categorical)"
        )


def _refuse_unreadable_numbers(source: str, target: Column) -> None:
    cells = [str(cell) for cell in target.values]
    if not are_codes(cells) and 2 * sum(is_number_like(cell) for cell in cells) >= len(cells):
        odd = _unreadable(cells)
        raise DataError(
            f"{source}: target {target.name!r} holds numbers, but row {cells.index(odd) + 1} holds {odd!r}; write "
            "1234.5, or name the decimal sign (decimal ','), or the task if they are names of classes (classification)"
        )


def _unreadable(cells: list[str]) -> str:
    """The first cell that is not written as a number, if all were; else the first that is written in another way."""
    odd = [cell for cell in cells if not is_number_like(cell)] or [cell for cell in cells if "," in cell]
    return (odd or cells)[0]


def _refuse_missing(table: Table, column: Column) -> None:
    missing = column.missing
    if missing.any():
        row = int(missing.argmax()) + 1
        raise DataError(
            f"{table.source}: column {column.name!r} has {int(missing.sum())} missing values (NaN), "
            f"the first in row {row}; fill them in, or have them filled in training (impute 'median')"
        )


def _refuse_large(table: Table, column: Column) -> None:
    values = column.values.astype(np.float64)
    large = np.abs(values) > _LARGEST
    if large.any():
        row = int(large.argmax())
        found = "infinite" if np.isinf(values[row]) else f"{values[row]:g}"
        raise DataError(
            f"{table.source}: column {column.name!r}, row {row + 1} is {found}; "
            f"expected finite numbers up to {_LARGEST:g}, correct the cell, or give the column in other units"
        )


def _as_text(column: Column) -> list[str | None]:
    if not column.is_numeric:
        return list(column.values)
    return [None if np.isnan(number) else number_name(number) for number in column.values]


def _joined(parts: list[Array], rows: int) -> Array:
    return np.hstack([np.zeros((rows, 0)), *parts])


@dataclass(frozen=True)
class NumberTarget:
    """A number to predict, scaled to [0, 1] over the training rows."""

    name: str
    scaling: MinMax

    outputs: ClassVar[int] = 1
    task: ClassVar[Task] = "regression"

    @classmethod
    def fitted_on(cls, table: Table, name: str, training: Rows) -> NumberTarget:
        column = complete_target(table, name)
        if not column.is_numeric:
            raise DataError(
                f"{table.source}: target {name!r} holds text such as {column.values[0]!r}; regression expects numbers "
                "(classification takes text)"
            )
        _refuse_large(table, column)
        values = column.values[training]
        if np.unique(values).size < 2:
            raise DataError(
                f"{table.source}: target {name!r} is {number_name(values[0])} in all {len(values)} training rows; "
                "expected different values, choose another target"
            )
        return cls(name, MinMax.fitted_on(values[:, None]))

    def encode(self, table: Table) -> Array:
        return self.scaling.apply(table.column(self.name).values[:, None])

    def decode(self, outputs: Array) -> Array:
        """In the units of the training data."""
        return self.scaling.undo(outputs)[:, 0]

    def to_dict(self) -> dict[str, Any]:
        return {"task": "regression", "name": self.name, "scaling": self.scaling.to_dict()}


@dataclass(frozen=True)
class ClassTarget:
    """One of several classes to predict, known by name."""

    name: str
    classes: tuple[str, ...]

    task: ClassVar[Task] = "classification"

    @property
    def outputs(self) -> int:
        return len(self.classes)

    @classmethod
    def fitted_on(cls, table: Table, name: str) -> ClassTarget:
        column = complete_target(table, name)
        different: list[Any] = sorted(set(column.values.tolist()))
        where = f"{table.source}: target {name!r}"
        if len(different) < 2:
            only = _as_text(column)[0]
            raise DataError(f"{where} is {only!r} in all rows, one class only; expected two or more")
        if len(different) > _MOST_CLASSES:
            raise DataError(
                f"{where} has {len(different)} different values, too many for classes; is the task regression?"
            )
        return cls(name, tuple(number_name(c) if column.is_numeric else c for c in different))

    def encode(self, table: Table) -> npt.NDArray[np.int64]:
        return codes(_as_text(table.column(self.name)), self.classes).astype(np.int64)

    def decode(self, outputs: Array) -> list[str]:
        return [self.classes[index] for index in outputs.argmax(axis=1)]

    def to_dict(self) -> dict[str, Any]:
        return {"task": "classification", "name": self.name, "classes": list(self.classes)}


Target = NumberTarget | ClassTarget


def target_from_dict(plain: dict[str, Any]) -> Target:
    if plain["task"] == "regression":
        return NumberTarget(plain["name"], minmax_from_dict(plain["scaling"]))
    return ClassTarget(plain["name"], tuple(plain["classes"]))


def complete_target(table: Table, name: str) -> Column:
    """The target's column, which must not have missing values."""
    column = table.column(name)
    missing = column.missing
    if missing.any():
        row = int(missing.argmax()) + 1
        raise DataError(
            f"{table.source}: target {name!r} is missing (NaN) in {int(missing.sum())} rows, the first is row {row}; "
            "remove those rows"
        )
    return column


def detect_task(source: str, column: Column) -> tuple[Task, str]:
    """What a target asks for, and why: text and few whole numbers are classes.

    Args:
        source: the file, as messages name it.
        column: the target.

    Returns:
        The task, and the reason in words.

    Raises:
        DataError: the target is text of which at least half are numbers.
    """
    if not column.is_numeric:
        _refuse_unreadable_numbers(source, column)
        return "classification", "the target is text"
    different = np.unique(column.values[~np.isnan(column.values)])
    count = different.size
    if not all(float(value).is_integer() for value in different):
        return "regression", "the target holds fractions"
    if count <= 2 or (count <= _FEW_VALUES and count * 5 <= column.values.size):
        return "classification", f"the target is {count} whole numbers: {listed([number_name(v) for v in different])}"
    return "regression", f"the target is {count} different numbers"
