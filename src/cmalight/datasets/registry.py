"""From a name to its entry: the catalogue, generated problems, and data of the user's own."""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import numpy as np
from torch import Tensor

from cmalight.datasets import generated
from cmalight.datasets.entry import Entry, Raw, Task
from cmalight.datasets.readers import Cifar, Delimited, Keel, Matrix
from cmalight.datasets.user import Arrays, Table
from cmalight.errors import DataError, check_choice, check_whole, needed, unknown_name

_GENERATED: dict[str, tuple[Callable[..., tuple[Tensor, Tensor]], Task, str]] = {
    "teacher": (generated.teacher_network, "regression", "Teacher: the outputs of a random network, with noise"),
    "least-squares": (generated.least_squares, "regression", "Least squares: a noisy linear model"),
    "logistic": (generated.logistic, "classification", "Logistic: two classes drawn from a logistic model"),
}


@dataclass(frozen=True)
class Shipped:
    """A data set inside scikit-learn, by the name of its loader."""

    loader: str

    def read(self, path: Path) -> Raw:  # noqa: ARG002
        """Ask scikit-learn for it."""
        with needed("this data set is part of scikit-learn, which is not installed", "data"):
            import sklearn.datasets  # type: ignore[import-untyped]
        bunch = getattr(sklearn.datasets, self.loader)()
        features, classes = (tuple(map(str, bunch.get(key, ()))) for key in ("feature_names", "target_names"))
        return Raw(np.asarray(bunch.data, np.float64), np.asarray(bunch.target), None, None, features, classes)


_FORMATS: dict[str, Callable[..., Any]] = {
    kind.__name__.lower(): kind for kind in (Cifar, Delimited, Keel, Matrix, Shipped)
}


def _catalogue() -> dict[str, Entry]:
    text = (resources.files(__package__) / "catalogue.toml").read_text(encoding="utf-8")
    entries = {}
    for name, table in tomllib.loads(text).items():
        source = table.pop("source")
        read_by = _FORMATS[source.pop("format")](**_with_tuples(source))
        entries[name] = Entry(name=name, source=read_by, **_with_tuples(table))
    return entries


def _with_tuples(table: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


_CATALOGUE = _catalogue()
_registered: dict[str, Entry] = {}


def known() -> list[str]:
    """Return the names of all data sets: the paper's, CIFAR, embedded, generated, and those registered."""
    return [*_CATALOGUE, *_GENERATED, *_registered]


def dataset_info(name: str) -> Entry:
    """Return what is known of a data set without reading it.

    Args:
        name: A name of `known()`, in any spelling, or one of the other forms that `load_dataset` takes.

    Returns:
        Its entry.

    Raises:
        DataError: There is no such data set.
    """
    base, _, tail = name.partition(":")
    if base.lower().endswith((".csv", ".parquet")):
        return _table_entry(name, base, tail)
    found = {_squashed(one): one for one in known()}.get(_squashed(base))
    if found is None:
        raise DataError(unknown_name("data set", name, known()))
    if found in _GENERATED:
        return _generated_entry(found, name, tail)
    entry = _registered.get(found) or _CATALOGUE[found]
    rows = _options(name, tail, {"rows": int}).get("rows")
    if rows is None:
        return entry
    check_whole("rows", rows, least=1)
    return replace(entry, name=f"{entry.name}:rows={rows}", part=rows)


def register(name: str, make: Callable[[], tuple[Any, ...]], *, task: Task | None = None) -> Entry:
    """Give a data set of your own a name, for this process; registering the name again replaces it.

    A file needs no such name: `load_dataset("shop.csv:target=price")`. A spec of the test-bed, whose runs have
    processes of their own, names a function as `file.py:name`.

    Args:
        name: Its name.
        make: A function without arguments that returns arrays `(x, y)` or `(x, y, x_test, y_test)`.
        task: "regression" or "classification"; by default text and booleans are classes, numbers are not.

    Returns:
        Its entry.

    Raises:
        ValueError: The name belongs to a data set of the package, or the task is neither of the two.

    Example:
        >>> import numpy as np
        >>> from cmalight.datasets import load_dataset, register
        >>> x = np.linspace(0, 6, 1000)
        >>> entry = register("sine", lambda: (x[:, np.newaxis], np.sin(x)))
        >>> load_dataset("sine").x_train.shape
        (750, 1)
    """
    if _squashed(name) in {"", *map(_squashed, (*_CATALOGUE, *_GENERATED))}:
        raise ValueError(f"{name!r} is the name of a data set of the package; choose another")
    check_choice("task", task, (None, *get_args(Task)))
    _registered[name] = Entry(name=name, task=task, source=Arrays(make, task))
    return _registered[name]


def _table_entry(name: str, file: str, tail: str) -> Entry:
    options = _options(name, tail, {"target": str, "task": str})
    if "target" not in options:
        raise DataError(f"{file} needs the column to predict, as in {file}:target=price")
    task = options.get("task")
    check_choice("task", task, (None, *get_args(Task)))
    return Entry(name=name, task=task, source=Table(Path(file), options["target"], task))


def _generated_entry(kind: str, name: str, tail: str) -> Entry:
    make, task, title = _GENERATED[kind]
    taken = {key: one.annotation for key, one in inspect.signature(make, eval_str=True).parameters.items()}
    numbers = {"rows": 20_000, "features": 20, **_options(name, tail, taken)}
    return Entry(
        name=f"{kind}:{tail.replace(' ', '').lower()}" if tail else kind,
        task=task,
        source=Arrays(functools.partial(make, **numbers), task),
        title=title,
        rows=numbers["rows"],
        features=numbers["features"],
        classes=2 if task == "classification" else None,
        encoding=f"numbers to choose: {', '.join(taken)}, as in {kind}:rows=1000000,features=50,seed=3",
        licence="as this package",
    )


def _options(name: str, tail: str, taken: dict[str, type]) -> dict[str, Any]:
    """Read `key=value,key=value` after the colon of a name."""
    options = {}
    for part in tail.split(",") if tail else ():
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in taken:
            raise DataError(f"{name}: {unknown_name('option', key, taken)}")
        try:
            options[key] = taken[key](value)
        except ValueError as error:
            kind = "whole number" if taken[key] is int else "number"
            raise DataError(f"Invalid {key} value in {name!r}: {value!r}; expected a {kind}") from error
    return options


def _squashed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
