"""Min-max scaling, fitted on one part of the data and applied to any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


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
    def _span(self) -> Array:
        span = self.high - self.low
        return np.where(span > 0, span, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for files."""
        return {"low": self.low.tolist(), "high": self.high.tolist()}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> MinMax:
        return cls(low=np.asarray(plain["low"], dtype=np.float64), high=np.asarray(plain["high"], dtype=np.float64))
