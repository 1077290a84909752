"""What the page needs to find the costs at any τ of its slider, for any choice of solvers, exactly.

The loss to reach, f_L + tau (f(w0) - f_L), takes few values on a problem: one for each τ of the slider and each
solver whose lowest loss may be f_L. They are ranked from the highest down. A point of a run then needs no loss: it has
the rank of the lowest value it reaches, and the page compares whole numbers where Python compared losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cmalight.bench.analysis.costs import Traces, slices_by_key, starts
from cmalight.bench.report.packing import packed


def solving_data(traces: Traces, taus: Sequence[float]) -> dict[str, Any]:
    """Columns over runs (by problem) and over points (by run).

    standing: the place of the run's lowest loss among those of its problem; f_L is the lowest standing that is shown
    targets: the rank of the loss to reach for each tau, if f_L is this run's lowest loss
    first: where the run's points begin
    """
    runs = traces.runs
    solvers = {name: place for place, name in enumerate(traces.labels.solvers)}
    problems = list(dict.fromkeys(runs["problem"]))
    numbers = {name: place for place, name in enumerate(problems)}
    points = _Points(traces)
    begins = starts(traces).to_dict()
    standing = np.zeros(len(runs), dtype=np.int64)
    targets = np.zeros((len(runs), len(taus)), dtype=np.int64)
    kept: dict[int, tuple[Any, Any]] = {}
    places = runs.groupby("problem", sort=False).indices
    keys = runs["key"].to_numpy(dtype=object)
    for problem, rows in places.items():
        good = [int(row) for row in rows if keys[row] in points.slices]
        if not good or not np.isfinite(begins[problem]):  # without f(w0) there is no loss to reach
            continue
        best = np.array([points.loss[points.slices[keys[row]]][-1] for row in good])
        reach = best[:, None] + np.asarray(taus) * (begins[problem] - best[:, None])
        levels = np.unique(reach)
        standing[good] = np.unique(best, return_inverse=True)[1].reshape(-1)
        targets[good] = _rank(levels, reach)
        for row in good:
            kept[row] = points.first_to_reach(keys[row], levels)
    counts = np.array([len(kept[row][0]) if row in kept else 0 for row in range(len(runs))], dtype=np.int64)
    order = [kept[row] for row in sorted(kept)]
    at = np.concatenate([one[0] for one in order]) if order else np.array([], dtype=np.int64)
    ranks = np.concatenate([one[1] for one in order]) if order else np.array([], dtype=np.int64)
    return {
        "problem": packed(runs["problem"].map(numbers).to_numpy(dtype=np.int64)),
        "solver": packed(runs["label"].map(solvers).to_numpy(dtype=np.int64)),
        "done": packed(runs["key"].isin(points.slices).to_numpy(dtype=np.int64)),
        "standing": packed(standing),
        "targets": packed(targets.reshape(-1)),
        "first": packed(np.concatenate([[0], np.cumsum(counts)])),
        "rank": packed(ranks),
        "seconds": packed(points.seconds[at]),
        "epochs": packed(points.epochs[at]),
        "evaluations": packed(points.evaluations[at]),
    }


def _rank(levels: Any, losses: Any) -> Any:
    """How many of the levels are at or above each loss."""
    return len(levels) - np.searchsorted(levels, losses, side="left")


class _Points:
    def __init__(self, traces: Traces) -> None:
        frame = traces.improvements
        self.loss, self.seconds = (frame[name].to_numpy(dtype=np.float64) for name in ("loss", "seconds"))
        self.epochs, self.evaluations = (frame[name].to_numpy(dtype=np.int64) for name in ("epochs", "evaluations"))
        self.slices = slices_by_key(frame)

    def first_to_reach(self, key: str, levels: Any) -> tuple[Any, Any]:
        """The points that reach a level no earlier one reached: their places and ranks."""
        place = self.slices[key]
        ranks = _rank(levels, self.loss[place])
        new = np.diff(ranks, prepend=0) > 0
        return np.flatnonzero(new) + place.start, ranks[new]
