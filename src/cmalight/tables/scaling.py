"""Scaling of numbers, fitted on one part of the data and applied to any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
ScalingKind = Literal["minmax", "standard", "robust"]
SCALING_KINDS: tuple[ScalingKind, ...] = get_args(ScalingKind)

_BEND = 3.0


@dataclass(frozen=True)
class MinMax:
    """Maps each column's [low, high] to [0, 1]; a column that is all the same becomes 0."""

    low: Array
    high: Array

    @classmethod
    def fitted_on(cls, values: Array) -> MinMax:
        return cls(low=values.min(axis=0), high=values.max(axis=0))

    def apply(self, values: Array) -> Array:
        return (values - self.low) / self._span

    def undo(self, scaled: Array) -> Array:
        return scaled * self._span + self.low

    @property
    def columns(self) -> int:
        return len(self.low)

    @property
    def _span(self) -> Array:
        return _positive(self.high - self.low)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for files."""
        return {"kind": "minmax", "low": self.low.tolist(), "high": self.high.tolist()}


@dataclass(frozen=True)
class Centred:
    """Moves each column's centre to 0 and divides by its spread; a column that is all the same becomes 0.

    Attributes:
        centre: the mean, or the median where the scaling is bent.
        spread: the standard deviation, or the distance between the quartiles where the scaling is bent.
        bent: whether values far out are drawn in, smoothly, to between -3 and 3, so that no outlier rules a column.
    """

    centre: Array
    spread: Array
    bent: bool

    @classmethod
    def fitted_on(cls, values: Array, *, bent: bool) -> Centred:
        if not bent or not len(values):
            return cls(values.mean(axis=0), _positive(values.std(axis=0)), bent)
        first, centre, third = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
        # Where more than half of a column is one value, the quartiles say nothing of the others.
        spread = np.where(third > first, third - first, (values.max(axis=0) - values.min(axis=0)) / 2)
        return cls(centre, _positive(spread), bent)

    def apply(self, values: Array) -> Array:
        scaled = (values - self.centre) / self.spread
        return scaled / np.sqrt(1 + np.square(scaled / _BEND)) if self.bent else scaled

    @property
    def columns(self) -> int:
        return len(self.centre)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for files."""
        kind = "robust" if self.bent else "standard"
        return {"kind": kind, "centre": self.centre.tolist(), "spread": self.spread.tolist()}


Scaling = MinMax | Centred


def fitted_scaling(values: Array, kind: ScalingKind) -> Scaling:
    """The scaling of a kind, fitted on the rows of `values`."""
    return MinMax.fitted_on(values) if kind == "minmax" else Centred.fitted_on(values, bent=kind == "robust")


def scaling_from_dict(plain: dict[str, Any]) -> Scaling:
    """What `to_dict` was made from.

    Raises:
        ValueError: the lists do not fit each other, or a scale is not positive.
    """
    kind = plain["kind"]
    names = ("low", "high") if kind == "minmax" else ("centre", "spread")
    first, second = (np.asarray(plain[name], dtype=np.float64) for name in names)
    if kind not in SCALING_KINDS or first.ndim != 1 or first.shape != second.shape:
        raise ValueError("the scaling is not one")
    if (first > second).any() if kind == "minmax" else (second <= 0).any():
        raise ValueError("a scaling ends below where it begins")
    return MinMax(first, second) if kind == "minmax" else Centred(first, second, kind == "robust")


def minmax_from_dict(plain: dict[str, Any]) -> MinMax:
    """A min-max scaling that `to_dict` wrote.

    Raises:
        ValueError: it is of another kind.
    """
    scaling = scaling_from_dict(plain)
    if not isinstance(scaling, MinMax):
        raise ValueError("the scaling of the target is not min-max")
    return scaling


def _positive(spread: Array) -> Array:
    return np.where(spread > 0, spread, 1.0)
