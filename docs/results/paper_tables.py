"""The other tables of paper.md and its appendix."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pandas as pd
from paper_claims import (
    BIG,
    PAPER,
    READINGS,
    SMALL,
    all_costs,
    left_the_constant,
    shares_of_area,
    table,
)
from paper_runs import longest

NETWORKS = ("1x50", "3x20", "5x50", "10x50")
KINDS = {"small": SMALL, "big": BIG}
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
# Study, solver and label of the rows of tables by network.
SOLVERS = [
    (study, solver, f"{LABELS.get(solver, solver.capitalize())}, {reading}")
    for study, reading in READINGS.items()
    for solver in (*PAPER, "auto")
]
# Torch's defaults, with which the rivals on CIFAR-10 have three starts.
DEFAULT_RATES = {"adam": 1e-3, "adagrad": 1e-2, "adadelta": 1.0, "sgd-momentum": 1e-3}


def epochs(runs: pd.DataFrame) -> str:
    """How many epochs a run has, by solver and study: medians by network at the longest budget."""
    return _by_network(longest(runs), "epochs", lambda there: f"{there['epochs'].median():,.0f}")


def plateau(runs: pd.DataFrame) -> str:
    """How many runs left the constant by network, at the shortest and at the longest budget."""
    return _by_network(runs, "left the constant", _left)


def losses(runs: pd.DataFrame) -> str:
    """The loss over the variance by network: geometric means over data sets and starts, at both budgets."""
    return _by_network(runs, "loss over variance", _relative_loss)


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
                costs = all_costs(runs, reading, tau, datasets)
                found = shares_of_area(costs).mean() if len(costs) else {}
                cells = [f"{found[name]:.2f}" if name in found else "–" for name in solvers]
                lines.append(f"| {title}, {kind}, {tau} | {len(costs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def of_study(study: str, runs: pd.DataFrame) -> str:
    """The losses of a further study over the variance, by solver and network."""
    own = runs[runs["reading"] == study]
    rows = [
        (study, solver, LABELS.get(solver, solver.capitalize()))
        for solver in own["solver"].unique()
    ]
    networks = [f"[{one}]" for one in own["network"].unique()]
    return _grid(own, "loss over variance", networks, rows, _relative_loss)


def settings(runs: pd.DataFrame) -> str:
    """What leaves the constant: one row per network and its first weights, one column per setting of CMALight."""
    own = runs[runs["reading"] == "plateau"]
    columns = sorted(own["solver"].unique())
    lines = [f"| network, first weights | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for network in own["network"].unique():
        size, _, weights = network.partition(", ")
        there = own[own["network"] == network]
        cells = [
            f"{_left(run)}, {_relative_loss(run)}"
            for run in (there[there["solver"] == one] for one in columns)
        ]
        lines.append(f"| [{size}], {weights or 'torch'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_network(runs: pd.DataFrame, title: str, cell_of: Callable[[pd.DataFrame], str]) -> str:
    rows = [row for row in SOLVERS if has(runs, *row[:2])]
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


def has(runs: pd.DataFrame, reading: str, solver: str) -> bool:
    """Whether there are runs of a solver in a reading."""
    return bool(((runs["reading"] == reading) & (runs["solver"] == solver)).any())


def _left(runs: pd.DataFrame) -> str:
    return f"{left_the_constant(runs).sum()} of {len(runs)}"


def _relative_loss(runs: pd.DataFrame) -> str:
    """A run that failed or diverged counts as one that stayed at the constant."""
    relative = (runs["loss"] / runs["variance"]).fillna(1.0).clip(lower=1e-12)
    return f"{np.exp(np.log(relative).mean()):.2g}"


def cifar_table(points: pd.DataFrame) -> str:
    """The runs on CIFAR-10 at half of the time and at the end: medians of the starts, and their range at the end."""
    lines = [
        "| | starts | epochs, half time → end | training loss | accuracy on the test part |",
        "|---|---|---|---|---|",
    ]
    found = points["solver"].unique()
    shown = [
        (_cifar_label(name), points[points["solver"] == name])
        for name in CIFAR_COLOURS
        if name in found
    ]
    for label, own in [*shown, *best_rates(points)]:
        late = at_times(own, [points["seconds"].max()])
        early = at_times(own, [points["seconds"].max() / 2])
        cells = [
            _from_to(early[name], late[name], form)
            for name, form in (("epoch", ".1f"), ("train_loss", ".2f"), ("accuracy", ".1%"))
        ]
        lines.append(f"| {label} | {own['seed'].nunique()} | {' | '.join(cells)} |")
    return "\n".join(lines)


def at_times(points: pd.DataFrame, times: list[float] | np.ndarray) -> pd.DataFrame:
    """What the runs had reached at some times, between two measured points on the line through them."""
    rows = []
    for (solver, seed), run in points.groupby(["solver", "seed"]):
        run = run.sort_values("step")
        columns = ("epoch", "train_loss", "accuracy")
        values = {name: np.interp(times, run["seconds"], run[name]) for name in columns}
        rows.append(pd.DataFrame({"solver": solver, "seed": seed, "seconds": times, **values}))
    return pd.concat(rows, ignore_index=True)


def best_rates(points: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Each rival's learning rate with the lowest training loss: its label, and its points at the start that has all."""
    rows = []
    for rival, default in DEFAULT_RATES.items():
        others = [name for name in points["solver"].unique() if name.startswith(f"{rival} lr=")]
        if not others:
            continue
        seed = points.loc[points["solver"] == others[0], "seed"].iloc[0]
        tried = points[points["solver"].isin([rival, *others]) & (points["seed"] == seed)]
        losses = tried.sort_values("step").groupby("solver")["train_loss"].last().fillna(np.inf)
        best = losses.idxmin()
        rate = float(best.partition("lr=")[2] or default)
        label = f"{_cifar_label(rival)}, best of {1 + len(others)} rates: {rate:g}"
        rows.append((label, tried[tried["solver"] == best]))
    return rows


def _cifar_label(solver: str) -> str:
    return CIFAR_LABELS.get(solver, solver.capitalize())


def _from_to(early: pd.Series, late: pd.Series, form: str) -> str:
    """Medians of the starts at half time and at the end, there with their range."""
    ends = f" [{late.min():{form}}, {late.max():{form}}]" if len(late) > 1 else ""
    return f"{early.median():{form}} → {late.median():{form}}{ends}"


CIFAR_BLOCKS = {"cifar": cifar_table}


BLOCKS = {
    "table": table,
    "epochs": epochs,
    "losses": losses,
    "plateau": plateau,
    "areas": areas,
    **{study: partial(of_study, study) for study in ("budget", "coff")},
    "settings": settings,
}
