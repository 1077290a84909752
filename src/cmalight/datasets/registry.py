"""From a name to its entry: the catalogue, generated problems, and data of the user's own."""

from __future__ import annotations

import importlib
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
from cmalight.datasets.own import Arrays, Table
from cmalight.datasets.readers import Cifar, Delimited, Keel, Matrix
from cmalight.errors import DataError, check_choice, needed, unknown_name

_GENERATED: dict[str, tuple[Callable[..., tuple[Tensor, Tensor]], Task, str]] = {
    "teacher": (generated.teacher_network, "regression", "Teacher: the outputs of a random network, with noise"),
    "least-squares": (generated.least_squares, "regression", "Least squares: a noisy linear model"),
    "logistic": (generated.logistic, "classification", "Logistic: two classes drawn from a logistic model"),
}
_TABLE_SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True)
class Shipped:
    """A data set inside scikit-learn, by the name of its loader."""

    loader: str

    def read(self, path: Path) -> Raw:  # noqa: ARG002
        """Ask scikit-learn for it."""
        with needed("this data set is part of scikit-learn, which is not installed", "data"):
            import sklearn.datasets  # type: ignore[import-untyped]
        bunch = getattr(sklearn.datasets, self.loader)()
        features = tuple(str(name) for name in bunch.feature_names)
        classes = tuple(str(name) for name in bunch.get("target_names", ()))
        return Raw(np.asarray(bunch.data, np.float64), np.asarray(bunch.target), None, None, features, classes)


@dataclass(frozen=True)
class Generated:
    """A problem of `generated.py` with its numbers."""

    kind: str
    numbers: tuple[tuple[str, float], ...]

    def read(self, path: Path) -> Raw:  # noqa: ARG002
        """Make the rows."""
        x, y = _GENERATED[self.kind][0](**dict(self.numbers))
        return Raw(x.numpy(), y.reshape(-1).numpy(), feature_names=tuple(f"x{i}" for i in range(x.shape[1])))


_FORMATS: dict[str, Callable[..., Any]] = {
    "cifar": Cifar,
    "delimited": Delimited,
    "keel": Keel,
    "matrix": Matrix,
    "shipped": Shipped,
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
    base, _, tail = str(name).partition(":")
    if Path(base).suffix.lower() in _TABLE_SUFFIXES:
        return _table_entry(base, _options(name, tail, {"target": str, "task": str}))
    if tail and "=" not in tail and base.replace(".", "").isidentifier():
        return Entry(name=name, task=None, source=Arrays(_imported(name)))
    kinds = {_squashed(kind): kind for kind in _GENERATED}
    if _squashed(base) in kinds:
        return _generated_entry(kinds[_squashed(base)], name, tail)
    entries = {_squashed(entry.name): entry for entry in (*_CATALOGUE.values(), *_registered.values())}
    found = entries.get(_squashed(base))
    if found is None:
        raise DataError(unknown_name("data set", name, known()))
    rows = _options(name, tail, {"rows": int}).get("rows")
    if rows is not None and rows < 1:
        raise DataError(f"Invalid rows in {name!r}; expected a whole number >= 1")
    return found if rows is None else replace(found, name=f"{found.name}:rows={rows}", part=rows)


def register(
    name: str,
    source: str | Path | Callable[[], tuple[Any, ...]],
    *,
    target: str | None = None,
    task: Task | None = None,
    title: str = "",
) -> Entry:
    """Give a data set of your own a name, for this process; registering the name again replaces it.

    A spec of the test-bed, whose runs have processes of their own, names such data as `shop.csv:target=price` or as
    `package.module:function` instead.

    Args:
        name: Its name.
        source: A CSV or parquet file, or a function without arguments that returns arrays `(x, y)` or
            `(x, y, x_test, y_test)`.
        target: Column to predict; needed for a file.
        task: "regression" or "classification"; by default text and booleans are classes, numbers are not.
        title: What it is, in one line.

    Returns:
        Its entry.

    Raises:
        ValueError: The name belongs to a data set of the package, or the arguments do not fit each other.

    Example:
        >>> import numpy as np
        >>> from cmalight.datasets import load_dataset, register
        >>> x = np.linspace(0, 6, 1000)
        >>> entry = register("sine", lambda: (x[:, np.newaxis], np.sin(x)))
        >>> load_dataset("sine").x_train.shape
        (750, 1)
    """
    if not _squashed(name) or _squashed(name) in {_squashed(taken) for taken in (*_CATALOGUE, *_GENERATED)}:
        raise ValueError(f"{name!r} is the name of a data set of the package; choose another")
    if callable(source):
        check_choice("task", task, (None, *get_args(Task)))
        entry = Entry(name=name, task=task, source=Arrays(source, task), title=title)
    else:
        given = {"target": target, "task": task}
        entry = _table_entry(str(source), {key: value for key, value in given.items() if value is not None})
        entry = replace(entry, name=name, title=title)
    _registered[_squashed(name)] = entry
    return entry


def _table_entry(path: str, options: dict[str, Any]) -> Entry:
    if "target" not in options:
        raise DataError(f"{path} needs the column to predict, as in {path}:target=price")
    task = options.get("task")
    check_choice("task", task, (None, *get_args(Task)))
    name = f"{path}:{','.join(f'{key}={value}' for key, value in options.items())}"
    return Entry(name=name, task=task, source=Table(Path(path), options["target"], task))


def _generated_entry(kind: str, name: str, tail: str) -> Entry:
    make, task, title = _GENERATED[kind]
    taken = {key: one.annotation for key, one in inspect.signature(make, eval_str=True).parameters.items()}
    numbers = {"rows": 20_000, "features": 20, **_options(name, tail, taken)}
    if numbers["rows"] < 2 or numbers["features"] < 1:
        raise DataError(f"{name}: rows must be 2 or more and features 1 or more")
    return Entry(
        name=f"{kind}:{tail.replace(' ', '').lower()}" if tail else kind,
        task=task,
        source=Generated(kind, tuple(numbers.items())),
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
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in taken:
            raise DataError(f"{unknown_name('option', key, taken)} (in {name!r}, as in name:key=value,key=value)")
        try:
            options[key] = taken[key](value)
        except ValueError as error:
            kind = "whole number" if taken[key] is int else "number"
            raise DataError(f"Invalid {key} value in {name!r}: {value!r}; expected a {kind}") from error
    return options


def _imported(name: str) -> Callable[[], tuple[Any, ...]]:
    module, _, function = name.partition(":")
    try:
        found: Callable[[], tuple[Any, ...]] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise DataError(f"{name} cannot be imported ({error}); expected package.module:function") from error
    return found


def _squashed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
