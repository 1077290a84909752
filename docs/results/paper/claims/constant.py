"""How many runs end no better than a constant, whose loss is the variance of the target."""

from collections.abc import Sequence

import pandas
from targets import targets

from claims.measures import NAMES, PAPER, network_order, percent
from cmalight import bench

NEARLY = 0.98  # of the variance: a run that ends above it has learnt next to nothing
FAR = 1.2  # times the variance: worse than the constant that fits


def relative(results: bench.Results) -> pandas.DataFrame:
    """The finished runs on tables, with `of_variance`: their last loss over the variance of the target."""
    runs = results.runs[results.runs["status"] == "done"]
    found = targets(sorted(runs["dataset"].unique()))
    variance = runs["dataset"].map({name: one.variance for name, one in found.items()})
    variance = variance.astype("float64")  # also of no runs
    return runs.assign(of_variance=runs["final_loss"] / variance).dropna(subset=["of_variance"])


def stays(results: bench.Results) -> "pandas.Series[bool]":
    """By key, whether a run ended no better than the constant."""
    return relative(results).set_index("key")["of_variance"] > NEARLY


def shares(results: bench.Results, solvers: Sequence[str] = PAPER) -> str:
    """In words, for a row: the share of such runs of each solver."""
    runs = relative(results)
    stuck = (runs["of_variance"] > NEARLY).groupby(runs["solver"]).mean()
    texts = [f"{NAMES[one]} {percent(stuck[one])}" for one in solvers if one in stuck]
    others = set(results.runs["solver"]) - set(
        results.runs[results.runs["status"] == "done"]["solver"]
    )
    texts += [f"{NAMES[one]} (no run ended)" for one in solvers if texts and one in others]
    return ", ".join(texts)


def disclosed(results: bench.Results, solvers: Sequence[str] = PAPER) -> str:
    found = shares(results, solvers)
    return f" Runs that end no better than a constant: {found}." if found else ""


def table(results: bench.Results) -> str:
    """By solver and network the share of such runs, and of those that end far above the constant."""
    runs = relative(results)
    stuck, far = runs["of_variance"] > NEARLY, runs["of_variance"] > FAR
    networks = network_order(runs["network"].unique())
    heads = [f"[{name.removeprefix('paper:')}]" for name in networks]
    rows = [
        f"| solver | {' | '.join(heads)} | all | of all, above {FAR:g} x the variance |",
        "|---" + "|---:" * (len(heads) + 2) + "|",
    ]
    for solver in [one for one in PAPER if (runs["solver"] == one).any()]:
        is_its = runs["solver"] == solver
        cells = [percent(stuck[is_its & (runs["network"] == one)].mean()) for one in networks]
        cells += [percent(stuck[is_its].mean()), percent(far[is_its].mean())]
        rows.append(f"| {NAMES[solver]} | {' | '.join(cells)} |")
    return "\n".join(rows)


def first_epochs(results: bench.Results) -> str:
    """What the first step size leads to: how many epochs CMALight undoes before it keeps one, and where IG goes."""
    runs = results.runs[results.runs["status"] == "done"].set_index("key")
    epochs = results.epochs.sort_values(["key", "epoch"])
    solver = epochs["key"].map(runs["solver"])
    moved = epochs[(solver == "cmalight") & (epochs["alpha"] > 0)].groupby("key")["epoch"].min()
    light = runs[runs["solver"] == "cmalight"]
    undone = moved.reindex(light.index).fillna(light["epochs"])
    plain = epochs[(solver == "ig") & (epochs["epoch"] == 0)].set_index("key")["train_loss"]
    above = plain > runs["initial_loss"].reindex(plain.index)
    return (
        f"CMALight undoes its first epoch in {percent((undone > 0).mean())} of its runs, and the median of the "
        f"epochs it undoes before it keeps one is {undone.median():g}; IG, which undoes nothing, is above f(w⁰) "
        f"after its first epoch in {percent(above.mean())} of its runs"
    )
