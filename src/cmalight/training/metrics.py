"""Figures of merit, gathered over batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from cmalight.errors import unknown_name


class Metric(Protocol):
    """Gathers over batches; `value` is the figure for all of them together."""

    def update(self, output: Tensor, target: Tensor) -> None: ...
    def value(self) -> float: ...


class MeanSquaredError:
    """The mean over all elements."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0

    def update(self, output: Tensor, target: Tensor) -> None:
        self._sum += float((output.reshape(target.shape) - target).double().square().sum())
        self._count += target.numel()

    def value(self) -> float:
        return self._sum / self._count if self._count else math.nan


class R2:
    """1 − (residual sum of squares)/(total sum of squares), each output's own mean; the mean over outputs."""

    def __init__(self) -> None:
        self._count = 0
        self._residual: Tensor | float = 0.0
        self._mean: Tensor | float = 0.0
        self._total: Tensor | float = 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        target = target.double().reshape(len(target), -1)
        self._residual = self._residual + (output.double().reshape(len(target), -1) - target).square().sum(0)
        # Welford's update for a whole batch: no cancellation where the mean is large against the spread.
        count, mean = len(target), target.mean(0)
        shift = mean - self._mean
        weight = self._count * count / (self._count + count)
        self._total = self._total + (target - mean).square().sum(0) + shift.square() * weight
        self._mean = self._mean + shift * count / (self._count + count)
        self._count += count

    def value(self) -> float:
        return float((1 - torch.as_tensor(self._residual) / torch.as_tensor(self._total)).mean())


class Accuracy:
    """The share of samples whose largest output is that of their class; one output means two classes, cut at 0."""

    def __init__(self) -> None:
        self._right = 0
        self._count = 0

    def update(self, output: Tensor, target: Tensor) -> None:
        if output.dim() > 1 and output.shape[1] > 1:
            predicted = output.argmax(1)
            wanted = target.argmax(1) if target.dim() > 1 and target.shape == output.shape else target
        else:
            predicted, wanted = output.reshape(-1) > 0, target.reshape(-1) > 0.5
        self._right += int((predicted == wanted).sum())
        self._count += wanted.numel()

    def value(self) -> float:
        return self._right / self._count if self._count else math.nan


METRICS: dict[str, Callable[[], Metric]] = {"mse": MeanSquaredError, "r2": R2, "accuracy": Accuracy}


def make_metrics(names: Sequence[str]) -> dict[str, Metric]:
    """Fresh metrics by name."""
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ValueError(unknown_name("metric", unknown[0], METRICS))
    return {name: METRICS[name]() for name in names}
