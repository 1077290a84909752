"""From epochs to costs: when a run had solved its problem, to within τ, and what it had spent by then."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from cmalight.bench.analysis.labels import Labelled, labelled
from cmalight.bench.store.frames import Results
from cmalight.errors import check_share, unknown_name

if TYPE_CHECKING:
    import pandas

Measure = Literal["seconds", "epochs", "evaluations", "work"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
Problems = Literal["start", "pair"]
# What counts as one in profiles, areas and wins.
PROBLEMS: dict[Problems, str] = {
    "start": "a data set, a network and a seed",
    "pair": "a pair of data set and network; what it costs is the median over its starts",
}
# A full evaluation is a forward pass over the data; an epoch is a forward and a backward pass, which is about three.
EVALUATION_IN_EPOCHS = 1 / 3
_POINT_COLUMNS = ["key", "seconds", "epochs", "evaluations", "loss", "test_loss", "test_accuracy"]


@dataclass(frozen=True)
class Traces:
    """The runs that ended well as points: what was spent, and the true loss there.

    Attributes:
        labels: every run, those that failed too.
        points: one row per measurement, in order: the start, the measured epochs, the end.
        improvements: the points that are lower than all before them in their run.
    """

    labels: Labelled
    points: pandas.DataFrame
    improvements: pandas.DataFrame

    @property
    def runs(self) -> pandas.DataFrame:
        """One row per run, with the names that tables and figures give it."""
        return self.labels.runs


def traces(results: Results) -> Traces:
    """The points of all runs, prepared once for many costs.

    Args:
        results: what `load` gave.

    Returns:
        What `solution_costs` takes in their place.
    """
    labels = labelled(results.runs)
    points = _points(labels.runs, results.epochs)
    return Traces(labels, points, _improvements(points))


def solution_costs(
    source: Results | Traces,
    tau: float,
    *,
    measure: Measure = "seconds",
    solvers: Collection[str] | None = None,
    complete: bool = True,
    problems: Problems = "start",
) -> pandas.DataFrame:
    """What it cost each solver to solve each problem: one row per problem, one column per solver, inf for never.

    A problem is a data set, a network and a seed. It is solved at the first moment with a measured true training loss
    of at most f_L + tau (f(w0) - f_L), where f_L is the lowest that any of `solvers` measured on it.

    Args:
        source: what `load` or `traces` gave.
        tau: how close to the best counts as solved.
        measure: "seconds" of training, "epochs", full "evaluations", or "work", epochs and a third of the evaluations.
        solvers: all others are as if they had never run.
        complete: leave out problems that one of the solvers has no result of; otherwise their costs are NaN.
        problems: a "pair" of data set and network costs the median over those of its starts that count.

    Returns:
        The costs.

    Raises:
        ValueError: for a solver that has no run.
    """
    import pandas

    check_share("tau", tau)
    if measure not in MEASURES:
        raise ValueError(unknown_name("measure", measure, MEASURES))
    check_problems(problems)
    found = source if isinstance(source, Traces) else traces(source)
    runs = _chosen(found.labels, solvers)
    targets = _targets(found, runs, tau)
    points = found.improvements.merge(targets, left_on="key", right_index=True)
    solved = points[points["loss"] <= points["target"]].drop_duplicates("key").set_index("key")
    spent = solved[measure] if measure != "work" else solved["epochs"] + solved["evaluations"] * EVALUATION_IN_EPOCHS
    runs = runs.assign(cost=runs["key"].map(spent.astype("float64")).fillna(np.inf))
    table: pandas.DataFrame = runs.pivot(index="problem", columns="label", values="cost")
    order = [one for one in found.labels.solvers if one in table.columns]
    names = pandas.unique(runs["problem"])
    table = table.reindex(index=pandas.Index(names, name="problem"), columns=pandas.Index(order, name="solver"))
    return counted(table.dropna() if complete else table, found, problems)


def check_problems(problems: str) -> None:
    """Refuses what is no kind of problem."""
    if problems not in PROBLEMS:
        raise ValueError(unknown_name("kind of problems", problems, PROBLEMS))


def counted(costs: pandas.DataFrame, found: Traces, problems: Problems) -> pandas.DataFrame:
    """The costs of starts as they are, or of pairs of data set and network: the median over the starts of each.

    Args:
        costs: one row per start.
        found: the runs that they are of.
        problems: what a row shall stand for.

    Returns:
        One row per problem.
    """
    if problems == "start":
        return costs
    family = found.runs.drop_duplicates("problem").set_index("problem")["family"]
    table: pandas.DataFrame = costs.groupby(family.reindex(costs.index), sort=False).median()
    named: pandas.DataFrame = table.rename_axis(index="problem")
    return named


def _chosen(labels: Labelled, solvers: Collection[str] | None) -> pandas.DataFrame:
    if solvers is None:
        return labels.runs
    for name in solvers:
        if name not in labels.solvers:
            raise ValueError(unknown_name("solver", name, labels.solvers))
    return labels.runs[labels.runs["label"].isin(list(solvers))]


def _targets(found: Traces, runs: pandas.DataFrame, tau: float) -> pandas.DataFrame:
    """The loss to reach, by key."""
    measured = found.runs.set_index("key")["problem"]
    best = found.improvements.drop_duplicates("key", keep="last").set_index("key")["loss"]
    shown = best[best.index.isin(runs["key"])]
    lowest = shown.groupby(measured.reindex(shown.index)).min()
    start = starts(found)
    targets = lowest + tau * (start.reindex(lowest.index) - lowest)
    by_key = runs.set_index("key")["problem"].map(targets)
    return by_key.rename("target").to_frame()


def starts(found: Traces) -> pandas.Series[float]:
    """f(w0) by problem. All solvers of a problem start from the same weights; of rounding differences the largest."""
    return found.runs[found.runs["status"] == "done"].groupby("problem")["initial_loss"].max()


def _points(runs: pandas.DataFrame, epochs: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    done = runs[runs["status"] == "done"]
    # An epoch that the end cut off counts as a whole one; all other ends are between two epochs.
    cut_off = done["ended_by"].isin(["time_limit", "interrupted"]).astype("int64")
    start = pandas.DataFrame({"key": done["key"], "place": -1, "loss": done["initial_loss"]}).assign(
        seconds=0.0, epochs=0, evaluations=0, test_loss=np.nan, test_accuracy=np.nan
    )
    end = pandas.DataFrame(
        {
            "key": done["key"],
            "place": np.iinfo(np.int64).max,
            "seconds": done["seconds"],
            "epochs": done["epochs"] + cut_off,
            "evaluations": done["evaluations"],
            "loss": done["final_loss"],
            "test_loss": done["final_test_loss"],
            "test_accuracy": done["final_test_accuracy"],
        }
    )
    between = epochs[epochs["key"].isin(done["key"])].rename(columns={"epoch": "place", "train_loss": "loss"})
    between = between.assign(epochs=between["place"] + 1)
    parts = [part[["place", *_POINT_COLUMNS]] for part in (start, between, end)]
    numbers = {name: "float64" for name in _POINT_COLUMNS if name != "key"}
    points = pandas.concat([part.astype({**numbers, "place": "int64", "key": "object"}) for part in parts])
    points = points[np.isfinite(points["loss"].to_numpy())]
    ordered: pandas.DataFrame = points.sort_values(["key", "place"], kind="stable")[_POINT_COLUMNS]
    return ordered.reset_index(drop=True)


def slices_by_key(frame: pandas.DataFrame) -> dict[str, slice]:
    """Where each run's rows are, in a frame that is sorted by key."""
    keys = frame["key"].to_numpy(dtype=object)
    if not len(keys):
        return {}
    begins = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    ends = np.r_[begins[1:], len(keys)]
    return {keys[begin]: slice(int(begin), int(end)) for begin, end in zip(begins, ends, strict=True)}


def _improvements(points: pandas.DataFrame) -> pandas.DataFrame:
    lowest = points.groupby("key", sort=False)["loss"].cummin()
    before = lowest.groupby(points["key"], sort=False).shift(1)
    return points[~(points["loss"] >= before)].reset_index(drop=True)
