"""From a name to arrays for training: read, split and scaled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cmalight.datasets.entry import Array, Raw, Task, training_count
from cmalight.datasets.registry import dataset_info
from cmalight.datasets.storage import locate, raw_data, values_path
from cmalight.errors import check_seed

_BLOCK_ROWS = 65_536


@dataclass(frozen=True, eq=False, repr=False)
class DataSet:
    """A data set ready for training.

    Attributes:
        name: Of the data set.
        task: "regression" or "classification".
        x_train: float32; rows of features, scaled to [0, 1] over the training part, or NCHW pixels in [0, 1].
        y_train: For regression a float32 column, scaled like the features; for classification int64 labels from 0.
        x_test: As `x_train`; values may lie a little outside [0, 1].
        y_test: As `y_train`.
        classes: Number of classes; None for regression.
        feature_names: One name per column, x0, x1, ... if the data has none; empty for images.
        class_names: One name per class; empty for regression and if classes have no names.
    """

    name: str
    task: Task
    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    classes: int | None
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]

    def __repr__(self) -> str:
        return (
            f"DataSet({self.name!r}, {self.task}, train {self.x_train.shape}, test {self.x_test.shape}, "
            f"classes={self.classes})"
        )


def load_dataset(name: str, *, seed: int = 0, test_fraction: float = 0.25, scale: bool = True) -> DataSet:
    """Load a data set, split and scaled.

    Args:
        name: A name of `known()` in any spelling. `bikes:rows=4000` takes the first rows of each part,
            `teacher:rows=1000000,features=50` generates a problem of that size, `shop.csv:target=price` reads a CSV or
            parquet file.
        seed: Of the random split; data sets with a test part of their own ignore it.
        test_fraction: Fraction of the rows for the test part, rounded up; ignored likewise.
        scale: Scale features and numeric targets to [0, 1]. Pixels from 0 to 255 are divided by 255 in any case.

    Returns:
        Arrays for training and testing.

    Raises:
        DataError: The data set is not known, cannot be found or downloaded, or is not what it should be.

    Example:
        >>> from cmalight.datasets import load_dataset
        >>> data = load_dataset("diabetes")
        >>> data.task, data.x_train.shape, data.y_test.shape
        ('regression', (331, 10), (111, 1))
    """
    entry = dataset_info(name)
    raw = raw_data(entry)
    x_train, y_train, x_test, y_test = (part[: entry.part] for part in _split(raw, seed, test_fraction))
    classes = None
    if entry.task == "classification" or raw.class_names:
        classes = entry.classes or len(raw.class_names) or int(raw.y.max()) + 1
        y_train, y_test = y_train.astype(np.int64), y_test.astype(np.int64)
    else:
        y_train, y_test = y_train[:, np.newaxis], y_test[:, np.newaxis]
        y_train, y_test = _scaled(y_train, y_test, scale=scale)
    if x_train.ndim > 2:
        pixels = np.float32(255 if x_train.dtype == np.uint8 else 1)
        x_train, x_test = x_train.astype(np.float32) / pixels, x_test.astype(np.float32) / pixels
    else:
        x_train, x_test = _scaled(x_train, x_test, scale=scale)
    return DataSet(
        name=entry.name,
        task="regression" if classes is None else "classification",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        classes=classes,
        feature_names=raw.feature_names or tuple(f"x{i}" for i in range(x_train.shape[1] if x_train.ndim == 2 else 0)),
        class_names=raw.class_names,
    )


def fetch(name: str) -> Path | None:
    """Make sure that a data set is on this machine, complete and right.

    Args:
        name: As in `load_dataset`.

    Returns:
        Where its file is, or its values in the cache; None if it needs no file.

    Raises:
        DataError: The data set is not known, cannot be found or downloaded, or is not what it should be.
    """
    entry = dataset_info(name)
    raw_data(entry)
    return (locate(entry) or values_path(entry, None)) if entry.file else None


def _split(raw: Raw, seed: int, test_fraction: float) -> tuple[Array, Array, Array, Array]:
    check_seed("seed", seed)
    if raw.x_test is not None and raw.y_test is not None:
        return raw.x, raw.y, raw.x_test, raw.y_test
    # The legacy generator is frozen: it gives the same order on every version of NumPy.
    order = np.random.RandomState(seed).permutation(len(raw.x))
    count = training_count(len(raw.x), test_fraction)
    return raw.x[order[:count]], raw.y[order[:count]], raw.x[order[count:]], raw.y[order[count:]]


def _scaled(train: Array, test: Array, *, scale: bool) -> tuple[Array, Array]:
    """Map the range of each column of the training part to [0, 1]; a constant column becomes 0."""
    low = train.min(axis=0).astype(np.float64) if scale else np.zeros(train.shape[1])
    span = train.max(axis=0) - low if scale else np.ones(train.shape[1])
    span = np.where(span > 0, span, 1.0)
    parts = [np.empty(part.shape, np.float32) for part in (train, test)]
    for part, result in zip((train, test), parts, strict=True):
        for start in range(0, len(part), _BLOCK_ROWS):  # no second table of doubles
            rows = slice(start, start + _BLOCK_ROWS)
            result[rows] = (part[rows].astype(np.float64) - low) / span
    return parts[0], parts[1]
