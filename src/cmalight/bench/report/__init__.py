"""The report of a results folder: one page that works offline, and its tables as CSV files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmalight.bench.analysis import results_table
from cmalight.bench.report.page import render_page
from cmalight.files import write_atomically

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
        directory: The results folder, or an archive of one.
        spec: The spec, by name, path or value; by default the one that the folder was made from.
        out: Folder of the report; by default `directory`/report, and NAME-report beside an archive.
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
    from cmalight.bench.frames import load

    source = Path(directory)
    found = load(source, spec=spec)
    results = found.recorded() if recorded else found.current()
    others = len(found.runs) - len(results.runs)
    if not len(results.runs):
        why = f"its {others} results are of other code or of another spec" if others else "run a spec into it first"
        hint = "; `recorded` shows those of the last run" if others and not recorded else ""
        raise ValueError(f"{directory} has no results to report: {why}{hint}")
    name = source.resolve().name.split(".tar")[0]
    place = (
        Path(out) if out is not None else source / "report" if source.is_dir() else source.with_name(f"{name}-report")
    )
    tables = {"results.csv": results_table(results), "runs.csv": results.runs, "epochs.csv": results.epochs}
    notes = [*_notes(results.runs, others, recorded=recorded), *results.notes, *found.damaged]
    html = render_page(results, title=name, notes=notes, tables=[f"tables/{file}" for file in tables])
    (place / "tables").mkdir(parents=True, exist_ok=True)
    for file, table in tables.items():
        write_atomically(place / "tables" / file, table.to_csv(index=False, lineterminator="\n"))
    write_atomically(place / "index.html", html)
    return place / "index.html"


def _notes(runs: pandas.DataFrame, others: int, *, recorded: bool) -> Iterator[str]:
    """Which results the page shows, and which it does not."""
    if recorded:
        codes = ", ".join(str(code)[:12] for code in runs["code"].unique())
        yield f"Recorded results, trained by code {codes}; the installed code may differ"
    if others:
        are = "result is" if others == 1 else "results are"
        yield f"Left out: {others} {are} of other code or of another spec"
    solvers = runs.groupby(["problem", "seed"])["solver"].nunique()
    partial = int((solvers < runs["solver"].nunique()).sum())
    if partial:
        yield f"{partial} of {len(solvers)} starts lack a result of one of the solvers; comparisons leave them out"
