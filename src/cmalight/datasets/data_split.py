"""From what a source reads to what a network trains on: split, scaled, as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cmalight.datasets.entry import Array, Entry, Meaning, Raw
from cmalight.errors import DataError
from cmalight.tables.scaling import MinMax
from cmalight.tables.splitting import split_rows
from cmalight.tables.targets import Task

_BLOCK_ROWS = 65_536


@dataclass(frozen=True, eq=False, repr=False)
class DataSplit:
    """A data set ready for training.

    Attributes:
        name: of the data set.
        task: "regression" or "classification".
        x_train: float32, rows of features, or NCHW pixels in [0, 1].
        y_train: for regression a float32 column, scaled; for classification int64 labels.
        x_test: as `x_train`.
        y_test: as `y_train`.
        features: the width of x, or the pixel values of an image; the paper's d is one more for tables.
        classes: how many there are; None for regression.
        input_scaling: fitted on the training part; None where nothing was scaled.
        target_scaling: the same for the targets.
        meaning: what columns and classes are called; None where they have no names.
    """

    name: str
    task: Task
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    features: int
    classes: int | None
    input_scaling: MinMax | None
    target_scaling: MinMax | None
    meaning: Meaning | None = None

    def __repr__(self) -> str:
        return (
            f"DataSplit({self.name!r}, {self.task}, train {tuple(self.x_train.shape)}, "
            f"test {tuple(self.x_test.shape)}, classes={self.classes})"
        )


def split(entry: Entry, raw: Raw, *, seed: int, test_share: float) -> DataSplit:
    """The publisher's own test part where there is one, else a random one of `test_share`, rounded up."""
    parts = _parts(raw, seed=seed, test_share=test_share, name=entry.name)
    x_train, y_train, x_test, y_test = (part[: entry.part] for part in parts)
    features = int(np.prod(x_train.shape[1:]))
    input_scaling: MinMax | None = None
    if entry.image is None:
        input_scaling = _fitted(x_train)
        inputs = [_scaled(part, input_scaling) for part in (x_train, x_test)]
    else:
        inputs = [torch.from_numpy(np.array(part)).to(torch.float32).div_(255) for part in (x_train, x_test)]
    target_scaling: MinMax | None = None
    classes: int | None = None
    if entry.task == "regression":
        target_scaling = _fitted(y_train[:, np.newaxis])
        targets = [_scaled(part[:, np.newaxis], target_scaling) for part in (y_train, y_test)]
    else:
        classes = entry.classes or int(raw.y.max()) + 1
        targets = [_labels(part, classes, entry) for part in (y_train, y_test)]
    return DataSplit(
        name=entry.name,
        task=entry.task,
        x_train=inputs[0],
        y_train=targets[0],
        x_test=inputs[1],
        y_test=targets[1],
        features=features,
        classes=classes,
        input_scaling=input_scaling,
        target_scaling=target_scaling,
        meaning=raw.meaning,
    )


def _parts(raw: Raw, *, seed: int, test_share: float, name: str) -> tuple[Array, Array, Array, Array]:
    if raw.x_test is not None and raw.y_test is not None:
        return raw.x, raw.y, raw.x_test, raw.y_test
    train, test = split_rows(len(raw.x), test_share, seed, source=name)
    return raw.x[train], raw.y[train], raw.x[test], raw.y[test]


def _fitted(values: Array) -> MinMax:
    return MinMax(low=values.min(axis=0).astype(np.float64), high=values.max(axis=0).astype(np.float64))


def _scaled(values: Array, scaling: MinMax) -> Tensor:
    """In doubles, block by block, so that no second table of doubles is made."""
    result = torch.empty(values.shape, dtype=torch.float32)
    view = result.numpy()
    for start in range(0, len(values), _BLOCK_ROWS):
        block = values[start : start + _BLOCK_ROWS].astype(np.float64)
        view[start : start + _BLOCK_ROWS] = scaling.apply(block)
    return result


def _labels(values: Array, classes: int, entry: Entry) -> Tensor:
    labels = np.array(values, dtype=np.int64)
    if len(labels) and not (0 <= labels.min() and labels.max() < classes and np.array_equal(labels, values)):
        raise DataError(f"{entry.name} has class labels other than 0 to {classes - 1}")
    return torch.from_numpy(labels)
