"""The page: the points of all runs as data, with the program that draws them, in one HTML file."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cmalight.bench import analysis
from cmalight.errors import needed

if TYPE_CHECKING:
    import pandas

# The precisions of the slider.
TAUS = tuple(float(f"{digit}e-{power}") for power in range(1, 7) for digit in (3, 1))
# Points of all runs together that the page may have for its curves; a run has at least, and at most, this many.
MOST_POINTS, FEWEST_OF_A_RUN, MOST_OF_A_RUN = 200_000, 30, 400
_COLUMNS = {
    "epoch": "float32",
    "seconds": "float32",
    "work": "float32",
    "evaluations": "float32",
    "train_loss": "float64",
    "validation_loss": "float64",
    "accuracy": "float32",
    "lr": "float32",
}
# What a run was trained with and on; a title for each.
_FACTS = {
    "budget_seconds": "time limit, s",
    "budget_epochs": "epochs",
    "budget_batches": "batches",
    "batch_size": "batch size",
    "order": "order of the batches",
    "clock": "clock",
    "engine_used": "engine",
    "threads": "threads",
    "workers": "runs at once",
    "host": "machine",
    "cpu": "processor",
    "cores": "cores",
    "version_cmalight": "cmalight",
    "version_torch": "torch",
    "version_numpy": "numpy",
    "version_python": "python",
    "code": "code",
}
# Colours of Okabe and Ito, and of Tol, that can be told apart without colour vision and on white.
_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#332288",
    "#56B4E9",
    "#882255",
    "#666666",
    "#999933",
)
_DASHES = ("solid", "dash", "dot", "dashdot")


def render_page(results: analysis.Frames, *, title: str, notes: Sequence[str], tables: Sequence[str]) -> str:
    """The whole page; it loads nothing from elsewhere.

    Args:
        results: The runs to show and their points.
        title: Name of the study.
        notes: Sentences to show beside the comparison.
        tables: Relative addresses of tables to link to.

    Returns:
        The text of the HTML file.
    """
    data = page_data(results, title=title, notes=notes, tables=tables)
    parts = {
        "css": _asset("page.css"),
        "plotly": _plotly(),
        "data": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "script": "\n".join(_asset(name) for name in ("compute.js", "figures.js", "view.js", "tables.js", "page.js")),
    }
    # One pass, so that nothing in the data is taken for a mark.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], _asset("page.html"))


def page_data(results: analysis.Frames, *, title: str, notes: Sequence[str], tables: Sequence[str]) -> dict[str, Any]:
    """All that the page shows, as plain values."""
    runs = results.runs.reset_index(drop=True)
    solvers, problems = list(runs["solver"].unique()), list(runs["problem"].unique())
    runs = runs.assign(evaluations=runs["evaluated_rows"] / runs["n_samples"])
    epochs = results.epochs.assign(evaluations=analysis.passes_evaluated(runs, results.epochs))
    epochs = epochs.sort_values(["key", "epoch"], kind="stable")
    places = _places(runs, epochs)
    begins = np.cumsum([0, *(len(place) for place in places)]).tolist()
    points = epochs.iloc[np.concatenate([np.array([], dtype=np.int64), *places])]
    figures = [*analysis.FIGURES, "evaluations", "accepted", "epochs"]
    rows = [
        {
            "problem": problems.index(run["problem"]),
            "solver": solvers.index(run["solver"]),
            "seed": int(run["seed"]),
            "status": str(run["status"]),
            "error": run["error"] if isinstance(run["error"], str) else "",
            "begin": begins[place],
            "end": begins[place + 1],
            **{name: _number(run[name]) for name in figures},
        }
        for place, run in enumerate(runs.to_dict("records"))
    ]
    return {
        "title": title,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "solvers": [{"name": str(name), **look} for name, look in zip(solvers, looks(len(solvers)), strict=True)],
        "problems": [str(name) for name in problems],
        "runs": rows,
        "points": {name: _packed(points[name], kind) for name, kind in _COLUMNS.items() if points[name].notna().any()},
        "taus": TAUS,
        "tableTaus": analysis.TABLE_TAUS,
        "area": {"limit": analysis.AREA_LIMIT, "resamples": analysis.RESAMPLES, "level": analysis.LEVEL},
        "words": analysis.SUMMARY_WORDS,
        "notes": list(notes),
        "facts": [(name, text) for column, name in _FACTS.items() if (text := _values(runs[column]))],
        "tables": list(tables),
    }


def looks(count: int) -> list[dict[str, str]]:
    """Colour and dash of each solver; no two alike among the first 40."""
    first = len(_COLOURS)
    return [{"colour": _COLOURS[n % first], "dash": _DASHES[n // first % len(_DASHES)]} for n in range(count)]


def _places(runs: pandas.DataFrame, epochs: pandas.DataFrame) -> list[npt.NDArray[np.int64]]:
    """For each run, which rows of `epochs` the page gets.

    Long runs are thinned for the curves. The points at which a run reaches a target stay, for every precision of the
    slider and every choice of solvers, so that the costs on the page are exact.
    """
    rows = {str(key): np.asarray(found) for key, found in epochs.groupby("key", sort=False).indices.items()}
    losses = [epochs[name].to_numpy(dtype=np.float64) for name in analysis.LOSSES]
    most = int(np.clip(MOST_POINTS // max(len(runs), 1), FEWEST_OF_A_RUN, MOST_OF_A_RUN))
    places: list[npt.NDArray[np.int64]] = [np.array([], dtype=np.int64)] * len(runs)
    for _, start in runs.groupby(["problem", "seed"], sort=False):
        found = [rows.get(str(key), np.array([], dtype=np.int64)) for key in start["key"]]
        done = [place for place, status in zip(found, start["status"], strict=True) if status == "done"]
        targets = [_targets([loss[place] for place in done]) for loss in losses]
        for number, place in zip(start.index, found, strict=True):
            kept = place
            if len(place) > most:
                chosen = [
                    _spread(len(place), most),
                    *(_reached(loss[place], t) for loss, t in zip(losses, targets, strict=True)),
                ]
                kept = place[np.unique(np.concatenate(chosen))]
            places[int(number)] = kept
    return places


def _targets(losses: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Every loss that can be the target: the lowest may be that of any of the runs."""
    measured = [loss[np.isfinite(loss)] for loss in losses]
    lowest = np.array([loss.min() for loss in measured if len(loss)])
    if not len(lowest):
        return lowest
    start = max(loss[0] for loss in measured if len(loss))
    targets: npt.NDArray[np.float64] = (lowest + np.array(TAUS)[:, None] * (start - lowest)).ravel()
    return targets


def _reached(loss: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Where the loss first is at most each target, and where it is lowest."""
    so_far = np.minimum.accumulate(np.where(np.isfinite(loss), loss, np.inf))
    first = np.searchsorted(-so_far, -np.append(targets, so_far[-1]))
    return first[first < len(loss)]


def _spread(count: int, most: int) -> npt.NDArray[np.int64]:
    """Half of the places evenly, half of them closer at the start, where losses fall; the first and the last."""
    even, close = np.linspace(0, count - 1, most // 2), np.geomspace(1, count, most // 2) - 1
    return np.unique(np.rint(np.concatenate([even, close])).astype(np.int64))


def _packed(values: pandas.Series[Any], kind: str) -> dict[str, str]:
    """Numbers as little-endian bytes in base 64, as Plotly writes them."""
    numbers = values.to_numpy(dtype=np.float64).astype(np.dtype(kind).newbyteorder("<"))
    return {"dtype": kind, "bdata": base64.b64encode(numbers.tobytes()).decode()}


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _values(column: Iterable[Any]) -> str:
    """All values that a column has, once each."""
    texts: dict[str, None] = {}
    for value in column:
        if isinstance(value, str):
            texts[value[:12] if re.fullmatch("[0-9a-f]{16,}", value) else value] = None
        elif value is not None and math.isfinite(value):
            texts[f"{value:g}"] = None
    return ", ".join(texts)


def _plotly() -> str:
    with needed("A report needs plotly, which is not installed", "bench"):
        return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
