"""The claims of the paper: numbers over the problems that decide something, intervals over data sets, verdicts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from paper_runs import STUDIES

from cmalight.bench.analysis import ratios, resampled, tail

READINGS = {"printed": "printed", "public": "public code"}
# The paper's solvers. It says that CMALight outperforms the rivals on big sets.
RIVALS = ("cma", "ig", "adadelta", "adagrad")
PAPER = ("cmalight", *RIVALS, "adam")
BIG = ("blogfeedback", "covtype", "protein", "skin-nonskin")
SMALL = ("ailerons", "beijing-pm25", "bikes", "california", "mv")
ALL = (*SMALL, *BIG)
PROBLEM = ["dataset", "network"]
CONSTANT = 0.98  # of the variance: a run that ends above has not left the constant prediction
WORST_RATIO = 100.0
RESAMPLES, FEWEST_SETS = 10_000, 5


def left_the_constant(runs: pd.DataFrame) -> pd.Series:
    """Whether each run ended below the loss of the best constant prediction."""
    return runs["loss"] < CONSTANT * runs["variance"]


class Column:
    """The runs of the paper's solvers in one reading at one budget."""

    def __init__(self, runs: pd.DataFrame, reading: str, budget: float) -> None:
        chosen = (runs["reading"] == reading) & (runs["budget"] == budget)
        self.runs = runs[chosen & runs["solver"].isin(PAPER)]

    def problems(self, datasets: tuple[str, ...]) -> pd.MultiIndex:
        """Data sets and networks."""
        found = self.runs[self.runs["dataset"].isin(datasets)]
        return pd.MultiIndex.from_frame(found[PROBLEM].drop_duplicates())

    def deciding(self, solvers: tuple[str, ...], datasets: tuple[str, ...]) -> pd.MultiIndex:
        """The problems on which at least half of the runs of some solvers leave the constant."""
        compared = self.runs[self.runs["solver"].isin(solvers)]
        left = left_the_constant(compared).groupby([compared[name] for name in PROBLEM]).mean()
        return self.problems(datasets).intersection(left.index[left >= 0.5], sort=False)

    def means(self, values: pd.Series) -> pd.DataFrame:
        """Means over the seeds, one row per problem and one column per solver."""
        return values.groupby([self.runs[name] for name in (*PROBLEM, "solver")]).mean().unstack()

    def costs(self, tau: str) -> pd.DataFrame:
        """Costs to a precision, medians over the seeds, one row per problem and one column per solver."""
        costs = self.runs.set_index([*PROBLEM, "seed", "solver"])[f"work_{tau}"].unstack()
        return costs.groupby(level=PROBLEM).median()


def evaluations(column: Column) -> pd.DataFrame:
    """Evaluations per epoch."""
    return column.means(column.runs["evaluations"] / column.runs["epochs"].clip(lower=1))


def acceptance(column: Column) -> pd.DataFrame:
    """Fraction of accepted epochs; unknown at the shorter budgets."""
    return column.means(column.runs["accepted"])


def gains(column: Column, tau: str) -> pd.DataFrame:
    """What each problem adds to the areas under the profiles."""
    return shares_of_area(column.costs(tau))


def shares_of_area(costs: pd.DataFrame) -> pd.DataFrame:
    """What each problem adds to the area under the profiles, from 0 to 1."""
    return (1 - np.log(ratios(costs)) / np.log(WORST_RATIO)).clip(0, 1)


@dataclass(frozen=True)
class Claim:
    """What is measured of some solvers, how it becomes one number, and in which range the paper's sentence is right.

    Attributes:
        measure: Gives one row per problem and one column per solver.
        solvers: Those whose numbers are combined.
        compared: Those whose runs tell whether a problem decides something.
        combined: Makes one number of the solvers' means over problems.
        datasets: What is counted.
        above: The sentence is right if the number is above this one,
        most: and not above this one.
    """

    measure: Callable[[Column], pd.DataFrame]
    solvers: tuple[str, ...]
    compared: tuple[str, ...]
    combined: Callable[..., Any]
    datasets: tuple[str, ...]
    above: float
    most: float


def ahead(datasets: tuple[str, ...], solver: str, *others: str) -> Claim:
    """By how much a solver's area under the profile at precision 0.1 exceeds the best of the others."""
    return Claim(
        measure=partial(gains, tau="0.1"),
        solvers=(solver, *others),
        compared=PAPER,
        combined=lambda own, *rivals: own - np.max(rivals, axis=0),
        datasets=datasets,
        above=0.0,
        most=1.0,
    )


_BOTH = ("cmalight", "cma")
ROWS: dict[str, Claim] = {
    "CMALight's evaluations per epoch, over CMA's (at most half)": Claim(
        evaluations, _BOTH, _BOTH, lambda own, cma: own / cma, ALL, -np.inf, 0.5
    ),
    "CMALight's fraction of accepted epochs, minus CMA's (slightly lower, say by 0.01 to 0.1)": Claim(
        acceptance, _BOTH, _BOTH, lambda own, cma: own - cma, ALL, -0.1, -0.01
    ),
    "big sets: CMALight's area minus the best rival's (above 0)": ahead(BIG, "cmalight", *RIVALS),
    "all sets: CMALight's area minus CMA's (above 0)": ahead(ALL, "cmalight", "cma"),
    "all sets: CMALight's area minus IG's (above 0)": ahead(ALL, "cmalight", "ig"),
    "all sets: CMALight's area minus Adadelta's (above 0)": ahead(ALL, "cmalight", "adadelta"),
    "all sets: CMALight's area minus Adagrad's (above 0)": ahead(ALL, "cmalight", "adagrad"),
    "all sets: CMALight's area minus Adam's (above 0)": ahead(ALL, "cmalight", "adam"),
    "small sets: CMA's area minus the best other's (above 0)": ahead(
        SMALL, "cma", *(name for name in PAPER if name != "cma")
    ),
}


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
        above, most = self.claim
        if above < self.low and self.high <= most:
            return "yes"
        return "no" if self.high <= above or most < self.low else "open"

    def __str__(self) -> str:
        if not self.deciding:
            return f"– (0 of {self.problems})"
        if self.sets < FEWEST_SETS:
            value = f"{self.value:.2f}".replace("-", "−")
            return f"{value} ({self.deciding} of {self.problems}, {self.sets} sets)"
        numbers = (f"{one:.2f}".replace("-", "−") for one in (self.value, self.low, self.high))
        return "{} [{}, {}] ({} of {})".format(*numbers, self.deciding, self.problems)


def cell(column: Column, row: str) -> Cell:
    """The number of a row in a column, with an interval if there are five data sets, as in the report."""
    claim = ROWS[row]
    problems = len(column.problems(claim.datasets))
    values = claim.measure(column)[list(claim.solvers)]
    values = values.reindex(column.deciding(claim.compared, claim.datasets)).dropna()
    sets = values.groupby(level="dataset")
    low = high = np.nan
    if sets.ngroups >= FEWEST_SETS:
        low, high = interval(sets.sum().to_numpy(), sets.size().to_numpy(), claim.combined)
    value = claim.combined(*values.mean().to_numpy()) if len(values) else np.nan
    return Cell(value, low, high, len(values), problems, sets.ngroups, (claim.above, claim.most))


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
    for row, claim in ROWS.items():
        for shown in (min, max):
            if claim.measure is acceptance and shown is min:
                continue
            budgets = [shown(STUDIES[study]) for study in READINGS]
            columns = zip(READINGS, budgets, strict=True)
            cells = [cell(Column(runs, study, time), row) for study, time in columns]
            printed, public = (one.verdict for one in cells)
            verdict = printed if printed == public else f"printed: {printed}; public code: {public}"
            times = ", ".join(dict.fromkeys(f"{budget:g} s" for budget in budgets))
            lines.append(f"| {row} | {times} | {cells[0]} | {cells[1]} | {verdict} |")
    return "\n".join(lines)


def all_costs(
    runs: pd.DataFrame, reading: str, tau: str, datasets: tuple[str, ...]
) -> pd.DataFrame:
    """Costs of the paper's solvers on the problems that decide, at the longest budget."""
    column = Column(runs, reading, max(STUDIES[reading]))
    return column.costs(tau).reindex(column.deciding(PAPER, datasets))
