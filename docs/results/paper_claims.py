"""The claims of the paper: numbers over the problems that decide something, intervals over data sets, verdicts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from paper_runs import STUDIES

from cmalight.bench.analysis import ratios, resampled, tail

Row = tuple[Callable[..., tuple[list[pd.Series], int]], Callable[..., Any], tuple[float, float]]
READINGS = {"printed": "printed", "public": "public code"}
RIVALS = ("cma", "ig", "adadelta", "adagrad")  # that CMALight outperforms on big sets, by the paper
BIG = ("blogfeedback", "covtype", "protein", "skin-nonskin")
SMALL = ("ailerons", "beijing-pm25", "bikes", "california", "mv")
PROBLEM = ["dataset", "network"]
CONSTANT = 0.98  # of the variance: a run that ends above has not left the constant prediction
WORST_RATIO = 100.0
RESAMPLES, FEWEST_SETS = 10_000, 5


def left_the_constant(runs: pd.DataFrame) -> pd.Series:
    """Whether each run ended below the loss of the best constant prediction."""
    return runs["loss"] < CONSTANT * runs["variance"]


class Column:
    """One method in one reading, on the problems that decide something.

    A problem decides unless most runs of the paper's six solvers, the method in CMALight's place, stay at the constant.
    """

    def __init__(self, runs: pd.DataFrame, reading: str, method: str, budget: float) -> None:
        six = (method, "adam", *RIVALS)
        chosen = (runs["reading"] == reading) & (runs["budget"] == budget)
        self.runs = runs[chosen & runs["solver"].isin(six)]
        self.method = method
        left = left_the_constant(self.runs).groupby([self.runs[name] for name in PROBLEM]).mean()
        self.problems, self.deciding = left.index, left.index[left >= 0.5]

    def means(self, values: pd.Series, solver: str) -> pd.Series:
        """Means over the seeds of a solver, one per problem that decides."""
        own = self.runs[self.runs["solver"] == solver]
        by_problem = values[own.index].groupby([own[name] for name in PROBLEM]).mean()
        return by_problem.reindex(self.deciding)

    def costs(self, name: str, datasets: tuple[str, ...]) -> pd.DataFrame:
        """Costs of all solvers, medians over the seeds, on the problems of these sets that decide."""
        costs = self.runs.set_index([*PROBLEM, "seed", "solver"])[name].unstack()
        costs = costs.groupby(level=PROBLEM).median().reindex(self.deciding)
        return costs[costs.index.get_level_values("dataset").isin(datasets)]


@dataclass(frozen=True)
class Cell:
    """A number with its interval over data sets, and what it says about the claim."""

    value: float
    low: float
    high: float
    deciding: int
    problems: int
    sets: int
    claim: tuple[float, float]

    @property
    def verdict(self) -> str:
        """The same rule for all rows."""
        if 2 * self.deciding < self.problems or self.sets < FEWEST_SETS:
            return "not decided"
        least, most = self.claim
        if least <= self.low and self.high <= most:
            return "yes"
        return "no" if self.high < least or most < self.low else "open"

    def __str__(self) -> str:
        if not self.deciding:
            return f"– (0 of {self.problems})"
        if self.sets < FEWEST_SETS:
            value = f"{self.value:.2f}".replace("-", "−")
            return f"{value} ({self.deciding} of {self.problems}, {self.sets} sets)"
        numbers = (f"{one:.2f}".replace("-", "−") for one in (self.value, self.low, self.high))
        return "{} [{}, {}] ({} of {})".format(*numbers, self.deciding, self.problems)


def evaluations(column: Column) -> tuple[list[pd.Series], int]:
    """Evaluations per epoch, over CMA's."""
    per_epoch = column.runs["evaluations"] / column.runs["epochs"].clip(lower=1)
    return [column.means(per_epoch, name) for name in (column.method, "cma")], len(column.problems)


def acceptance(column: Column) -> tuple[list[pd.Series], int]:
    """Share of accepted epochs, and CMA's."""
    shares = column.runs["accepted"]
    return [column.means(shares, name) for name in (column.method, "cma")], len(column.problems)


def shares_of_area(costs: pd.DataFrame) -> pd.DataFrame:
    """What each problem adds to the area under the profiles, from 0 to 1."""
    return (1 - np.log(ratios(costs)) / np.log(WORST_RATIO)).clip(0, 1)


def gains(
    column: Column, tau: str, datasets: tuple[str, ...], solvers: tuple[str, ...]
) -> tuple[list[pd.Series], int]:
    """What each problem adds to the area under the profile, by solver."""
    shares = shares_of_area(column.costs(f"work_{tau}", datasets))
    wanted = column.problems.get_level_values("dataset").isin(datasets).sum()
    return [shares[name] for name in solvers], int(wanted)


def ahead(tau: str, datasets: tuple[str, ...], *solvers: str) -> Row:
    """By how much the first solver's area under the profile exceeds the best of the others."""
    measure = partial(gains, tau=tau, datasets=datasets, solvers=solvers)
    return measure, lambda own, *rivals: own - np.max(rivals, axis=0), (0.0, 1.0)


# What is measured, how its parts become one number, and the range in which the paper's sentence is right.
ROWS: dict[str, Row] = {
    "CMALight: evaluations per epoch, over CMA's (at most half)": (
        evaluations,
        lambda own, cma: own / cma,
        (0.0, 0.5),
    ),
    "CMALight: accepted epochs, minus CMA's (slightly lower: −0.1 to −0.01)": (
        acceptance,
        lambda own, cma: own - cma,
        (-0.1, -0.01),
    ),
    "big sets, precision 0.1: CMALight's area minus the best rival's (above 0)": ahead(
        "0.1", BIG, "cmalight", *RIVALS
    ),
    "all sets, precision 0.1: the same (above 0)": ahead(
        "0.1", (*SMALL, *BIG), "cmalight", *RIVALS
    ),
    "all sets, precision 10⁻⁴: the same (above 0)": ahead(
        "0.0001", (*SMALL, *BIG), "cmalight", *RIVALS
    ),
    "small sets, precision 0.1: CMA's area minus the best other's, Adam's too (above 0)": ahead(
        "0.1", SMALL, "cma", "cmalight", "ig", "adadelta", "adagrad", "adam"
    ),
}


def cell(column: Column, row: str) -> Cell:
    """The number of a row in a column, with an interval if there are five data sets, as in the report."""
    measure, combined, claim = ROWS[row]
    parts, problems = measure(column)
    values = pd.concat(parts, axis=1).dropna()
    if not len(values):
        return Cell(np.nan, np.nan, np.nan, 0, problems, 0, claim)
    low = high = np.nan
    sets = values.groupby(level="dataset")
    if sets.ngroups >= FEWEST_SETS:
        low, high = interval(sets.sum().to_numpy(), sets.size().to_numpy(), combined)
    value = combined(*values.mean().to_numpy())
    return Cell(value, low, high, len(values), problems, sets.ngroups, claim)


def interval(sums: np.ndarray, counts: np.ndarray, combined: Callable[..., Any]) -> np.ndarray:
    """The 95 % bootstrap interval of a number that is combined from means over problems.

    Problems of one data set are no independent cases, so data sets are drawn.

    Args:
        sums: One row per data set: the sums over its problems of each part.
        counts: Number of problems of each data set.
        combined: Makes one number of the means of the parts.
    """
    n = len(sums)
    drawn = resampled(n, RESAMPLES)
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)[:, None]
    return np.quantile(combined(*means.T), [tail(n), 1 - tail(n)])


def table(runs: pd.DataFrame) -> str:
    """The claims in both readings, at the shortest and at the longest budget of each."""
    lines = ["| claim | budget | printed | public code | verdict |", "|---|---|---|---|---|"]
    for row in ROWS:
        for shown in (min, max):
            budgets = [shown(STUDIES[study]) for study in READINGS]
            columns = zip(READINGS, budgets, strict=True)
            cells = [cell(Column(runs, study, "cmalight", time), row) for study, time in columns]
            if not any(one.deciding for one in cells):
                continue  # known for whole runs alone
            printed, public = (one.verdict for one in cells)
            verdict = printed if printed == public else f"printed: {printed}; public code: {public}"
            times = ", ".join(dict.fromkeys(f"{budget:g} s" for budget in budgets))
            lines.append(f"| {row} | {times} | {cells[0]} | {cells[1]} | {verdict} |")
    return "\n".join(lines)


def all_costs(
    runs: pd.DataFrame, reading: str, cost: str, datasets: tuple[str, ...]
) -> pd.DataFrame:
    """Costs of the paper's solvers on the problems that decide, at the longest budget."""
    return Column(runs, reading, "cmalight", max(STUDIES[reading])).costs(cost, datasets)
