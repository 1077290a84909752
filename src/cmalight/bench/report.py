"""The report of a results folder: one page that works offline, and its tables as CSV files.

The page has the points of all runs as data, with the program that draws them: assets/compute.js repeats the definitions
of analysis.py for the solvers that are shown.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas

from cmalight.bench import analysis
from cmalight.bench.frames import Results, load
from cmalight.bench.spec import Spec
from cmalight.files import write_atomically

# The precisions to choose from.
TAUS = tuple(float(f"{digit}e-{power}") for power in range(1, 7) for digit in (3, 1))
# Points of all runs together that the page may have for its curves; a run has at least, and at most, this many.
MOST_POINTS, FEWEST_OF_A_RUN, MOST_OF_A_RUN = 120_000, 30, 400
_COURSE = ("epoch", "seconds", "work", "evaluated_passes", "train_loss", "validation_loss", "accuracy", "lr")
_FIGURES = (*analysis.FIGURES, "evaluated_passes", "accepted")
_FACTS = (
    *("budget_seconds", "budget_epochs", "budget_batches", "batch_size", "order", "clock", "engine_used", "threads"),
    *(
        "workers",
        "host",
        "cpu",
        "cores",
        "version_cmalight",
        "version_torch",
        "version_numpy",
        "version_python",
        "code",
    ),
)


def write_report(
    directory: str | Path,
    *,
    spec: Spec | str | Path | None = None,
    out: str | Path | None = None,
    recorded: bool = False,
) -> Path:
    """Write the report of a results folder: `index.html`, and `tables/` as CSV.

    The report shows the runs of the current spec, trained by the current code. One line on the page says how many other
    results the folder has.

    Args:
        directory: The results folder, or an archive of one.
        spec: The spec, by name, path or value; by default the one that the folder was made from.
        out: Folder of the report; by default `directory`/report, and NAME-report beside an archive.
        recorded: Show the runs of the last `bench run` in this folder whatever code trained them; the page says so.

    Returns:
        The path of `index.html`.

    Raises:
        ValueError: If there is no run to show.

    Example:
        >>> from cmalight import bench
        >>> bench.write_report("results").name
        'index.html'
    """
    source = Path(directory)
    found = load(source, spec)
    results = found.recorded() if recorded else found.current()
    others = len(found.runs) - len(results.runs)
    if not len(results.runs):
        why = f"its {others} results are of other code or of another spec" if others else "run a spec into it first"
        hint = "; `recorded` shows those of the last run" if others and not recorded else ""
        raise ValueError(f"{directory} has no results to report: {why}{hint}")
    notes = list(results.notes)
    if others:
        are = "result is" if others == 1 else "results are"
        notes.insert(0, f"Left out: {others} {are} of other code or of another spec")
    if recorded:
        codes = ", ".join(str(code)[:12] for code in results.runs["code"].unique())
        notes.insert(0, f"Recorded results, trained by code {codes}; the installed code may differ")
    name = source.resolve().name.removesuffix(".tar.xz")
    place = source / "report" if source.is_dir() else source.with_name(f"{name}-report")
    place = place if out is None else Path(out)
    tables = {"results.csv": analysis.results_table(results), "runs.csv": results.runs, "epochs.csv": results.epochs}
    html = render_page(results, title=name, notes=notes, tables=[f"tables/{file}" for file in tables])
    (place / "tables").mkdir(parents=True, exist_ok=True)
    for file, table in tables.items():
        write_atomically(place / "tables" / file, table.to_csv(index=False, lineterminator="\n"))
    write_atomically(place / "index.html", html)
    return place / "index.html"


def render_page(results: Results, *, title: str, notes: Sequence[str] = (), tables: Sequence[str] = ()) -> str:
    """The whole page; it loads nothing from elsewhere."""
    runs = results.runs
    counts = [f"{n} {noun}{'s' * (n != 1)}" for noun in ("problem", "solver") for n in [runs[noun].nunique()]]
    study = f"{title}: {', '.join(counts)}, {len(runs)} runs ({analysis.status_text(runs['status'])})"
    failed = runs.loc[runs["status"] != "done", ["solver", "problem", "seed", "status", "epochs", "error"]]
    failures = f'<section id="failed"><h2>Runs that failed</h2><div class="scroll">{_table(failed)}</div></section>'
    facts = pandas.DataFrame([(name, text) for name in _FACTS if (text := _values(runs[name]))])
    data = json.dumps(page_data(results), allow_nan=False, separators=(",", ":"))
    parts = {
        "title": escape(title),
        "study": escape(study),
        "notes": "".join(f'<p class="note">{escape(note)}</p>' for note in notes),
        "links": "".join(f'<a href="{escape(href)}">{escape(Path(href).name)}</a>' for href in tables),
        "failures": failures if len(failed) else "",
        "facts": _table(facts, header=False),
        "made": f"Made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "data": data.replace("<", "\\u003c"),
        "css": _asset("page.css"),
        "plotly": (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8"),
        "script": "".join(map(_asset, ("compute.js", "figures.js", "page.js"))),
    }
    # One pass, so that nothing in the data is taken for a mark.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], _asset("page.html"))


def page_data(results: Results) -> dict[str, Any]:
    """All that the page computes with, as plain values."""
    runs = results.runs
    problems, solvers = list(runs["problem"].unique()), list(runs["solver"].unique())
    points = _thinned(runs, results.epochs)
    ends = points["key"].value_counts().reindex(runs["key"], fill_value=0).cumsum()
    rows = runs[["seed", "status"]].assign(
        problem=runs["problem"].map(problems.index),
        solver=runs["solver"].map(solvers.index),
        begin=[0, *ends[:-1]],
        end=ends.to_numpy(),
        **{name: runs[name].astype(object).where(np.isfinite(runs[name]), None) for name in _FIGURES},
    )
    columns = {name: points[name].to_numpy(dtype="<f8") for name in _COURSE}
    return {
        "solvers": solvers,
        "problems": problems,
        "runs": rows.to_dict("records"),
        "points": {
            name: base64.b64encode(values.tobytes()).decode()
            for name, values in columns.items()
            if name == "train_loss" or np.isfinite(values).any()
        },
        "taus": TAUS,
        "tableTaus": analysis.TABLE_TAUS,
        "area": {"limit": analysis.AREA_LIMIT, "resamples": analysis.RESAMPLES, "level": analysis.LEVEL},
        "best": {column: analysis.BEST[measure] for measure, column in analysis.COLUMNS.items()},
    }


def _thinned(runs: pandas.DataFrame, epochs: pandas.DataFrame) -> pandas.DataFrame:
    """The points that the page gets, run by run.

    Long runs are thinned for the curves. The points at which a run reaches a target stay, for every precision and every
    choice of solvers, so that the costs on the page are exact.
    """
    most = int(np.clip(MOST_POINTS // max(len(runs), 1), FEWEST_OF_A_RUN, MOST_OF_A_RUN))
    by_run = dict(iter(epochs.sort_values("epoch", kind="stable").groupby("key", sort=False)))
    kept = {key: by_run[key] for key in runs["key"] if key in by_run}
    for _, start in runs.groupby(["problem", "seed"], sort=False):
        long = [key for key in start["key"] if len(kept.get(key, ())) > most]
        done = [by_run[key] for key in start.loc[start["status"] == "done", "key"] if long]
        targets = {loss: _targets(done, loss) for loss in analysis.LOSSES}
        for key in long:
            places = [_spread(len(by_run[key]), most)]
            places += [_reached(by_run[key], loss, losses) for loss, losses in targets.items()]
            kept[key] = by_run[key].iloc[np.unique(np.concatenate(places))]
    return pandas.concat(kept.values()) if kept else epochs


def _targets(done: Sequence[pandas.DataFrame], loss: str) -> npt.NDArray[np.float64]:
    """Every loss that can be the target: the lowest may be that of any of the runs."""
    measured = [points.loc[np.isfinite(points[loss]), loss] for points in done]
    lowest = np.array([losses.min() for losses in measured if len(losses)])
    start = max((losses.iloc[0] for losses in measured if len(losses)), default=0.0)
    return (lowest + np.outer(TAUS, start - lowest)).ravel()


def _reached(points: pandas.DataFrame, loss: str, targets: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Where the loss first is at most each target, and where it is lowest."""
    losses = points[loss].to_numpy()
    so_far = np.minimum.accumulate(np.where(np.isfinite(losses), losses, np.inf))
    first = np.searchsorted(-so_far, -np.append(targets, so_far[-1]))
    return first[first < len(losses)]


def _spread(count: int, most: int) -> npt.NDArray[np.int64]:
    """Half of the places evenly, half of them closer at the start, where losses fall; the first and the last."""
    even, close = np.linspace(0, count - 1, most // 2), np.geomspace(1, count, most // 2) - 1
    return np.unique(np.rint(np.concatenate([even, close]))).astype(np.int64)


def _values(column: pandas.Series[Any]) -> str:
    """All values that a column has, once each; of a digest the first digits."""
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in column.dropna().unique()]
    return ", ".join(text[:12] if re.fullmatch("[0-9a-f]{16,}", text) else text for text in texts)


def _table(frame: pandas.DataFrame, *, header: bool = True) -> str:
    with pandas.option_context("display.max_colwidth", None):
        return frame.to_html(index=False, header=header, classes="plain", border=0)


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
