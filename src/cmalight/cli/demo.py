"""`cmalight demo`."""

from __future__ import annotations

from pathlib import Path

import click

from cmalight.cli.bench import A_PATH, show_bench_messages, summary_text, what_is_missing


@click.command(short_help="Compare solvers on small data, and look at the report: a minute.")
@click.option("--out", type=A_PATH, metavar="DIR", default=Path("cmalight-demo"), show_default=True)
@click.option("--quiet", is_flag=True, help="Show errors, warnings and where the report is.")
def demo(out: Path, quiet: bool) -> None:
    """Run the preset `demo` of the test-bed, on data that needs no download, and write the report on it.

    About a minute on two cores. What DIR has already is not run again.
    """
    from cmalight import bench as library

    show_bench_messages(quiet=quiet)
    summary = library.run(library.read_spec("demo"), out, progress=not quiet)
    if not quiet:
        click.echo(summary_text(summary, out))
    if not summary.is_complete:
        raise click.ClickException(what_is_missing(summary))
    click.echo(f"report: {library.write_report(out).resolve()}")
