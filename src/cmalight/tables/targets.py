"""What is to be predicted: a number or a class, learnt from the training rows, and applied to any others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from cmalight.errors import DataError
from cmalight.tables.encoding import codes
from cmalight.tables.scaling import Array, MinMax, minmax_from_dict
from cmalight.tables.splitting import Rows
from cmalight.tables.table import (
    FEW_VALUES,
    Column,
    Table,
    are_codes,
    first_unreadable,
    is_number_like,
    listed,
    number_name,
    refuse_large,
)

Task = Literal["regression", "classification"]

_MOST_CLASSES = 1000


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
        refuse_large(table, column)
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
            only = column.as_text()[0]
            raise DataError(f"{where} is {only!r} in all rows, one class only; expected two or more")
        if len(different) > _MOST_CLASSES:
            raise DataError(
                f"{where} has {len(different)} different values, too many for classes; is the task regression?"
            )
        return cls(name, tuple(number_name(c) if column.is_numeric else c for c in different))

    def encode(self, table: Table) -> npt.NDArray[np.int64]:
        return codes(table.column(self.name).as_text(), self.classes).astype(np.int64)

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
    if count <= 2 or (count <= FEW_VALUES and count * 5 <= column.values.size):
        return "classification", f"the target is {count} whole numbers: {listed([number_name(v) for v in different])}"
    return "regression", f"the target is {count} different numbers"


def _refuse_unreadable_numbers(source: str, target: Column) -> None:
    cells = [str(cell) for cell in target.values]
    if not are_codes(cells) and 2 * sum(is_number_like(cell) for cell in cells) >= len(cells):
        odd = first_unreadable(cells)
        raise DataError(
            f"{source}: target {target.name!r} holds numbers, but row {cells.index(odd) + 1} holds {odd!r}; write "
            "1234.5, or name the decimal sign (decimal ','), or say that they name classes (task 'classification')"
        )
