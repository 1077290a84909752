"""Data sets without a download: problems made from a seed, and the small real ones that scikit-learn ships."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cmalight.datasets import generated
from cmalight.datasets.entries.entry import Entry, Meaning, Raw, Task, library
from cmalight.errors import DataError, unknown_name

_MAKERS: dict[str, tuple[Callable[..., tuple[Tensor, Tensor]], Task, str]] = {
    "teacher": (generated.teacher_network, "regression", "Teacher: the answers of a random network, with noise"),
    "least-squares": (generated.least_squares, "regression", "Least squares: a noisy linear model"),
    "logistic": (generated.logistic, "classification", "Logistic: two classes drawn from a logistic model"),
}
_NUMBERS: dict[str, type] = {
    "rows": int,
    "features": int,
    "hidden": int,
    "seed": int,
    "noise": float,
    "condition": float,
}
_TAKEN = {
    "teacher": ("rows", "features", "hidden", "noise", "seed"),
    "least-squares": ("rows", "features", "noise", "condition", "seed"),
    "logistic": ("rows", "features", "noise", "seed"),
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
        bunch = getattr(_sklearn_datasets(), self.loader)()
        columns = tuple((str(name), ()) for name in bunch.feature_names)
        classes = tuple(str(name) for name in bunch.get("target_names", ()))
        meaning = Meaning(columns, "target", classes)
        return Raw(np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target), meaning=meaning)


def _sklearn_datasets() -> Any:
    try:
        return library("sklearn.datasets")
    except ImportError as missing:
        raise ImportError(
            'this data set is part of scikit-learn, which is not installed: pip install "cmalight[data]"'
        ) from missing


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
        encoding=f"numbers to choose: {', '.join(_TAKEN[kind])}, as in {kind}:rows=1000000,features=50,seed=3",
        licence="as this package",
    )


def _number(kind: str, part: str) -> tuple[str, float]:
    key, equals, value = (piece.strip().lower() for piece in part.partition("="))
    if not equals:
        raise DataError(f"{part!r} is not of the form name=number; {kind} takes {', '.join(_TAKEN[kind])}")
    if key not in _TAKEN[kind]:
        raise DataError(unknown_name(f"number of {kind}", key, _TAKEN[kind]))
    try:
        return key, _NUMBERS[key](value)
    except ValueError as error:
        raise DataError(f"{key}={value}: a {'whole ' if _NUMBERS[key] is int else ''}number is needed") from error


def _shipped(name: str, title: str, task: Task, shape: tuple[int, int], classes: int | None, citation: str) -> Entry:
    return Entry(
        name=name,
        title=title,
        group="embedded",
        task=task,
        rows=shape[0],
        features=shape[1],
        classes=classes,
        source=Shipped(f"load_{name.replace('-', '_')}"),
        encoding="as scikit-learn ships it",
        licence="BSD-3-Clause, with scikit-learn" if name == "diabetes" else "CC BY 4.0, from UCI, with scikit-learn",
        citation=citation,
        homepage="https://scikit-learn.org/stable/datasets/toy_dataset.html",
    )


SHIPPED = (
    _shipped(
        "diabetes",
        "Diabetes: the progression of the disease within a year",
        "regression",
        (442, 10),
        None,
        "B. Efron, T. Hastie, I. Johnstone, R. Tibshirani (2004), Least angle regression, Annals of Statistics 32, "
        "407-499",
    ),
    _shipped(
        "digits",
        "Digits: handwritten, in 8 x 8 pixels",
        "classification",
        (1_797, 64),
        10,
        "E. Alpaydin, C. Kaynak (1998), Optical recognition of handwritten digits, UCI Machine Learning Repository, "
        "doi:10.24432/C50P49",
    ),
    _shipped(
        "breast-cancer",
        "Breast cancer: benign or malignant, from the nuclei of cells",
        "classification",
        (569, 30),
        2,
        "W. N. Street, W. H. Wolberg, O. L. Mangasarian (1993), Nuclear feature extraction for breast tumor diagnosis, "
        "Proc. SPIE 1905, 861-870",
    ),
    _shipped(
        "wine",
        "Wine: three growers, from chemistry",
        "classification",
        (178, 13),
        3,
        "S. Aeberhard, M. Forina (1992), Wine, UCI Machine Learning Repository, doi:10.24432/C5PC7J",
    ),
)

GENERATED_NAMES = tuple(_MAKERS)
