"""Data of the user's own: a CSV or parquet file, or a function that returns arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cmalight.datasets.entry import Array, Raw, Task
from cmalight.datasets.readers import encode
from cmalight.errors import DataError, unknown_name

_MOST_CATEGORIES = 1000


@dataclass(frozen=True)
class Table:
    """A comma-separated file with a header, or a parquet file: numbers as they are, then text one-hot."""

    file: Path
    target: str
    task: Task | None = None

    def read(self, path: Path) -> Raw:  # noqa: ARG002
        """Read and encode the table."""
        frame = self._frame()
        if self.target not in frame.columns:
            raise DataError(f"{self.file}: {unknown_name('column', self.target, map(str, frame.columns))}")
        missing = frame.isna().sum()
        if missing.any():
            raise DataError(f"{self.file}: column {missing.idxmax()!r} lacks {missing.max()} values; fill or drop them")
        target = frame.pop(self.target)
        text = list(frame.select_dtypes(exclude=["number", "bool"]))
        for name in text:
            if not pd.api.types.is_string_dtype(frame[name]) or frame[name].nunique() > _MOST_CATEGORIES:
                raise DataError(
                    f"{self.file}: column {name!r} is neither numbers nor text of at most {_MOST_CATEGORIES} values; "
                    "drop it, or register a function that encodes it"
                )
        x, names = encode(frame[[*frame.columns.drop(text), *text]], text)
        return _with_labels(x, target.to_numpy(), self.task, names=names)

    def _frame(self) -> pd.DataFrame:
        if not self.file.is_file():
            raise DataError(f"{self.file} is not a file; check the path")
        try:
            is_parquet = self.file.suffix.lower() == ".parquet"
            return pd.read_parquet(self.file) if is_parquet else pd.read_csv(self.file, low_memory=False)
        except (ValueError, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise DataError(
                f"{self.file} cannot be read ({reason}); expected a CSV file with a header, or parquet"
            ) from error


@dataclass(frozen=True)
class Arrays:
    """A function that returns `(x, y)` or `(x, y, x_test, y_test)`."""

    make: Callable[[], tuple[Any, ...]]
    task: Task | None = None

    def read(self, path: Path) -> Raw:  # noqa: ARG002
        """Call the function and check what it returns."""
        arrays = [np.asarray(one) for one in self.make()]
        if len(arrays) not in (2, 4) or any(one.ndim < 2 or one.dtype.kind not in "biuf" for one in arrays[::2]):
            raise DataError(
                f"{self.make!r} returned arrays of the shapes {[one.shape for one in arrays]}; expected x, y or x, y, "
                "x_test, y_test, where x are numbers with one row per sample"
            )
        x, targets = arrays[0], [one.reshape(-1) for one in arrays[1::2]]
        raw = _with_labels(x, np.concatenate(targets), self.task)  # the test part may lack a class
        return raw if len(arrays) == 2 else replace(raw, y=raw.y[: len(x)], x_test=arrays[2], y_test=raw.y[len(x) :])


def _with_labels(x: Array, y: Array, task: Task | None, *, names: tuple[str, ...] = ()) -> Raw:
    """Return x and y; the labels of a classification become their ranks, from 0."""
    if task == "regression" and y.dtype.kind not in "biuf":
        raise DataError(f"the target holds {y[0]!r}; regression needs numbers, classification takes text")
    if task == "classification" or (task is None and y.dtype.kind not in "iuf"):
        classes, ranks = np.unique(y.astype(str) if y.dtype.kind == "O" else y, return_inverse=True)
        return Raw(x, ranks, feature_names=names, class_names=tuple(map(str, classes)))
    return Raw(x, y, feature_names=names)
