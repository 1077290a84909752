"""Data sets without a download: problems made from a seed, and the small real ones that scikit-learn ships."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from cmalight.datasets import generated
from cmalight.datasets.entry import Entry, Meaning, Raw
from cmalight.errors import DataError, needed, unknown_name
from cmalight.tables.targets import Task

_MAKERS: dict[str, tuple[Callable[..., tuple[Tensor, Tensor]], Task, str]] = {
    "teacher": (generated.teacher_network, "regression", "Teacher: the answers of a random network, with noise"),
    "least-squares": (generated.least_squares, "regression", "Least squares: a noisy linear model"),
    "logistic": (generated.logistic, "classification", "Logistic: two classes drawn from a logistic model"),
}
_DEFAULT_ROWS, _DEFAULT_FEATURES = 20_000, 20


@dataclass(frozen=True)
class Generated:
    """A problem of `generated.py` with its numbers."""

    kind: str
    numbers: tuple[tuple[str, float], ...]

    def read(self, files: Mapping[str, Path]) -> Raw:  # noqa: ARG002
        x, y = _MAKERS[self.kind][0](**dict(self.numbers))
        return Raw(x.numpy(), y.reshape(-1).numpy())


@dataclass(frozen=True)
class Shipped:
    """A data set inside scikit-learn, by the name of its loader."""

    loader: str

    def read(self, files: Mapping[str, Path]) -> Raw:  # noqa: ARG002
        with needed("this data set is part of scikit-learn, which is not installed", "data"):
            import sklearn.datasets  # type: ignore[import-untyped]
        bunch = getattr(sklearn.datasets, self.loader)()
        columns = tuple((str(name), ()) for name in bunch.feature_names)
        classes = tuple(str(name) for name in bunch.get("target_names", ()))
        meaning = Meaning(columns, "target", classes)
        return Raw(np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target), meaning=meaning)


def generated_entry(name: str) -> Entry | None:
    """`teacher`, or with numbers `teacher:rows=1000000,features=50,seed=3`; None if no generated problem is meant."""
    kind, colon, text = name.partition(":")
    kind = kind.strip().lower().replace("_", "-")
    if kind not in _MAKERS:
        return None
    numbers: dict[str, float] = {"rows": _DEFAULT_ROWS, "features": _DEFAULT_FEATURES}
    for part in text.split(",") if colon else ():
        key, value = _number(kind, part)
        numbers[key] = value
    _, task, title = _MAKERS[kind]
    rows, features = int(numbers["rows"]), int(numbers["features"])
    if rows < 2 or features < 1:
        raise DataError(f"{name}: rows must be 2 or more and features 1 or more")
    return Entry(
        name=name.strip().lower() if colon else kind,
        title=title,
        group="generated",
        task=task,
        rows=rows,
        features=features,
        classes=2 if task == "classification" else None,
        source=Generated(kind, tuple(numbers.items())),
        encoding=f"numbers to choose: {', '.join(_taken(kind))}, as in {kind}:rows=1000000,features=50,seed=3",
        licence="as this package",
    )


def _taken(kind: str) -> dict[str, type]:
    """The numbers that a problem is made from, by name, and what each has to be."""
    parameters = inspect.signature(_MAKERS[kind][0], eval_str=True).parameters
    return {name: one.annotation for name, one in parameters.items()}


def _number(kind: str, part: str) -> tuple[str, float]:
    taken = _taken(kind)
    key, equals, value = (piece.strip().lower() for piece in part.partition("="))
    if not equals:
        raise DataError(f"{part!r} is not of the form name=number; {kind} takes {', '.join(taken)}")
    if key not in taken:
        raise DataError(unknown_name(f"number of {kind}", key, taken))
    try:
        return key, taken[key](value)
    except ValueError as error:
        raise DataError(f"{key}={value}: a {'whole ' if taken[key] is int else ''}number is needed") from error


GENERATED_NAMES = tuple(_MAKERS)
