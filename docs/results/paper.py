"""The numbers and the figure of paper.md, from the runs in paper.csv.

    python docs/results/paper.py                                writes the page's tables and its figure
    python docs/results/paper.py --collect PRINTED PUBLIC       makes paper.csv of two results folders first

Needs the `bench` extra; --collect also needs the data sets.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pages import filled

from cmalight.bench import load, performance_profile, solution_costs
from cmalight.bench.analysis import ratios, resampled

HERE = Path(__file__).parent
RUNS, FIGURE = HERE / "paper.csv", HERE / "paper.svg"
PAGES = (HERE / "paper.md", HERE / "paper-appendix.md")
COLUMNS = {
    "printed": ("printed", "cmalight"),
    "public code": ("public", "cmalight"),
    "COFF_IG": ("public", "coff"),
}
RIVALS = (
    "cma",
    "ig",
    "adadelta",
    "adagrad",
)  # that the paper says CMALight outperforms on big sets
BIG = ("blogfeedback", "skin-nonskin")
NETWORKS = ("1x50", "3x20", "5x50", "10x50")
SMALL = ("ailerons", "bikes", "california", "mv")
ALL = (*BIG, *SMALL)
WORST_RATIO, WIDTH = 100.0, 270
PLATEAU = (
    ("printed", "cmalight", "CMALight, printed"),
    ("public", "cmalight", "CMALight, public code"),
    ("public", "coff", "COFF_IG"),
    ("public", "adam", "Adam, public code"),
    ("public", "auto", "`Auto` (earlier watchdog)"),
)
CONSTANT = 0.98  # of the variance: a run that ends above has not left the constant prediction
RESAMPLES = 2000
PROBLEM = ["dataset", "network"]
READINGS = {"printed": "printed", "public": "public code"}
COLOURS = {
    "cmalight": "#0072b2",
    "coff": "#009e73",
    "cma": "#56b4e9",
    "ig": "#999999",
    "adam": "#d55e00",
    "adagrad": "#e69f00",
    "adadelta": "#cc79a7",
}
LABELS = {"cmalight": "CMALight", "coff": "COFF_IG", "cma": "CMA", "ig": "IG"}


def collect(folders: dict[str, Path]) -> pd.DataFrame:
    """One row per run, with what the page needs of it.

    Costs are in passes over the data, an evaluation counting as a third of one; targets are set by the paper's solvers
    and COFF_IG together.
    """
    from cmalight.datasets import load_dataset

    parts = []
    for reading, folder in folders.items():
        results = load(folder)
        runs = results.runs.set_index("key")
        ends = results.epochs[results.epochs["outcome"] == "accepted"]
        above = (ends["batch_loss"] >= ends["train_loss"]).groupby(ends["key"]).mean()
        table = pd.DataFrame({"reading": reading, "dataset": runs["dataset"]})
        table["network"] = runs["network"].str.removeprefix("paper:")
        for name in ("solver", "seed", "status", "epochs", "evaluations", "accepted"):
            table[name] = runs[name]
        table["above"] = above
        table["loss"] = runs["final_loss"]
        table["variance"] = runs["dataset"].map(
            {name: float(load_dataset(name).y_train.var()) for name in runs["dataset"].unique()}
        )
        compared = [name for name in runs["solver"].unique() if name != "auto"]
        for tau in (0.1, 0.01, 0.0001):
            costs = solution_costs(
                results, tau, measure="work", solvers=compared, per="seed", complete=False
            )
            cost_of = costs.stack()
            places = zip(runs["problem"], runs["seed"], runs["solver"], strict=True)
            table[f"work_{tau:g}"] = [cost_of.get(place, np.nan) for place in places]
        parts.append(table)
    return pd.concat(parts).rename_axis("key").reset_index()


def left_the_constant(runs: pd.DataFrame) -> pd.Series:
    """Whether each run ended below the loss of the best constant prediction."""
    return runs["loss"] < CONSTANT * runs["variance"]


class Column:
    """One method in one reading, on the problems that decide something.

    A problem decides unless most runs of the paper's six solvers, the method in CMALight's place, stay at the constant.
    """

    def __init__(self, runs: pd.DataFrame, reading: str, method: str) -> None:
        six = (method, "adam", *RIVALS)
        self.runs = runs[(runs["reading"] == reading) & runs["solver"].isin(six)]
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
    """A number with its 95 % bootstrap interval over problems, and what it says about the claim."""

    value: float
    low: float
    high: float
    deciding: int
    problems: int
    claim: tuple[float, float]

    @property
    def verdict(self) -> str:
        """The same rule for all rows."""
        if 2 * self.deciding < self.problems:
            return "not decided"
        least, most = self.claim
        if least <= self.low and self.high <= most:
            return "yes"
        return "no" if self.high < least or most < self.low else "open"

    def __str__(self) -> str:
        if not self.deciding:
            return f"– (0 of {self.problems})"
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


def above(column: Column) -> tuple[list[pd.Series], int]:
    """Share of accepted epochs whose estimate lies above the loss at their end."""
    return [column.means(column.runs["above"], column.method).dropna()], len(column.problems)


def shares_of_area(costs: pd.DataFrame) -> pd.DataFrame:
    """What each problem adds to the area under the profiles, from 0 to 1."""
    return (1 - np.log(ratios(costs)) / np.log(WORST_RATIO)).clip(0, 1)


def gains(column: Column, cost: str, datasets: tuple[str, ...]) -> tuple[list[pd.Series], int]:
    """What each problem adds to the area under the profile: the method's, and those of the four rivals."""
    shares = shares_of_area(column.costs(cost, datasets))
    wanted = column.problems.get_level_values("dataset").isin(datasets).sum()
    return [shares[name] for name in (column.method, *RIVALS)], int(wanted)


# What is measured, how its parts become one number, and the range in which the paper's sentence is right.
ROWS = {
    "evaluations per epoch, over CMA's (at most half)": (
        evaluations,
        lambda own, cma: own / cma,
        (0.0, 0.5),
    ),
    "acceptance, minus CMA's (slightly lower: −0.1 to −0.01)": (
        acceptance,
        lambda own, cma: own - cma,
        (-0.1, -0.01),
    ),
    "f̃ above f, share of epochs (often: at least half)": (above, lambda own: own, (0.5, 1.0)),
    "low precision, 0.1, big sets: profile area minus the best rival's (above 0)": (
        lambda column: gains(column, "work_0.1", BIG),
        lambda own, *rivals: own - max(rivals),
        (0.0, 1.0),
    ),
    "high precision, 10⁻⁴, big sets: the same (above 0)": (
        lambda column: gains(column, "work_0.0001", BIG),
        lambda own, *rivals: own - max(rivals),
        (0.0, 1.0),
    ),
}


def cell(column: Column, row: str) -> Cell:
    """The number of a row in a column."""
    measure, combined, claim = ROWS[row]
    parts, problems = measure(column)
    values = np.stack(parts, axis=1)
    if not len(values):
        return Cell(np.nan, np.nan, np.nan, 0, problems, claim)
    drawn = [combined(*values[rows].mean(axis=0)) for rows in resampled(len(values), RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Cell(combined(*values.mean(axis=0)), low, high, len(values), problems, claim)


def table(runs: pd.DataFrame) -> str:
    """The table of the page."""
    columns = {name: Column(runs, *of) for name, of in COLUMNS.items()}
    lines = [f"| claim | {' | '.join(columns)} | verdict |", "|---|---|---|---|---|"]
    for row in ROWS:
        cells = {name: cell(column, row) for name, column in columns.items()}
        printed, public = (cells[name].verdict for name in ("printed", "public code"))
        verdict = printed if printed == public else f"printed: {printed}; public code: {public}"
        lines.append(f"| {row} | {' | '.join(map(str, cells.values()))} | {verdict} |")
    lines.append("| CIFAR-10: ahead of Adam, Adagrad, Adadelta | – | – | – | not tried |")
    return "\n".join(lines)


def plateau(runs: pd.DataFrame) -> str:
    """How many runs left the constant, by network."""
    lines = [
        f"| left the constant | {' | '.join(f'[{one}]' for one in NETWORKS)} |",
        "|---|---|---|---|---|",
    ]
    for reading, solver, label in PLATEAU:
        own = runs[(runs["reading"] == reading) & (runs["solver"] == solver)]
        left = left_the_constant(own).groupby(own["network"])
        shares = [f"{left.sum()[one]} of {left.size()[one]}" for one in NETWORKS]
        lines.append(f"| {label} | {' | '.join(shares)} |")
    return "\n".join(lines)


def areas(runs: pd.DataFrame) -> str:
    """Areas under the performance profiles, on the problems that decide."""
    names = [LABELS.get(solver, solver.capitalize()) for solver in COLOURS]
    lines = [
        f"| reading, sets, precision | problems | {' | '.join(names)} |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for reading, title in READINGS.items():
        for kind, datasets in (("small", SMALL), ("big", BIG)):
            for tau in ("0.1", "0.0001"):
                costs = all_costs(runs, reading, f"work_{tau}", datasets)
                if len(costs):
                    found = shares_of_area(costs).mean()
                    values = " | ".join(f"{found[solver]:.2f}" for solver in COLOURS)
                else:
                    values = " | ".join("–" for _ in COLOURS)
                lines.append(f"| {title}, {kind}, {tau} | {len(costs)} | {values} |")
    return "\n".join(lines)


def all_costs(
    runs: pd.DataFrame, reading: str, cost: str, datasets: tuple[str, ...]
) -> pd.DataFrame:
    """Costs of the paper's solvers and COFF_IG, on the problems that decide for CMALight."""
    own = Column(runs, reading, "cmalight").costs(cost, datasets)
    coff = runs[(runs["reading"] == reading) & (runs["solver"] == "coff")]
    return own.join(coff.groupby(PROBLEM)[cost].median().rename("coff"))


def figure(runs: pd.DataFrame) -> str:
    """Performance profiles at precision 0.1 on the problems that decide, as SVG."""
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 300" font-family="sans-serif" font-size="12">',
        '<rect width="760" height="300" fill="white"/>',
    ]
    for left, (reading, title) in zip((50, 370), READINGS.items(), strict=True):
        costs = all_costs(runs, reading, "work_0.1", ALL)
        lines.append(
            f'<text x="{left}" y="24" font-weight="bold">{title}: {len(costs)} problems</text>'
        )
        lines += axes(left)
        shares = performance_profile(costs)
        for solver, colour in COLOURS.items():
            points = outline(shares[solver], left)
            lines.append(
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
    for place, (solver, colour) in enumerate(COLOURS.items()):
        y = 60 + 22 * place
        lines.append(f'<path d="M672 {y}h20" stroke="{colour}" stroke-width="3"/>')
        lines.append(f'<text x="698" y="{y + 4}">{LABELS.get(solver, solver.capitalize())}</text>')
    return "\n".join([*lines, "</svg>", ""])


def axes(left: float) -> list[str]:
    """Frame, ticks and labels of a panel."""
    lines = [f'<path d="M{left} 40V250H{left + WIDTH}" fill="none" stroke="#444"/>']
    for ratio in (1, 10, 100):
        x = left + WIDTH * np.log(ratio) / np.log(WORST_RATIO)
        lines.append(f'<text x="{x:.0f}" y="266" text-anchor="middle">{ratio}</text>')
    for share in (0, 0.5, 1):
        lines.append(
            f'<text x="{left - 6}" y="{254 - 210 * share:.0f}" text-anchor="end">{share:g}</text>'
        )
    label = "work over the least work, at precision 0.1"
    return [*lines, f'<text x="{left + WIDTH / 2}" y="288" text-anchor="middle">{label}</text>']


def outline(shares: pd.Series, left: float) -> str:
    """The steps of a profile as points of a polyline."""
    points, height = [], 0.0
    for ratio, share in shares[shares.index <= WORST_RATIO].items():
        x = left + WIDTH * np.log(ratio) / np.log(WORST_RATIO)
        points += [(x, height), (x, share)] if points else [(x, share)]
        height = share
    points.append((left + WIDTH, height))
    return " ".join(f"{x:.1f},{250 - 210 * y:.1f}" for x, y in points)


BLOCKS = {"table": table, "plateau": plateau, "areas": areas}


def main() -> None:
    """What the command does."""
    parser = argparse.ArgumentParser(description="Write the numbers of paper.md.")
    parser.add_argument("--collect", nargs=2, type=Path, metavar=("PRINTED", "PUBLIC"))
    folders = parser.parse_args().collect
    if folders:
        collected = collect(dict(zip(("printed", "public"), folders, strict=True)))
        collected.to_csv(RUNS, index=False, float_format="%.6g")
    runs = pd.read_csv(RUNS)
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), BLOCKS, runs), encoding="utf-8")
    FIGURE.write_text(figure(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
