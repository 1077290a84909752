"""The numbers and the figures of paper.md, from the runs in paper.csv and cifar.csv.

    python docs/results/paper.py --run FOLDER           runs the studies; the same command resumes them
    python docs/results/paper.py --collect FOLDER       puts what ran into both files, in place of the same runs
    python docs/results/paper.py                        writes the pages' tables and figures

A run of 4 s is also one of 0.5 s: what it had reached by then. Needs the `bench` extra, and for
the first two commands the data sets.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pages import filled

from cmalight.bench import Results, load, performance_profile, solution_costs
from cmalight.bench.analysis import ratios, resampled, tail

HERE = Path(__file__).parent
Row = tuple[Callable[..., tuple[list[pd.Series], int]], Callable[..., Any], tuple[float, float]]
RUNS, CIFAR = HERE / "paper.csv", HERE / "cifar.csv"
PAGES = (HERE / "paper.md", HERE / "paper-appendix.md")
# The budgets in seconds that the page shows of each study; the longest is the study's.
STUDIES = {
    "public": (0.5, 4.0),
    "printed": (0.5, 2.0),
    "coff": (4.0,),
    "budget": (2.0, 20.0),
    "plateau": (10.0,),
}
# The specs of studies that have more than one.
PARTS = {
    "public": ("paper-public", "paper-public-big"),
    "printed": ("paper-printed", "paper-printed-big"),
    "plateau": ("paper-plateau", "paper-plateau-reshuffled"),
    "cifar": ("paper-cifar", "paper-cifar-public", "paper-cifar-rivals"),
}
IDENTITY = ["reading", "dataset", "network", "solver", "seed"]
RIVALS = (
    "cma",
    "ig",
    "adadelta",
    "adagrad",
)  # that the paper says CMALight outperforms on big sets
BIG = ("blogfeedback", "covtype", "protein", "skin-nonskin")
NETWORKS = ("1x50", "3x20", "5x50", "10x50")
SMALL = ("ailerons", "beijing-pm25", "bikes", "california", "mv")
KINDS = {"small": SMALL, "big": BIG}
WORST_RATIO, WIDTH = 100.0, 270
PLATEAU = (
    ("printed", "cmalight", "CMALight, printed"),
    ("public", "cmalight", "CMALight, public code"),
    ("public", "cma", "CMA, public code"),
    ("public", "ig", "IG, public code"),
    ("public", "adadelta", "Adadelta"),
    ("public", "adagrad", "Adagrad"),
    ("public", "adam", "Adam"),
    ("public", "auto", "`Auto`"),
)
CONSTANT = 0.98  # of the variance: a run that ends above has not left the constant prediction
RESAMPLES, FEWEST_SETS = 10_000, 5
TAUS = ("0.1", "0.01", "0.0001")
PROBLEM = ["dataset", "network"]
READINGS = {"printed": "printed", "public": "public code"}
COLOURS = {
    "cmalight": "#0072b2",
    "cma": "#56b4e9",
    "ig": "#999999",
    "adam": "#d55e00",
    "adagrad": "#e69f00",
    "adadelta": "#cc79a7",
}
LABELS = {"cmalight": "CMALight", "coff": "COFF_IG", "cma": "CMA", "ig": "IG", "auto": "`Auto`"}
CIFAR_COLOURS = {
    "cmalight, printed": "#56b4e9",
    "cmalight, public code": "#0072b2",
    "adam": "#d55e00",
    "adagrad": "#e69f00",
    "adadelta": "#cc79a7",
    "sgd-momentum": "#999999",
    "auto": "#000000",
}
CIFAR_LABELS = {
    "cmalight, printed": "CMALight, printed",
    "cmalight, public code": "CMALight, public",
    "sgd-momentum": "SGD, momentum",
    "auto": "Auto",
}


# Torch's defaults, with which the rivals on CIFAR-10 have three starts.
DEFAULT_RATES = {"adam": 1e-3, "adagrad": 1e-2, "adadelta": 1.0, "sgd-momentum": 1e-3}


def collect(folder: Path) -> pd.DataFrame:
    """One row per run and budget of the studies in a folder, with what the page needs of it.

    Costs are in passes over the data, an evaluation counting as a third of one; targets are set by the paper's solvers
    together. Acceptance is known for the whole run alone.
    """
    from cmalight.datasets import load_dataset

    parts = []
    for study, budgets in STUDIES.items():
        if not (folder / f"paper-{study}").is_dir():
            continue
        results = load(folder / f"paper-{study}").recorded()
        names = results.runs["dataset"].unique()
        variances = {name: float(load_dataset(name).y_train.var()) for name in names}
        for budget in budgets:
            table = within(results, budget, is_last=budget == max(budgets))
            table["variance"] = table["dataset"].map(variances)
            table["network"] = table["network"].str.removeprefix("paper:")
            parts.append(table.assign(reading=study, budget=budget))
    return pd.concat(parts, ignore_index=True)


def within(results: Results, budget: float, *, is_last: bool) -> pd.DataFrame:
    """What each run had reached after so many seconds, and what it had spent."""
    points = results.points[results.points["seconds"] <= budget]
    results = Results(results.runs, results.points if is_last else points)
    last = results.points.groupby("key").tail(1).set_index("key")
    runs = results.runs.set_index("key")
    table = runs[["dataset", "network", "problem", "solver", "seed", "status"]].copy()
    table["epochs"], table["evaluations"] = last["epoch"], last["evaluations"]
    table["loss"] = last["train_loss"].where(runs["status"] == "done")
    table["accepted"] = runs["accepted"] if is_last else np.nan
    compared = [name for name in runs["solver"].unique() if name != "auto"]
    for tau in TAUS:
        costs = solution_costs(
            results, float(tau), measure="work", solvers=compared, per="seed", complete=False
        )
        cost_of = costs.stack()
        places = zip(runs["problem"], runs["seed"], runs["solver"], strict=True)
        table[f"work_{tau}"] = [cost_of.get(place, np.nan) for place in places]
    return table.drop(columns="problem").reset_index()


def collect_cifar(folder: Path) -> pd.DataFrame:
    """Loss and accuracy of each run at its measured points."""
    results = load(folder).recorded()
    runs = results.runs[["key", "solver", "seed"]]
    columns = ["solver", "seed", "step", "seconds", "epoch", "train_loss", "accuracy"]
    return results.points.merge(runs, on="key")[columns]


def merged(old: pd.DataFrame, new: pd.DataFrame, identity: list[str]) -> pd.DataFrame:
    """The new rows, and those old ones whose run is not among them."""
    known = pd.MultiIndex.from_frame(new[identity])
    return pd.concat(
        [old[~pd.MultiIndex.from_frame(old[identity]).isin(known)], new], ignore_index=True
    )


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


def epochs(runs: pd.DataFrame) -> str:
    """How many epochs a run has, by solver and study: medians by network at the longest budget."""
    return _by_network(longest(runs), "epochs", lambda there: f"{there['epochs'].median():,.0f}")


def has(runs: pd.DataFrame, reading: str, solver: str) -> bool:
    """Whether there are runs of a solver in a reading."""
    return bool(((runs["reading"] == reading) & (runs["solver"] == solver)).any())


def longest(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs at the longest budget of their study."""
    return runs[runs["budget"] == runs["reading"].map(lambda study: max(STUDIES[study]))]


def plateau(runs: pd.DataFrame) -> str:
    """How many runs left the constant by network, at the shortest and at the longest budget."""
    return _by_network(runs, "left the constant", _left)


def losses(runs: pd.DataFrame) -> str:
    """The loss over the variance by network: geometric means over data sets and starts, at both budgets."""
    return _by_network(runs, "loss over variance", _relative_loss)


def _left(runs: pd.DataFrame) -> str:
    return f"{left_the_constant(runs).sum()} of {len(runs)}"


def _relative_loss(runs: pd.DataFrame) -> str:
    """A run that failed or diverged counts as one that stayed at the constant."""
    relative = (runs["loss"] / runs["variance"]).fillna(1.0).clip(lower=1e-12)
    return f"{np.exp(np.log(relative).mean()):.2g}"


def _by_network(runs: pd.DataFrame, title: str, cell_of: Callable[[pd.DataFrame], str]) -> str:
    rows = [row for row in PLATEAU if has(runs, *row[:2])]
    return _grid(runs, title, [f"[{one}]" for one in NETWORKS], rows, cell_of)


def _grid(
    runs: pd.DataFrame,
    title: str,
    networks: list[str],
    rows: Iterable[tuple[str, str, str]],
    cell_of: Callable[[pd.DataFrame], str],
) -> str:
    """One row per study and solver, one column per network, the budgets of a cell one after the other."""
    lines = [f"| {title} | {' | '.join(networks)} |", "|---|" + "---|" * len(networks)]
    for study, solver, label in rows:
        own = runs[(runs["reading"] == study) & (runs["solver"] == solver)]
        cells = []
        for network in networks:
            there = own[own["network"] == network.strip("[]")]
            found = [cell_of(at) for _, at in there.groupby("budget")]
            cells.append(" → ".join(dict.fromkeys(found)))
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def of_study(
    study: str,
    runs: pd.DataFrame,
    title: str = "loss over variance",
    cell_of: Callable[[pd.DataFrame], str] | None = None,
) -> str:
    """A table of a further study by solver and network: the losses over the variance, or what `cell_of` makes."""
    own = runs[runs["reading"] == study]
    rows = [
        (study, solver, LABELS.get(solver, solver.capitalize()))
        for solver in own["solver"].unique()
    ]
    networks = [f"[{one}]" for one in own["network"].unique()]
    return _grid(own, title, networks, rows, cell_of or _relative_loss)


def _left_and_loss(runs: pd.DataFrame) -> str:
    return f"{_left(runs)}, {_relative_loss(runs)}"


def areas(runs: pd.DataFrame) -> str:
    """Areas under the performance profiles, on the problems that decide, at the largest budget."""
    solvers = [solver for solver in COLOURS if has(runs, "public", solver)]
    names = [LABELS.get(solver, solver.capitalize()) for solver in solvers]
    lines = [
        f"| reading, sets, precision | problems | {' | '.join(names)} |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for reading, title in READINGS.items():
        for kind, datasets in KINDS.items():
            for tau in ("0.1", "0.0001"):
                costs = all_costs(runs, reading, f"work_{tau}", datasets)
                found = shares_of_area(costs).mean() if len(costs) else {}
                cells = [f"{found[name]:.2f}" if name in found else "–" for name in solvers]
                lines.append(f"| {title}, {kind}, {tau} | {len(costs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def all_costs(
    runs: pd.DataFrame, reading: str, cost: str, datasets: tuple[str, ...]
) -> pd.DataFrame:
    """Costs of the paper's solvers on the problems that decide, at the longest budget."""
    return Column(runs, reading, "cmalight", max(STUDIES[reading])).costs(cost, datasets)


def profiles(runs: pd.DataFrame, tau: str) -> str:
    """Figs. 2 to 4: performance profiles on small and big sets, one row of panels per reading."""
    lines = opened(640)
    for top, (reading, title) in zip((0, 310), READINGS.items(), strict=True):
        for left, (kind, datasets) in zip((50, 370), KINDS.items(), strict=True):
            costs = all_costs(runs, reading, f"work_{tau}", datasets)
            lines.append(f'<g transform="translate(0 {top})">')
            heading = f"{title}, {kind} sets: {len(costs)} problems"
            lines.append(f'<text x="{left}" y="24" font-weight="bold">{heading}</text>')
            lines += axes(left, f"work over the least work, at precision {tau}")
            curves = performance_profile(costs) if len(costs) else {}
            for solver, colour in COLOURS.items():
                if solver in curves:
                    points = outline(curves[solver], left)
                    style = f'fill="none" stroke="{colour}" stroke-width="2"'
                    lines.append(f'<polyline points="{points}" {style}/>')
            lines.append("</g>")
    return "\n".join([*lines, *legend(COLOURS), "</svg>", ""])


def boxes(runs: pd.DataFrame) -> str:
    """Fig. 1: evaluations per epoch and acceptance of CMALight and CMA, all runs at the largest budget."""
    runs = longest(runs)
    runs = runs.assign(per_epoch=runs["evaluations"] / runs["epochs"].clip(lower=1))
    lines = opened(300)
    panels = (
        ("per_epoch", "evaluations of f per epoch"),
        ("accepted", "fraction of accepted epochs"),
    )
    for left, (column, title) in zip((50, 400), panels, strict=True):
        lines.append(f'<text x="{left}" y="24" font-weight="bold">{title}</text>')
        shown = [(reading, solver) for reading in READINGS for solver in ("cmalight", "cma")]
        found = [
            runs.loc[(runs["reading"] == reading) & (runs["solver"] == solver), column].dropna()
            for reading, solver in shown
        ]
        most = max((values.quantile(0.95) for values in found if len(values)), default=1.0) or 1.0
        lines.append(f'<path d="M{left} 40V250H{left + 330}" fill="none" stroke="#444"/>')
        lines.append(f'<text x="{left - 6}" y="44" text-anchor="end">{most:.3g}</text>')
        for place, ((reading, solver), values) in enumerate(zip(shown, found, strict=True)):
            x = left + 45 + 80 * place
            label = f'<text x="{x}" y="{{}}" text-anchor="middle">{{}}</text>'
            lines += [label.format(268, LABELS[solver]), label.format(284, READINGS[reading])]
            if len(values):
                y = [250 - 210 * v / most for v in values.quantile([0.05, 0.25, 0.5, 0.75, 0.95])]
                style = f'stroke="{COLOURS[solver]}" fill="none" stroke-width="2"'
                lines.append(
                    f'<path d="M{x} {y[0]:.1f}V{y[1]:.1f}M{x} {y[3]:.1f}V{y[4]:.1f}" {style}/>'
                )
                body = f'x="{x - 20}" y="{y[3]:.1f}" width="40" height="{y[1] - y[3]:.1f}"'
                lines.append(f"<rect {body} {style}/>")
                lines.append(f'<path d="M{x - 20} {y[2]:.1f}h40" {style}/>')
    return "\n".join([*lines, "</svg>", ""])


def opened(height: int) -> list[str]:
    """The beginning of a figure."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="760" height="{height}" fill="white"/>',
    ]


def legend(colours: dict[str, str], left: int = 672) -> list[str]:
    """The solvers and their colours."""
    lines = []
    for place, (solver, colour) in enumerate(colours.items()):
        y = 60 + 22 * place
        label = (LABELS | CIFAR_LABELS).get(solver, solver.capitalize())
        lines.append(f'<path d="M{left} {y}h20" stroke="{colour}" stroke-width="3"/>')
        lines.append(f'<text x="{left + 26}" y="{y + 4}">{label}</text>')
    return lines


FIGURES = {
    "paper-fig1.svg": boxes,
    **{f"paper-fig{n}.svg": partial(profiles, tau=tau) for n, tau in enumerate(TAUS, 2)},
}


def axes(left: float, label: str) -> list[str]:
    """Frame, ticks and labels of a panel with profiles."""
    ticks = [(WIDTH * np.log(ratio) / np.log(WORST_RATIO), f"{ratio}") for ratio in (1, 10, 100)]
    return frame(left, WIDTH, ticks, [(height, f"{height:g}") for height in (0, 0.5, 1)], label)


def frame(
    left: float,
    width: float,
    across: list[tuple[float, str]],
    upwards: list[tuple[float, str]],
    label: str,
) -> list[str]:
    """A panel's frame, and its ticks: across in pixels, upwards as fractions of the height."""
    lines = [f'<path d="M{left} 40V250H{left + width}" fill="none" stroke="#444"/>']
    for x, text in across:
        lines.append(f'<text x="{left + x:.0f}" y="266" text-anchor="middle">{text}</text>')
    for height, text in upwards:
        y = 254 - 210 * height
        lines.append(f'<text x="{left - 6}" y="{y:.0f}" text-anchor="end">{text}</text>')
    return [*lines, f'<text x="{left + width / 2}" y="288" text-anchor="middle">{label}</text>']


def cifar_curves(points: pd.DataFrame) -> str:
    """Fig. 5: accuracy on the test part and training loss against time; medians of the starts."""
    lines, width = opened(300), 240
    most = points["seconds"].max()
    step = 10.0 ** np.floor(np.log10(most))
    across = [(width * x / most, f"{x:g}") for x in np.arange(0, most + 1, step)]
    panels = (("accuracy", "accuracy on the test part"), ("train_loss", "training loss"))
    for left, (column, title) in zip((50, 350), panels, strict=True):
        highest = 1.0 if column == "accuracy" else 2.5
        lines.append(f'<text x="{left}" y="24" font-weight="bold">{title}</text>')
        upwards = [(part, f"{part * highest:g}") for part in (0, 0.2, 0.4, 0.6, 0.8, 1)]
        lines += frame(left, width, across, upwards, "seconds of the processor")
        for solver, colour in CIFAR_COLOURS.items():
            own = points[points["solver"] == solver]
            if own.empty:
                continue
            curve = own.groupby("step")[["seconds", column]].median().sort_index()
            heights = (curve[column] / highest).clip(0, 1)
            places = zip(curve["seconds"], heights, strict=True)
            outline = " ".join(
                f"{left + width * x / most:.1f},{250 - 210 * y:.1f}" for x, y in places
            )
            style = f'fill="none" stroke="{colour}" stroke-width="2"'
            lines.append(f'<polyline points="{outline}" {style}/>')
    shown = {
        solver: colour
        for solver, colour in CIFAR_COLOURS.items()
        if (points["solver"] == solver).any()
    }
    return "\n".join([*lines, *legend(shown, left=610), "</svg>", ""])


def cifar_table(points: pd.DataFrame) -> str:
    """Where the runs on CIFAR-10 end, and at half of the time: medians of the starts, and their range at the end."""
    lines = [
        "| | starts | epochs, half time → end | training loss | accuracy on the test part |",
        "|---|---|---|---|---|",
    ]
    found = points["solver"].unique()
    rows = [
        (CIFAR_LABELS.get(name, name.capitalize()), name) for name in CIFAR_COLOURS if name in found
    ]
    for label, solver in [*rows, *best_rates(points)]:
        own = points[points["solver"] == solver]
        early = _ends(own[own["seconds"] <= points["seconds"].max() / 2])
        late = _ends(own)
        cells = [
            _from_to(early[name], late[name], form)
            for name, form in (("epoch", ".1f"), ("train_loss", ".2f"), ("accuracy", ".1%"))
        ]
        lines.append(f"| {label} | {own['seed'].nunique()} | {' | '.join(cells)} |")
    return "\n".join(lines)


def best_rates(points: pd.DataFrame) -> list[tuple[str, str]]:
    """Label and solver of each rival's learning rate with the lowest loss, at the start that has all of its rates."""
    at_end = _ends(points).set_index(["solver", "seed"])["train_loss"]
    rows = []
    for rival, default in DEFAULT_RATES.items():
        others = [name for name in points["solver"].unique() if name.startswith(f"{rival} lr=")]
        if not others:
            continue
        seed = points.loc[points["solver"] == others[0], "seed"].iloc[0]
        best = min((rival, *others), key=lambda name, seed=seed: at_end[name, seed])
        rate = float(best.partition("lr=")[2] or default)
        label = CIFAR_LABELS.get(rival, rival.capitalize())
        rows.append((f"{label}, lr {rate:g}: best of {1 + len(others)}", best))
    return rows


def _ends(points: pd.DataFrame) -> pd.DataFrame:
    """The last point of each run."""
    return points.sort_values("step", kind="stable").groupby(["solver", "seed"]).tail(1)


def _from_to(early: pd.Series, late: pd.Series, form: str) -> str:
    """Medians of the starts at half time and at the end, there with their range."""
    ends = f" [{late.min():{form}}, {late.max():{form}}]" if len(late) > 1 else ""
    return f"{early.median():{form}} → {late.median():{form}}{ends}"


def outline(shares: pd.Series, left: float) -> str:
    """The steps of a profile as points of a polyline."""
    points, height = [], 0.0
    for ratio, share in shares[shares.index <= WORST_RATIO].items():
        x = left + WIDTH * np.log(ratio) / np.log(WORST_RATIO)
        points += [(x, height), (x, share)] if points else [(x, share)]
        height = share
    points.append((left + WIDTH, height))
    return " ".join(f"{x:.1f},{250 - 210 * y:.1f}" for x, y in points)


CIFAR_BLOCKS = {"cifar": cifar_table}
BLOCKS = {
    "table": table,
    "epochs": epochs,
    "losses": losses,
    "plateau": plateau,
    "areas": areas,
    **{study: partial(of_study, study) for study in ("budget", "coff")},
    "settings": partial(
        of_study, "plateau", title="left the constant, loss over variance", cell_of=_left_and_loss
    ),
}


def study(folder: Path, workers: int) -> None:
    """Run all studies of the page, one after the other, into folders of their names."""
    for name in (*STUDIES, "cifar"):
        for spec in specs_of(name):
            command = [sys.executable, "-m", "cmalight", "bench", "run", str(spec)]
            options = ["--out", str(folder / f"paper-{name}"), "--workers", str(workers)]
            subprocess.run([*command, *options], check=True)


def specs_of(study: str) -> list[Path]:
    """The specs of a study."""
    names = PARTS.get(study, (f"paper-{study}",))
    return [HERE.parent / "studies" / f"{name}.toml" for name in names]


def main() -> None:
    """What the command does."""
    parser = argparse.ArgumentParser(description="Write the numbers of paper.md.")
    parser.add_argument("--run", type=Path, metavar="FOLDER")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--collect", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.run:
        study(options.run, options.workers)
        return
    runs, cifar = pd.read_csv(RUNS), pd.read_csv(CIFAR)
    if options.collect:
        runs = merged(runs, collect(options.collect), IDENTITY)
        cifar = merged(cifar, collect_cifar(options.collect / "paper-cifar"), ["solver", "seed"])
        runs.to_csv(RUNS, index=False, float_format="%.6g")
        cifar.to_csv(CIFAR, index=False, float_format="%.6g")
    write(pd.read_csv(RUNS), pd.read_csv(CIFAR))


def write(runs: pd.DataFrame, cifar: pd.DataFrame) -> None:
    """The tables of the pages and the figures."""
    for page in PAGES:
        text = filled(page.read_text(encoding="utf-8"), BLOCKS, runs)
        page.write_text(filled(text, CIFAR_BLOCKS, cifar), encoding="utf-8")
    for name, draw in FIGURES.items():
        (HERE / name).write_text(draw(runs), encoding="utf-8")
    (HERE / "paper-fig5.svg").write_text(cifar_curves(cifar), encoding="utf-8")


if __name__ == "__main__":
    main()
