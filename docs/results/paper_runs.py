"""The published runs of paper.md: which studies they are of, and how they come out of results folders."""

from pathlib import Path

import numpy as np
import pandas as pd

from cmalight.bench import Results, load, solution_costs

HERE = Path(__file__).parent
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
TAUS = ("0.1", "0.01", "0.0001")


def collect(folder: Path) -> list[pd.DataFrame]:
    """For each study that is in a folder one row per run and budget, with what the page needs of it.

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
        rows = []
        for budget in budgets:
            table = within(results, budget, is_last=budget == max(budgets))
            table["variance"] = table["dataset"].map(variances)
            table["network"] = table["network"].str.removeprefix("paper:")
            rows.append(table.assign(reading=study, budget=budget))
        parts.append(pd.concat(rows))
    return parts


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


def collect_cifar(folder: Path) -> list[pd.DataFrame]:
    """Loss and accuracy of each run on CIFAR-10 at its measured points, if there are any in a folder."""
    if not (folder / "paper-cifar").is_dir():
        return []
    results = load(folder / "paper-cifar").recorded()
    runs = results.runs[["key", "solver", "seed"]]
    columns = ["solver", "seed", "step", "seconds", "epoch", "train_loss", "accuracy"]
    return [results.points.merge(runs, on="key")[columns]]


def renewed(old: pd.DataFrame, parts: list[pd.DataFrame], identity: list[str]) -> pd.DataFrame:
    """The old rows with those of newer runs in the place of the same runs."""
    for new in parts:
        known = pd.MultiIndex.from_frame(new[identity])
        kept = ~pd.MultiIndex.from_frame(old[identity]).isin(known)
        old = pd.concat([old[kept], new], ignore_index=True)
    return old


def specs_of(study: str) -> list[Path]:
    """The specs of a study."""
    names = PARTS.get(study, (f"paper-{study}",))
    return [HERE.parent / "studies" / f"{name}.toml" for name in names]


def longest(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs at the longest budget of their study."""
    return runs[runs["budget"] == runs["reading"].map(lambda study: max(STUDIES[study]))]
