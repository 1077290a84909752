"""What results say: costs, profiles, their areas, medians, the sentence on top of a report.

Plain functions on pandas frames. A run that failed costs infinity, everywhere: it is never skipped in a median, and its
losses set no target for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas

Measure = Literal["seconds", "work", "evaluations", "epochs"]
Loss = Literal["train_loss", "validation_loss"]
Per = Literal["problem", "seed"]

# Which column of `epochs` holds a cost.
MEASURES: dict[str, str] = {"seconds": "seconds", "work": "work", "evaluations": "evaluations", "epochs": "epoch"}
LOSSES: tuple[str, ...] = ("train_loss", "validation_loss")
PER: tuple[str, ...] = ("problem", "seed")
TABLE_TAUS = (1e-1, 1e-2, 1e-4)
# What a run reached, and what counts for one that failed: worse than anything that can be reached.
FIGURES = {"final_loss": np.inf, "best_loss": np.inf, "final_validation_loss": np.inf, "final_accuracy": -np.inf}
AREA_LIMIT = 100.0
RESAMPLES = 500
LEVEL = 0.95

# The summary sentence in pieces, for one solver and for several; the page fills in the same words.
SUMMARY_WORDS: dict[str, tuple[str, str]] = {
    "seconds": ("was quickest", "were quickest"),
    "work": ("needed the least work", "needed the least work"),
    "evaluations": ("needed the fewest evaluations", "needed the fewest evaluations"),
    "epochs": ("needed the fewest epochs", "needed the fewest epochs"),
}


class Frames(Protocol):
    """What `cmalight.bench.load` gives: one row per run, and one row per run and measured point."""

    @property
    def runs(self) -> pandas.DataFrame:
        """One row per run."""

    @property
    def epochs(self) -> pandas.DataFrame:
        """One row per measured point."""


def solution_costs(
    results: Frames,
    tau: float,
    *,
    measure: Measure = "seconds",
    loss: Loss = "train_loss",
    solvers: Collection[str] | None = None,
    per: Per = "problem",
    complete: bool = True,
) -> pandas.DataFrame:
    """What each solver spent to solve each problem.

    From one start, a run has solved the problem at the first measured point whose loss is at most
    f_L + tau (f(w0) - f_L), where f_L is the lowest loss that any of `solvers` reached from that start.

    Args:
        results: What `cmalight.bench.load` gives.
        tau: Precision, from 0 to 1: how much of the way from the start to the lowest loss may be left.
        measure: The unit of the cost. "evaluations" counts the passes over the data that the solver's own evaluations
            took, looks at a sample included; "work" adds a third of them to the passes of the training itself.
        loss: Which loss has to reach the target.
        solvers: The solvers to compare; the others are treated as if they had never run. All by default.
        per: "problem": one row per problem, the median over its seeds. "seed": one row per problem and seed.
        complete: Leave out seeds that one of the solvers has no result of. Otherwise their costs are NaN.

    Returns:
        One column per solver; inf where the target was not reached or the run failed.

    Raises:
        ValueError: For an unknown argument or solver, and where a solver has several runs of one problem and seed.

    Example:
        >>> from cmalight import bench
        >>> costs = bench.solution_costs(bench.load("results"), tau=1e-2)
        >>> sorted(costs.columns)
        ['adam', 'auto']
    """
    import pandas

    for name, value, choices in (("measure", measure, tuple(MEASURES)), ("loss", loss, LOSSES), ("per", per, PER)):
        if value not in choices:
            raise ValueError(f"Invalid {name} value: {value!r}; expected one of {', '.join(choices)}")
    if not 0 <= tau <= 1:
        raise ValueError(f"Invalid tau value: {tau!r}; expected a number from 0 to 1")
    runs = _chosen(results.runs, solvers)
    points = _points(runs, results.epochs, loss)
    start = points.groupby("key", sort=False).head(1).groupby(["problem", "seed"])[loss].max()
    lowest = points.groupby(["problem", "seed"])[loss].min()
    target = (lowest + tau * (start - lowest)).rename("target")
    points = points.join(target, on=["problem", "seed"])
    solved = points[points[loss] <= points["target"]].groupby("key", sort=False).head(1).set_index("key")
    costs = runs["key"].map(solved[MEASURES[measure]].astype("float64")).fillna(np.inf)
    table: pandas.DataFrame = runs.assign(cost=costs).pivot(index=["problem", "seed"], columns="solver", values="cost")
    rows = pandas.MultiIndex.from_frame(runs[["problem", "seed"]].drop_duplicates())
    table = table.reindex(index=rows, columns=pandas.Index(runs["solver"].unique(), name="solver"))
    if complete:
        table = table.dropna()
    if per == "problem":
        table = table.groupby(level="problem", sort=False).median()
    return table


def _chosen(runs: pandas.DataFrame, solvers: Collection[str] | None) -> pandas.DataFrame:
    unknown = [name for name in solvers or () if name not in set(runs["solver"])]
    if unknown:
        known = ", ".join(runs["solver"].unique())
        raise ValueError(f"no run of solver {unknown[0]!r}; the results have {known}")
    chosen = runs if solvers is None else runs[runs["solver"].isin(list(solvers))]
    twice = chosen[chosen.duplicated(["problem", "seed", "solver"])]
    if len(twice):
        one = twice.iloc[0]
        raise ValueError(
            f"{len(twice)} runs are there more than once, such as {one['solver']} on {one['problem']}, seed "
            f"{one['seed']}: results of different code; take those of load(DIR).current()"
        )
    return chosen


def passes_evaluated(runs: pandas.DataFrame, epochs: pandas.DataFrame) -> pandas.Series[float]:
    """Passes over the data that the solver's own evaluations have taken at each point.

    A full evaluation is one pass, and a look at a sample of the data counts with its share of the rows.

    Args:
        runs: One row per run.
        epochs: One row per measured point.

    Returns:
        One number for each row of `epochs`.
    """
    samples = epochs["key"].map(runs.set_index("key")["n_samples"].astype("float64"))
    return epochs["evaluated_rows"].astype("float64") / samples


def _points(runs: pandas.DataFrame, epochs: pandas.DataFrame, loss: str) -> pandas.DataFrame:
    """The points of the finished runs that have this loss, in order, with problem and seed."""
    done = runs.loc[runs["status"] == "done", ["key", "problem", "seed"]]
    epochs = epochs.assign(evaluations=passes_evaluated(runs, epochs))
    measured = epochs[np.isfinite(epochs[loss].to_numpy(dtype=np.float64))]
    points: pandas.DataFrame = measured.merge(done, on="key").sort_values("epoch", kind="stable")
    return points


def ratios(costs: pandas.DataFrame) -> pandas.DataFrame:
    """Each cost over the least of its row.

    Where the least is 0, as when the start was good enough, a cost of 0 has the ratio 1 and any other is infinitely
    worse.

    Args:
        costs: One row per problem, one column per solver, inf for never; what `solution_costs` gives.

    Returns:
        The ratios, in the same places.

    Raises:
        ValueError: For a negative cost or NaN.
    """
    import pandas

    values = _checked(costs)
    best = values.min(axis=1, keepdims=True, initial=np.inf)
    found = np.full(values.shape, np.inf)
    with np.errstate(over="ignore"):
        np.divide(values, best, out=found, where=np.isfinite(values) & (best > 0))
    found[(values == 0) & (best == 0)] = 1.0
    return pandas.DataFrame(found, index=costs.index, columns=costs.columns)


def performance_profile(costs: pandas.DataFrame) -> pandas.DataFrame:
    """Performance profile (Dolan and Moré): the share of problems solved within a ratio of the least cost.

    Args:
        costs: One row per problem, one column per solver, inf for never; what `solution_costs` gives.

    Returns:
        One column per solver. The index `ratio` has 1 and every ratio at which a curve rises; curves are flat between.
    """
    return _shares(ratios(costs), start=1.0, name="ratio")


def data_profile(costs: pandas.DataFrame) -> pandas.DataFrame:
    """Data profile (Moré and Wild): the share of problems solved within a cost.

    Args:
        costs: One row per problem, one column per solver, inf for never; what `solution_costs` gives.

    Returns:
        One column per solver. The index `cost` has 0 and every cost at which a curve rises; curves are flat between.
    """
    _checked(costs)
    return _shares(costs, start=0.0, name="cost")


def profile_area(costs: pandas.DataFrame, *, limit: float = AREA_LIMIT) -> pandas.DataFrame:
    """Area under each performance profile over log(ratio), from 1 to `limit`, as a share of the whole.

    1 is a solver that is the best on every problem, 0 one that is never within `limit` times the best.

    Args:
        costs: One row per problem, one column per solver, inf for never; what `solution_costs` gives.
        limit: The largest ratio that counts, above 1.

    Returns:
        One row per solver: `area`, and `low` and `high`, the 95 % bootstrap interval over problems.

    Raises:
        ValueError: If the limit is not above 1.
    """
    import pandas

    if not limit > 1:
        raise ValueError(f"Invalid limit value: {limit!r}; expected a ratio above 1")
    found = ratios(costs)
    gains = np.clip(1.0 - np.log(found.to_numpy()) / np.log(limit), 0.0, 1.0)
    areas = np.full((len(found.columns), 3), np.nan)
    if len(found):
        means = gains[resampled(len(found), RESAMPLES)].mean(axis=1)
        low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        areas = np.stack([gains.mean(axis=0), low, high], axis=1)
    return pandas.DataFrame(areas, index=found.columns, columns=["area", "low", "high"])


def resampled(problems: int, resamples: int) -> npt.NDArray[np.int64]:
    """Indices of the problems in each bootstrap resample, one row per resample.

    A hash of a counter rather than a generator, so that the page draws the same resamples.
    """
    x = np.arange(resamples * problems, dtype=np.uint32) * np.uint32(0x9E3779B9)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    drawn = (x.astype(np.uint64) * np.uint64(problems)) >> np.uint64(32)
    return drawn.astype(np.int64).reshape(resamples, problems)


def _checked(costs: pandas.DataFrame) -> npt.NDArray[np.float64]:
    values = costs.to_numpy(dtype=np.float64)
    wrong = np.argwhere(~(values >= 0))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"the cost of {costs.columns[column]!r} on {costs.index[row]!r} is {values[row, column]}; expected 0 or "
            "more, and inf for a failure (leave out problems that a solver has no result of)"
        )
    return values


def _shares(values: pandas.DataFrame, *, start: float, name: str) -> pandas.DataFrame:
    import pandas

    columns = np.sort(values.to_numpy(dtype=np.float64), axis=0)
    levels = np.unique(np.append(columns[np.isfinite(columns)], start))
    shares = np.empty((len(levels), len(values.columns)))
    for place, column in enumerate(columns.T):
        shares[:, place] = np.searchsorted(column, levels, side="right") / max(len(values), 1)
    return pandas.DataFrame(shares, index=pandas.Index(levels, name=name), columns=values.columns)


def summary(costs: pandas.DataFrame, *, measure: Measure = "seconds") -> str:
    """The comparison in one sentence, such as "auto was quickest on 6 of 8 problems."

    Args:
        costs: One row per problem, one column per solver, inf for never; what `solution_costs` gives.
        measure: The unit of the costs.

    Returns:
        The sentence. On a tie it names every solver that is ahead. Costs of single seeds are counted as starts.
    """
    if not len(costs):
        return "There is no problem yet that every solver has a result of."
    noun = "start" if costs.index.nlevels > 1 else "problem"
    total = f"{len(costs)} {noun}{'s' * (len(costs) > 1)}"
    wins = (ratios(costs) == 1).sum()
    most = int(wins.max())
    if not most:
        return f"No solver reached the target on any of {total}."
    names = [str(name) for name in wins.index[wins == most]]
    one, several = SUMMARY_WORDS[measure]
    joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    each = "" if len(names) == 1 else " each"
    return f"{joined} {one if len(names) == 1 else several} on {most} of {total}{each}."


def status_text(statuses: Iterable[str]) -> str:
    """How runs ended, such as "4 done, 1 timed out"."""
    counts = Counter(statuses)
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.most_common())


def results_table(results: Frames, *, taus: Sequence[float] = TABLE_TAUS) -> pandas.DataFrame:
    """One row per problem and solver: how the runs ended, and medians over the seeds.

    A failed run counts as an infinite loss and an accuracy of minus infinity; NaN where no run of the problem has the
    figure. `evaluations` (in passes over the data, looks at a sample included) and `accepted` describe what was done
    and are medians over the runs that report them.

    Args:
        results: What `cmalight.bench.load` gives.
        taus: Precisions, as in `solution_costs`. For each, `seconds_to_TAU` and `reached_TAU`, the number of runs
            that reached it.

    Returns:
        The table, in the order of the runs.
    """
    runs = results.runs
    done = runs["status"] == "done"
    by_run = runs[["problem", "seed", "solver"]].assign(evaluations=runs["evaluated_rows"] / runs["n_samples"])
    by_run["accepted"] = runs["accepted"].astype("float64")
    for name, failed in FIGURES.items():
        measured = runs["problem"].isin(runs.loc[runs[name].notna(), "problem"])
        by_run[name] = runs[name].astype("float64").where(done).fillna(failed).where(measured)
    for tau in taus:
        costs: Any = solution_costs(results, tau, per="seed", complete=False).stack()
        by_run = by_run.join(costs.rename(f"seconds_to_{tau:g}"), on=["problem", "seed", "solver"])
        by_run[f"reached_{tau:g}"] = np.isfinite(by_run[f"seconds_to_{tau:g}"])
    groups = by_run.drop(columns="seed").groupby(["problem", "solver"], sort=False)
    table: pandas.DataFrame = groups.median()
    for name in table.columns[table.columns.str.startswith("reached_")]:
        table[name] = groups[name].sum().astype("int64")
    table["ended"] = runs.groupby(["problem", "solver"], sort=False)["status"].agg(status_text)
    costs_of = [name for tau in taus for name in (f"seconds_to_{tau:g}", f"reached_{tau:g}")]
    table = table[["ended", *FIGURES, *costs_of, "evaluations", "accepted"]]
    return table.dropna(axis="columns", how="all").reset_index()
