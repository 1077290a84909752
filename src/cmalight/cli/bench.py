"""`cmalight demo` and `cmalight bench run | status | report | merge`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cmalight.cli.errors import A_PATH, say, show_messages

if TYPE_CHECKING:
    from cmalight.bench import Summary

_FAILED = 1
_OUT = click.option("--out", type=A_PATH, metavar="DIR", required=True, help="Results folder; finished runs are kept.")
_QUIET = click.option("--quiet", is_flag=True, help="Show errors and warnings only.")


@click.group(short_help="Compare optimizers on data sets and networks.")
def bench() -> None:
    """Compare optimizers: data sets x networks x solvers x seeds, here or on a cluster."""
    show_messages(quiet=False)


@bench.command(epilog="Presets: demo, quick, paper, paper-code, paper-cifar, today. `--dry-run` says what each takes.")
@click.argument("spec", metavar="PRESET|SPEC.toml")
@_OUT
@click.option("--executor", default="local", show_default=True, metavar="local|dask://HOST:PORT")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Runs at once on this machine.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Replace a key of the spec, e.g. seeds=2.")
@click.option("--shard", metavar="I/N", help="Run only the I-th of N parts of the starts; then `merge` the parts.")
@click.option("--retry-failed", is_flag=True, help="Repeat runs that failed, crashed or timed out.")
@click.option("--in-process", is_flag=True, help="Train in this process, for a debugger.")
@click.option("--dry-run", is_flag=True, help="List the runs and how long they can take, and run nothing.")
@_QUIET
@click.pass_context
def run(
    context: click.Context, /, spec: str, out: Path, changes: tuple[str, ...], dry_run: bool, quiet: bool, **more: Any
) -> None:
    """Run all runs of a preset or a spec file that have no result in DIR yet.

    Ctrl-C keeps finished results, and the same command resumes. The exit code is 1 if runs failed.
    """
    from cmalight import bench as library

    show_messages(quiet=quiet)
    chosen = library.read_spec(spec, changes)
    if dry_run:
        for line in library.forecast(chosen, more["shard"]):
            click.echo(line)
        return
    summary = library.run(chosen, out, progress=not quiet, **more)
    context.exit(_conclude(summary, out, quiet=quiet))


@bench.command()
@click.argument("folder", metavar="DIR", type=A_PATH)
def status(folder: Path) -> None:
    """Say how many runs of the results folder DIR are done, failed and left."""
    from cmalight import bench as library

    for name, count in library.status(folder).items():
        click.echo(f"{name:<10}{count:>6}")


@bench.command()
@click.argument("folder", metavar="DIR", type=A_PATH)
@click.option("--out", type=A_PATH, metavar="DIR", help="Where the report goes [DIR/report].")
@click.option("--spec", metavar="PRESET|SPEC.toml", help="Show the runs of this spec [those that DIR was made from].")
@click.option("--recorded", is_flag=True, help="Show the runs as recorded, although the code has changed since.")
def report(folder: Path, out: Path | None, spec: str | None, recorded: bool) -> None:
    """Write a page with curves, profiles and tables of the runs in the results folder DIR."""
    from cmalight import bench as library

    page = library.write_report(folder, spec=spec, out=out, recorded=recorded)
    click.echo(f"report: {page.resolve()}")


@bench.command()
@click.argument("folders", metavar="DIR...", type=A_PATH, nargs=-1, required=True)
@click.option("--out", type=A_PATH, metavar="DIR", required=True, help="A folder, new or with results.")
def merge(folders: tuple[Path, ...], out: Path) -> None:
    """Merge results folders into one."""
    from cmalight import bench as library

    click.echo(f"{out} has {library.merge(folders, out)} results")


@click.command(short_help="Compare optimizers on small data and write a report; about a minute.")
@click.option("--out", type=A_PATH, metavar="DIR", default=Path("cmalight-demo"), show_default=True)
@_QUIET
@click.pass_context
def demo(context: click.Context, /, out: Path, quiet: bool) -> None:
    """Run the preset `demo` on data that needs no download, and write the report: about a minute."""
    from cmalight import bench as library

    show_messages(quiet=quiet)
    code = _conclude(library.run("demo", out, workers=os.cpu_count() or 1, progress=not quiet), out, quiet=quiet)
    click.echo(f"report: {library.write_report(out).resolve()}")
    context.exit(code)


def _conclude(summary: Summary, out: Path, *, quiet: bool) -> int:
    """Say what DIR has now and what failed, and return the exit code."""
    if not quiet:
        click.echo(f"{out}: {summary}")
    for line in summary.failures:
        say(line)
    if summary.failures:
        say(f"{summary}; {out}/runs has outputs and tracebacks, --retry-failed repeats runs that failed")
    return _FAILED if summary.failures else 0
