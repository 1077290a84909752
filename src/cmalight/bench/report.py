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
import pandas

from cmalight.bench import analysis
from cmalight.bench.frames import Results, load
from cmalight.bench.spec import Spec
from cmalight.bench.store import write_file

# The precisions to choose from.
TAUS = tuple(float(f"{digit}e-{power}") for power in range(1, 7) for digit in (3, 1))
_POINTS = ("epoch", "seconds", "work", "evaluated_passes", "train_loss", "validation_loss", "accuracy", "lr")
_OF_A_RUN = (*analysis.REACHED, "epochs", "evaluations", "evaluated_passes", "accepted")
_FACTS = (
    *("budget_seconds", "budget_epochs", "budget_batches", "batch_size", "order", "clock", "engine_used", "threads"),
    *("workers", "host", "cpu", "cores", "version_cmalight", "version_torch", "version_numpy", "version_python"),
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
        ValueError: If there is no run to show, or the place of the report is a symbolic link.

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
        hint = "" if recorded else "; `recorded` shows those of the last run"
        why = [f"its {others} results are of other code or of another spec{hint}"] if others else []
        why = [*why, *results.obstacles] or ["run a spec into it first"]
        raise ValueError(f"{directory} has no results to report: {'; '.join(why)}")
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
    for part in (place / "tables", *([place] if out is None else [])):
        if part.is_symlink():  # the folder may come from others
            raise ValueError(f"{part} is a symbolic link; delete it, or choose another folder with `out`")
    table = analysis.results_table(analysis.best_of_grid(results))
    tables = {"results.csv": table, "runs.csv": results.runs, "points.csv": results.points}
    html = render_page(results, title=name, notes=notes, tables=[f"tables/{file}" for file in tables])
    (place / "tables").mkdir(parents=True, exist_ok=True)
    for file, frame in tables.items():
        write_file(place / "tables" / file, frame.to_csv(index=False, lineterminator="\n"))
    write_file(place / "index.html", html)
    return place / "index.html"


def render_page(results: Results, *, title: str, notes: Sequence[str] = (), tables: Sequence[str] = ()) -> str:
    """The whole page; it loads nothing from elsewhere."""
    runs = results.runs
    counts = [f"{n} {noun}{'s' * (n != 1)}" for noun in ("problem", "solver") for n in [runs[noun].nunique()]]
    study = f"{title}: {', '.join(counts)}, {len(runs)} runs ({analysis.status_text(runs['status'])})"
    failed = runs.loc[runs["status"] != "done", ["solver", "problem", "seed", "status", "epochs", "error"]]
    facts = pandas.DataFrame([(name, text) for name in _FACTS if (text := _values(runs[name]))])
    data = json.dumps(page_data(results), allow_nan=False, separators=(",", ":"))
    parts = {
        "title": escape(title),
        "study": escape(study),
        "notes": "".join(f'<p class="note">{escape(note)}</p>' for note in notes),
        "links": "".join(f'<a href="{escape(href)}">{escape(Path(href).name)}</a>' for href in tables),
        "missing": _section("missing", "Runs without a result", _missing(results)),
        "failures": _section("failed", "Runs that failed", failed),
        "facts": _table(facts, header=False),
        "made": f"Made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "data": data.replace("<", "\\u003c"),
        "css": _asset("page.css"),
        "plotly": (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8"),
        "script": "".join(map(_asset, ("compute.js", "figures.js", "page.js"))),
    }
    # One pass, so that nothing in the data is taken for a mark.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], _asset("page.html"))


def _missing(results: Results) -> pandas.DataFrame:
    """One row per problem and reason: which solvers lack how many runs."""
    groups = results.missing.groupby(["problem", "reason"], sort=False)
    lists = groups["solver"].agg(lambda names: ", ".join(dict.fromkeys(names)))
    return lists.to_frame("solvers").assign(runs=groups.size()).reset_index()[["problem", "solvers", "runs", "reason"]]


def page_data(results: Results) -> dict[str, Any]:
    """All that the page computes with, as plain values."""
    grids = results.runs["grid"] != ""
    runs = analysis.best_of_grid(results).runs
    problems = runs.drop_duplicates("problem")[["problem", "source", "group"]].rename(columns={"problem": "name"})
    names, solvers = list(problems["name"]), list(runs["solver"].unique())
    points = results.points.sort_values(["key", "step"])
    sizes = points["key"].value_counts(sort=False)
    size, end = (runs["key"].map(numbers).fillna(0).astype(int) for numbers in (sizes, sizes.cumsum()))
    rows = runs[["seed", "status"]].assign(
        problem=runs["problem"].map(names.index),
        solver=runs["solver"].map(solvers.index),
        begin=end - size,
        end=end,
        **{name: runs[name].astype(object).where(np.isfinite(runs[name]), None) for name in _OF_A_RUN},
    )
    columns = {name: points[name].to_numpy("<f8") for name in _POINTS}
    return {
        "solvers": solvers,
        "hidden": list(results.runs.loc[grids, "solver"].unique()),  # the best of their grid stands for them
        "problems": problems.to_dict("records"),
        "groups": [group for group in problems["group"].unique() if group],
        "runs": rows.to_dict("records"),
        "points": {
            name: base64.b64encode(values.tobytes()).decode()
            for name, values in columns.items()
            if name == "train_loss" or np.isfinite(values).any()
        },
        "taus": TAUS,
        "tableTaus": analysis.TABLE_TAUS,
        "area": analysis.AREA,
        "tails": [
            analysis.tail(cases) for cases in range(2, 2 + results.runs["source"].nunique())
        ],  # from two cases on
        "best": {column: analysis.BEST[measure] for measure, column in analysis.COLUMNS.items()},
    }


def _section(name: str, title: str, frame: pandas.DataFrame) -> str:
    if not len(frame):
        return ""
    return f'<section id="{name}"><h2>{title}</h2><div class="scroll">{_table(frame)}</div></section>'


def _values(column: pandas.Series[Any]) -> str:
    """All values that a column has, once each."""
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in column.dropna().unique())


def _table(frame: pandas.DataFrame, *, header: bool = True) -> str:
    with pandas.option_context("display.max_colwidth", None):
        return frame.to_html(index=False, header=header, classes="plain", border=0)


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
