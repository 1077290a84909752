"""What tables and figures call a run: its solver, its problem, and the family of problems that differ in the seed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cmalight.bench.spec.study import PROBLEM_CONDITIONS

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Labelled:
    """Runs with the columns `label` (solver), `net`, `family` and `problem`; a problem has a solver once.

    solvers: labels, in the order in which a problem is given to them
    left_out: runs of a problem and a solver that are there more than once; the last to finish is kept
    """

    runs: pandas.DataFrame
    solvers: list[str]
    left_out: int


def labelled(runs: pandas.DataFrame) -> Labelled:
    runs = runs.copy()
    options = {name: _distinct(runs, name) for name in ("solver_options", "network_options")}
    runs["label"] = _with_options(runs, "solver", "solver_options", options["solver_options"])
    runs["net"] = _with_options(runs, "network", "network_options", options["network_options"])
    runs["variant"] = _variants(runs)
    runs["family"] = runs["dataset"].astype(str) + " · " + runs["net"] + runs["variant"]
    runs["problem"] = runs["family"] + " · seed " + runs["seed"].astype(str)
    kept = runs.sort_values("finished", kind="stable").drop_duplicates(["problem", "label"], keep="last")
    order = ["dataset", "net", "variant", "seed", "started"]
    return Labelled(
        kept.sort_values(order, kind="stable").reset_index(drop=True), _in_order(kept), len(runs) - len(kept)
    )


def _in_order(runs: pandas.DataFrame) -> list[str]:
    """Solvers as the spec has them: by their place within their problems, over which runs side by side even out."""
    places = runs.groupby("problem")["started"].rank()
    return [str(label) for label in places.groupby(runs["label"]).mean().sort_values(kind="stable").index]


def _distinct(runs: pandas.DataFrame, options: str) -> set[str]:
    """Names that stand for more than one set of options."""
    name = options.partition("_")[0]
    counts = runs.groupby(name, observed=True)[options].nunique(dropna=False)
    return {str(one) for one in counts[counts > 1].index}


def _with_options(runs: pandas.DataFrame, name: str, options: str, ambiguous: set[str]) -> Any:
    texts = {text: options_text(text) for text in runs[options].unique()}
    return [
        f"{one} ({texts[text]})" if one in ambiguous else one
        for one, text in zip(runs[name].astype(str), runs[options], strict=True)
    ]


def options_text(options: Any) -> str:
    """`lr=0.01, nesterov=true`."""
    try:
        plain = json.loads(options)
    except (TypeError, ValueError):
        plain = {}
    parts = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in plain.items()]
    return ", ".join(parts) or "defaults"


def _variants(runs: pandas.DataFrame) -> list[str]:
    """Conditions and data that differ between runs of one data set and network, as text behind their names."""
    texts = [""] * len(runs)
    positions = {index: place for place, index in enumerate(runs.index)}
    for _, group in runs.groupby([runs["dataset"].astype(str), runs["net"]], observed=True):
        columns = {
            condition: group[condition].map(_condition_text) for condition in PROBLEM_CONDITIONS if condition in group
        }
        columns["data"] = group["data_sha256"].map(lambda one: one[:8] if isinstance(one, str) else None)
        if columns["data"].nunique() == 1:  # a run that crashed does not say what data it had
            columns["data"] = columns["data"].ffill().bfill()
        differing = [name for name, column in columns.items() if column.nunique(dropna=False) > 1]
        for index in group.index if differing else ():
            conditions = ", ".join(f"{name.replace('_', ' ')} {columns[name][index] or '?'}" for name in differing)
            texts[positions[index]] = f" · {conditions}"
    return texts


def _condition_text(value: Any) -> str:
    import pandas

    if pandas.isna(value):
        return "none"
    return f"{value:g}" if isinstance(value, int | float) else str(value)
