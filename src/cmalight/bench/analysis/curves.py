"""Losses and metrics against what was spent: the median and the quartiles over the seeds on a common grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cmalight.bench.analysis.costs import Traces, slices_by_key
from cmalight.bench.analysis.profiles import Floats

Value = Literal["loss", "test_loss", "test_accuracy"]
Axis = Literal["seconds", "epochs", "evaluations"]
AXES: tuple[Axis, ...] = ("seconds", "epochs", "evaluations")
VALUES: tuple[Value, ...] = ("loss", "test_loss", "test_accuracy")


@dataclass(frozen=True)
class Curve:
    """`low`, `median`, `high` over the runs at the places `x`; NaN before the first measurement of one of them."""

    x: Floats
    low: Floats
    median: Floats
    high: Floats
    runs: int


class Bundles:
    """The measured points of a family's solvers, quick to look up."""

    def __init__(self, traces: Traces) -> None:
        points = traces.points
        names = ("seconds", "epochs", "evaluations", *VALUES)
        self._columns = {name: points[name].to_numpy(dtype=np.float64) for name in names}
        self._slices = slices_by_key(points)
        done = traces.runs[traces.runs["status"] == "done"]
        grouped = done.groupby(["family", "label"], sort=False)["key"]
        self.keys: dict[tuple[str, str], list[str]] = {
            (str(family), str(label)): list(keys) for (family, label), keys in grouped
        }

    def curve(self, family: str, solver: str, value: Value, axis: Axis, fractions: Floats) -> Curve | None:
        """None where nothing was measured, or nothing spent."""
        pairs = [self._pair(key, value, axis) for key in self.keys.get((family, solver), ())]
        return median_curve([pair for pair in pairs if len(pair[0])], fractions)

    def _pair(self, key: str, value: Value, axis: Axis) -> tuple[Floats, Floats]:
        place = self._slices.get(key, slice(0, 0))
        x, y = self._columns[axis][place], self._columns[value][place]
        measured = np.isfinite(y)
        return x[measured], y[measured]


def fractions(count: int) -> Floats:
    """From 0 to 1, half of them evenly and half of them ever closer to 0, where the losses fall."""
    few = max(count // 2, 1)
    close = np.geomspace(1e-3, 1.0, few, endpoint=False)
    even = np.linspace(0.0, 1.0, max(count - few, 2))
    return np.unique(np.concatenate([close, even]))


def median_curve(runs: Sequence[tuple[Floats, Floats]], places: Floats) -> Curve | None:
    """At each place the last value measured so far in each run; a run that has ended keeps its last."""
    end = max((float(x[-1]) for x, _ in runs), default=0.0)
    if not end > 0:
        return None
    grid = places * end
    values = np.full((len(runs), len(grid)), np.nan)
    for row, (x, y) in zip(values, runs, strict=True):
        last = np.searchsorted(x, grid, side="right") - 1
        row[last >= 0] = y[last[last >= 0]]
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    return Curve(grid, low, median, high, len(runs))
