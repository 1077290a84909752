"""The report of a results folder: one page that works offline, and its tables as CSV files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmalight.bench.analysis import results_table
from cmalight.bench.report.page import page

if TYPE_CHECKING:
    import pandas

__all__ = ["write_report"]


def write_report(
    directory: str | Path, *, spec: Any = None, out: str | Path | None = None, recorded: bool = False
) -> Path:
    """Write the report of a results folder: `index.html`, and `tables/` as CSV.

    The report shows the runs of the spec as it is now, trained by the code as it is now. One line on the page says how
    many other results the folder has.

    Args:
        directory: The results folder.
        spec: The spec, by name, path or value; by default the one that the folder was made from.
        out: Folder of the report; `directory`/report by default.
        recorded: Show the runs of the last `bench run` in this folder whatever code trained them; the page says so.

    Returns:
        The path of `index.html`.

    Raises:
        ValueError: If there is no run to show.
        OSError: If the report cannot be written.

    Example:
        >>> from cmalight import bench
        >>> bench.write_report("results").name
        'index.html'
    """
    from cmalight.bench.store import load

    found = load(directory, spec=spec)
    results = found.recorded() if recorded else found.current()
    others = len(found.runs) - len(results.runs)
    if not len(results.runs):
        why = f"its {others} results are of other code or another spec" if others else "run a spec into it first"
        hint = "; cmalight bench report --recorded shows them" if others and not recorded else ""
        raise ValueError(f"{directory} has no results to report: {why}{hint}")
    notes = list(results.notes)
    if others:
        notes.append(f"{_results(others)} of other code, or of another spec, left out.")
    if recorded:
        codes = ", ".join(str(code)[:12] for code in results.runs["code"].unique())
        notes.insert(0, f"These are recorded results, of code {codes}: not necessarily what is installed.")
    name = Path(directory).resolve().name
    tables = {"results.csv": results_table(results), "runs.csv": results.runs, "epochs.csv": results.epochs}
    place = Path(out) if out is not None else Path(directory) / "report"
    html = page(results, title=name, notes=notes, tables=[f"tables/{file}" for file in tables])
    (place / "tables").mkdir(parents=True, exist_ok=True)
    for file, table in tables.items():
        _write(place / "tables" / file, _csv(table))
    _write(place / "index.html", html)
    return place / "index.html"


def _results(count: int) -> str:
    return "1 result is" if count == 1 else f"{count} results are"


def _csv(table: pandas.DataFrame) -> str:
    return table.to_csv(index=False, lineterminator="\n")


def _write(path: Path, text: str) -> None:
    """Write a file as a whole: a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8", newline="")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
