"""The report of a results folder: a page, the paper's figures, and tables.

::

    from cmalight.bench import write_report

    write_report("results")  # what `cmalight bench report results` does
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cmalight.bench.analysis.costs import Problems
from cmalight.bench.analysis.tables import to_csv, to_latex, to_markdown
from cmalight.bench.report.content import Study, page_data, read_study, tables
from cmalight.bench.report.figures import figure_files
from cmalight.bench.report.page import page
from cmalight.bench.store.archive import SUFFIX, as_folder, is_archive
from cmalight.files import check_folder, remove_abandoned, write_all

__all__ = ["write_report"]


def write_report(
    folder: str | Path, out: str | Path | None = None, *, problems: Problems = "start", only: Sequence[str] = ()
) -> Path:
    """The page, the figures and the tables of a results folder; nothing is written before everything is made.

    Args:
        folder: of the results, or an archive of one.
        out: where index.html, figures/ and tables/ go; by default `folder`/report, beside an archive `NAME-report`.
        problems: what counts as one in profiles, areas and wins: a "start", or a "pair" of data set and network.
        only: names of data sets, networks or solvers; of each kind that is named, these alone.

    Returns:
        The path of the page.

    Raises:
        ValueError: where the folder has no results.
        OSError: where the report cannot be written.
    """
    source = Path(folder)
    if out is None:
        out = source.parent / f"{source.name.removesuffix(SUFFIX)}-report" if is_archive(source) else source / "report"
    out = Path(out)
    check_folder(out)
    with as_folder(source) as place:
        contents = _contents(
            read_study(place, problems=problems, names=only, name=source.name.removesuffix(SUFFIX)), out
        )
    for place in {path.parent for path in contents}:
        place.mkdir(parents=True, exist_ok=True)
        remove_abandoned(place)
    write_all(contents)
    return out / "index.html"


def _contents(study: Study, out: Path) -> dict[Path, bytes]:
    contents: dict[Path, bytes] = {out / "index.html": page(page_data(study)).encode()}
    for table in tables(study):
        for kind, text in (("csv", to_csv(table)), ("md", to_markdown(table)), ("tex", to_latex(table))):
            contents[out / "tables" / f"{table.name}.{kind}"] = text.encode()
    for name, content in figure_files(study):
        contents[out / "figures" / name] = content
    return contents
