"""Analysis of results: costs, profiles, their areas, medians, the sentences at the top of a report.

Plain functions on pandas frames. A run that failed costs infinity, everywhere: it is never skipped in a median, and its
losses set no target for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas

from cmalight.bench.frames import Results
from cmalight.errors import check_choice, check_unit_interval

Measure = Literal["seconds", "work", "evaluations", "epochs"]
Loss = Literal["train_loss", "validation_loss"]
Per = Literal["problem", "seed"]

# The column of `points` that holds a cost, and how the summary says that a solver has the least.
COLUMNS = {"seconds": "seconds", "work": "work", "evaluations": "evaluated_passes", "epochs": "epoch"}
BEST = {"seconds": "in the least training time", "work": "with the least work"}
BEST |= {"evaluations": "with the fewest evaluations", "epochs": "in the fewest epochs"}
LOSSES: tuple[str, ...] = get_args(Loss)
TABLE_TAUS = (1e-1, 1e-2, 1e-4)
# What a run reached, and what counts for one that failed: worse than anything that can be reached.
REACHED = {"final_loss": np.inf, "best_loss": np.inf, "final_validation_loss": np.inf, "final_accuracy": -np.inf}
AREA = {"limit": 100.0, "resamples": 5000, "level": 0.95, "fewest": 5}  # for the areas here and on the page


def solution_costs(
    results: Results,
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
        tau: Precision, from 0 to 1: the fraction of the decrease from the first to the lowest loss that may be missing.
        measure: The unit of the cost. "evaluations" counts the passes over the data that the solver's own evaluations
            took; "work" adds a third of them to the passes of the training itself.
        loss: Which loss has to reach the target.
        solvers: The solvers to compare; the others are treated as if they had never run. All by default.
        per: "problem": one row per problem, the median over its seeds. "seed": one row per problem and seed.
        complete: Leave out seeds for which a solver has no result. Otherwise their costs are NaN.

    Returns:
        One column per solver; inf if the target was not reached or the run failed.

    Raises:
        ValueError: For an unknown argument or solver, without any run, and if a solver has several runs of one problem
            and seed.

    Example:
        >>> from cmalight import bench
        >>> costs = bench.solution_costs(bench.load("results"), tau=1e-2)
        >>> sorted(costs.columns)
        ['adam', 'auto']
    """
    check_unit_interval("tau", tau)
    for name, value, choices in (("measure", measure, COLUMNS), ("loss", loss, LOSSES), ("per", per, get_args(Per))):
        check_choice(name, value, choices)
    runs, start = results.runs, ["problem", "seed"]
    for name in solvers or ():
        check_choice("solvers", name, list(runs["solver"].unique()))
    runs = runs if solvers is None else runs[runs["solver"].isin(list(solvers))]
    if not len(runs):
        raise ValueError("there is no run to compare; `missing` of the results says why")
    twice = runs[runs.duplicated([*start, "solver"])]
    if len(twice):
        which = f"{twice['solver'].iloc[0]} on {twice['problem'].iloc[0]}, seed {twice['seed'].iloc[0]}"
        raise ValueError(
            f"{len(twice)} runs are there more than once, such as {which}: results of different code; take those of "
            "load(DIR).current()"
        )
    done = runs.loc[runs["status"] == "done", ["key", *start]]
    points = results.points[np.isfinite(results.points[loss])].merge(done, on="key").sort_values("step", kind="stable")
    lowest = points.groupby(start)[loss].min()
    highest = points.drop_duplicates("key").groupby(start)[loss].max()  # highest first loss
    points = points.join((lowest + tau * (highest - lowest)).rename("target"), on=start)
    solved = points[points[loss] <= points["target"]].drop_duplicates("key").set_index("key")
    costs = runs["key"].map(solved[COLUMNS[measure]].astype("float64")).fillna(np.inf)
    table: pandas.DataFrame = runs.assign(cost=costs).pivot(index=start, columns="solver", values="cost")
    rows = pandas.MultiIndex.from_frame(runs[start].drop_duplicates())
    table = table.reindex(index=rows, columns=pandas.Index(runs["solver"].unique(), name="solver"))
    if complete:
        table = table.dropna()
    return table if per == "seed" else table.groupby(level="problem", sort=False).median()


def ratios(costs: pandas.DataFrame) -> pandas.DataFrame:
    """Each cost over the least of its row; if that is 0, a cost of 0 has the ratio 1 and any other is infinite."""
    values = _checked(costs)
    best = values.min(axis=1, keepdims=True, initial=np.inf)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = np.where(np.isinf(values), np.inf, np.where(values == best, 1.0, values / best))
    return pandas.DataFrame(found, index=costs.index, columns=costs.columns)


def performance_profile(costs: pandas.DataFrame) -> pandas.DataFrame:
    """Performance profile (Dolan and Moré): the fraction of problems solved within a ratio of the least cost.

    Args:
        costs: One row per problem, one column per solver, inf for never; what `solution_costs` gives.

    Returns:
        One column per solver. The index `ratio` has 1 and every ratio at which a curve rises; curves are flat between.
    """
    return _fractions(ratios(costs), start=1.0, name="ratio")


def data_profile(costs: pandas.DataFrame) -> pandas.DataFrame:
    """Data profile (Moré and Wild): the fraction of problems solved within a cost.

    Args:
        costs: One row per problem, one column per solver, inf for never; what `solution_costs` gives.

    Returns:
        One column per solver. The index `cost` has 0 and every cost at which a curve rises; curves are flat between.
    """
    _checked(costs)
    return _fractions(costs, start=0.0, name="cost")


def profile_area(costs: pandas.DataFrame, results: Results) -> pandas.DataFrame:
    """Area under each performance profile over log(ratio), from 1 to 100, as a fraction of the whole.

    1 is a solver that is the best on every problem, 0 one that is never within 100 times the best.

    Args:
        costs: One row per problem, one column per solver, inf for never; what `solution_costs` gives.
        results: What the costs are of; it says which problems share a source of data.

    Returns:
        One row per solver: `area`, and `low` and `high`, the 95 % bootstrap interval. It resamples source data sets,
        because problems on one source, with its cuts and options, are no independent cases; with fewer than five
        sources it is NaN.
    """
    gains = np.clip(1.0 - np.log(ratios(costs).to_numpy()) / np.log(AREA["limit"]), 0.0, 1.0)
    areas = np.full((3, len(costs.columns)), np.nan)
    source_of = results.runs.drop_duplicates("problem").set_index("problem")["source"].to_dict()
    clusters, sources = pandas.factorize(costs.index.get_level_values("problem").map(source_of))
    if len(costs):
        areas[0] = gains.mean(axis=0)
    if len(sources) >= AREA["fewest"]:
        drawn = resampled(len(sources), int(AREA["resamples"]))
        sums = np.array([gains[clusters == one].sum(axis=0) for one in range(len(sources))])
        means = sums[drawn].sum(axis=1) / np.bincount(clusters)[drawn].sum(axis=1)[:, None]
        beyond = tail(len(sources))
        areas[1:] = np.quantile(means, [beyond, 1 - beyond], axis=0)
    return pandas.DataFrame(areas.T, index=costs.columns, columns=["area", "low", "high"])


def tail(cases: int) -> float:
    """Fraction of bootstrap means to leave out at each end of a 95 % interval.

    Plain percentiles are too narrow for few cases: with five of a normal distribution they hold 85 %. These are widened
    as much as Student's interval is wider than that of a normal distribution with the biased variance (the expanded
    percentile interval of Hesterberg, The American Statistician, 2015), and hold 92 %; less if the cases are skewed.

    Args:
        cases: How many are resampled, at least two.

    Returns:
        The fraction, from 0 to 0.5.
    """
    from scipy import special  # type: ignore[import-untyped]

    student = special.stdtrit(cases - 1, (1 - AREA["level"]) / 2)
    return float(special.ndtr(student * np.sqrt(cases / (cases - 1))))


def resampled(cases: int, resamples: int) -> npt.NDArray[np.int64]:
    """Indices of the cases in each bootstrap resample, one row per resample.

    A hash of a counter rather than a generator, so that the page draws the same resamples.
    """
    x = np.arange(resamples * cases, dtype=np.uint32) * np.uint32(0x9E3779B9)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    drawn = (x.astype(np.uint64) * np.uint64(cases)) >> np.uint64(32)
    return drawn.astype(np.int64).reshape(resamples, cases)


def best_of_grid(results: Results) -> Results:
    """The results with one more solver for each grid: on each problem its member with the lowest training loss.

    Members are compared by their median final loss over the seeds; a failed run counts as infinite.

    Args:
        results: What `cmalight.bench.load` gives.

    Returns:
        The results with further rows in `runs`, of the solver "NAME, best of N"; the points are those of the member.
    """
    runs = results.runs
    tuned = [runs]
    for name, part in runs[runs["grid"] != ""].groupby("grid", sort=False):
        losses = part["final_loss"].where(part["status"] == "done").fillna(np.inf)
        medians = losses.groupby([part["problem"], part["solver"]], sort=False).median().unstack(sort=False)
        best = part["problem"].map(medians.idxmin(axis=1))
        label = f"{name}, best of {part['solver'].nunique()}"
        tuned.append(part[part["solver"] == best].assign(solver=label, grid=""))
    return replace(results, runs=pandas.concat(tuned, ignore_index=True))


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


def _fractions(values: pandas.DataFrame, *, start: float, name: str) -> pandas.DataFrame:
    found = values.to_numpy(dtype=np.float64)
    levels = np.unique(np.append(found[np.isfinite(found)], start))
    fractions = (found[None] <= levels[:, None, None]).sum(axis=1) / max(len(values), 1)
    return pandas.DataFrame(fractions, index=pandas.Index(levels, name=name), columns=values.columns)


def summary(costs: pandas.DataFrame, *, measure: Measure = "seconds") -> str:
    """The costs in one sentence, such as "auto reached the target with the least work on 6 of 8 problems."

    Args:
        costs: One row per problem, one column per solver, inf for never; what `solution_costs` gives.
        measure: The unit of the costs.

    Returns:
        The sentence. On a tie it names every solver that is ahead. Costs of single seeds are counted as starts.
    """
    if not len(costs):
        return "No problem has a result of every solver yet."
    ahead = _ahead(ratios(costs) == 1, _counted(costs), f"reached the target {BEST[measure]}")
    return ahead or f"No solver reached the target on any of {_counted(costs)}."


def unseen_summary(results: Results, costs: pandas.DataFrame) -> str:
    """The comparison on data that no step saw, such as "On unseen data, adam ended lowest on 5 of 8 problems."

    Args:
        results: What `cmalight.bench.load` gives.
        costs: What `solution_costs` gives; the sentence is about its problems and solvers.

    Returns:
        The sentence, by the median final validation loss over the seeds; a failed run counts as infinite, and a problem
        without unseen data does not count.
    """
    losses = unseen_losses(results).reindex(index=costs.index.unique("problem"), columns=costs.columns).dropna()
    is_lowest = losses.eq(losses.min(axis=1), axis=0) & np.isfinite(losses)
    ahead = _ahead(is_lowest, _counted(losses), "ended lowest")
    return f"On unseen data, {ahead}" if ahead else "No loss on unseen data was measured for every solver."


def unseen_losses(results: Results) -> pandas.DataFrame:
    """Median final validation loss over the seeds, one row per problem and one column per solver."""
    runs = results.runs
    losses = _reached(runs, "final_validation_loss")
    return losses.groupby([runs["problem"], runs["solver"]], sort=False).median().unstack()


def _reached(runs: pandas.DataFrame, name: str) -> pandas.Series[float]:
    """What each run reached, with failed runs infinitely bad; NaN if no run of the problem has the number."""
    measured = runs.groupby("problem")[name].transform("count") > 0
    return runs[name].where(runs["status"] == "done").fillna(REACHED[name]).where(measured)


def _counted(costs: pandas.DataFrame) -> str:
    return f"{len(costs)} {'start' if costs.index.nlevels > 1 else 'problem'}{'s' * (len(costs) > 1)}"


def _ahead(won: pandas.DataFrame, total: str, verb: str) -> str:
    """Which solvers won most often; "" if none won."""
    wins = won.sum()
    most = int(wins.max()) if len(wins) else 0
    if not most:
        return ""
    *others, last = wins.index[wins == most]
    if not others:
        return f"{last} {verb} on {most} of {total}."
    return f"{', '.join(others)} and {last} {verb} on {most} of {total} each."


def status_text(statuses: Iterable[str]) -> str:
    """How runs ended, such as "4 done, 1 timed out"."""
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in Counter(statuses).most_common())


def results_table(results: Results) -> pandas.DataFrame:
    """One row per problem and solver: how the runs ended, and medians over the seeds.

    A failed run counts as an infinite loss and an accuracy of minus infinity; NaN if no run of the problem has the
    number. `evaluations` (in passes over the data) and `accepted` are medians over the runs that report them.
    `seconds_to_TAU` is the cost to that precision, and `reached_TAU` the number of runs that reached it.

    Args:
        results: What `cmalight.bench.load` gives.

    Returns:
        The table, in the order of the runs.
    """
    runs, row = results.runs, ["problem", "solver"]
    by_run = runs[[*row, "accepted"]].assign(evaluations=runs["evaluated_passes"])
    by_run = by_run.assign(**{name: _reached(runs, name) for name in REACHED})
    table: pandas.DataFrame = by_run.groupby(row, sort=False).median()
    table.insert(0, "ended", runs.groupby(row, sort=False)["status"].agg(status_text))
    for tau in TABLE_TAUS:
        costs: Any = solution_costs(results, tau, per="seed", complete=False).stack().groupby(row, sort=False)
        table[f"seconds_to_{tau:g}"] = costs.median()
        table[f"reached_{tau:g}"] = costs.agg(lambda found: int(np.isfinite(found).sum()))
    reached = [name for name in table if name not in ("evaluations", "accepted")]
    return table[[*reached, "evaluations", "accepted"]].dropna(axis="columns", how="all").reset_index()
