"""`cmalight bench run | status | report | merge`, and `cmalight demo`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cmalight.cli.errors import A_PATH, KnownName, KnownVerbs, LibraryCall, show_messages
from cmalight.errors import duration

if TYPE_CHECKING:
    from cmalight.bench import Counts, PlannedRun, Spec, Summary


@click.group(cls=KnownVerbs, short_help="Compare solvers on data sets and networks.")
def bench() -> None:
    """Compare solvers: data sets x networks x solvers x seeds, here or on a cluster."""


@bench.command()
@click.argument("spec", metavar="PRESET|SPEC.toml", help="A preset's name, or a file that says what is to be run.")
@click.option("--out", type=A_PATH, metavar="DIR", help="Where results go, and where finished ones are looked for.")
@click.option("--executor", default="local", show_default=True, metavar="local|dask://HOST:PORT")
@click.option("--workers", type=click.IntRange(1), help="Runs at once on this machine [one per core].")
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Instead of the spec's.")
@click.option("--seeds", metavar="N|LIST", help="The first N seeds, or these: 0,4 or 2-4.")
@click.option("--only", multiple=True, metavar="NAME", help="This data set, network or solver; may be repeated.")
@click.option("--trust", multiple=True, metavar="NAME", help="Take this data set's files, whatever their checksum.")
@click.option(
    "--retry-failed", is_flag=True, help="Run those again that failed, crashed, timed out or ran out of memory."
)
@click.option("--dry-run", is_flag=True, help="Show the cells and how long what is left takes, and run nothing.")
@click.option("--quiet", is_flag=True, help="Show errors and warnings only.")
@click.pass_context
def run(
    context: click.Context,
    /,
    spec: str,
    out: Path | None,
    executor: str,
    workers: int | None,
    time_limit: float | None,
    seeds: str | None,
    only: tuple[str, ...],
    trust: tuple[str, ...],
    retry_failed: bool,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Run what DIR has no result of yet. Ctrl-C keeps what is finished; the same command goes on from there."""
    from cmalight.bench.running import nursery

    if executor == "local" and not dry_run:
        nursery.prepare(threads=1)  # of nearly every spec; it imports torch while this process does
    from cmalight import bench as library

    show_messages(quiet=quiet)
    chosen = library.narrowed(library.read_spec(spec), library.Narrowing(time_limit, seeds, only, trust))
    if dry_run:
        for line in _plan(chosen, library.plan(chosen), workers, out, retry_failed=retry_failed):
            click.echo(line)
        return
    if out is None:
        raise click.UsageError("`bench run` needs --out DIR, the folder for the results", ctx=context)
    summary = library.run(
        chosen, out, executor=executor, workers=workers, progress=not quiet, retry_failed=retry_failed
    )
    conclude(summary, out, quiet=quiet)


@bench.command()
@click.argument("folder", metavar="DIR", type=A_PATH, help="What `bench run --out` wrote, or is writing.")
def status(folder: Path) -> None:
    """How many runs are done, running, failed and left, and how long that takes."""
    from cmalight import bench as library

    show_messages(quiet=False)
    for line in _status(library.status(folder)):
        click.echo(line)


@bench.command()
@click.argument("folder", metavar="DIR", type=A_PATH, help="Results of `bench run`, or an archive of `bench merge`.")
@click.option("--out", type=A_PATH, metavar="DIR", help="Where the report goes [DIR/report].")
@click.option(
    "--problems",
    type=KnownName(["start", "pair"]),
    default="start",
    show_default=True,
    help="What counts as one in the profiles: each start, or a pair of data set and network.",
)
@click.option("--only", multiple=True, metavar="NAME", help="This data set, network or solver; may be repeated.")
def report(folder: Path, out: Path | None, problems: Any, only: tuple[str, ...]) -> None:
    """Profiles, curves and tables of what DIR, or its archive, has: a page, the paper's figures, and tables."""
    from cmalight import bench as library

    show_messages(quiet=False)
    click.echo(f"report: {library.write_report(folder, out, problems=problems, only=only).resolve()}")


@bench.command()
@click.argument(
    "folders", metavar="DIR...", type=A_PATH, nargs=-1, required=True, help="Results folders or archives, one or more."
)
@click.option("--out", type=A_PATH, required=True, metavar="DIR", help="New or with results; NAME.tar.xz: an archive.")
@click.option("--rounded", is_flag=True, help="An archive with fewer digits, to publish: about half as large.")
def merge(folders: tuple[Path, ...], out: Path, rounded: bool) -> None:
    """Join results folders into one; contradictions are refused."""
    from cmalight import bench as library

    show_messages(quiet=False)
    click.echo(f"{out} has {library.merge(folders, out, rounded=rounded)} results")


@click.command(cls=LibraryCall, short_help="Compare solvers on small data, and look at the report: a minute.")
@click.option("--out", type=A_PATH, metavar="DIR", default=Path("cmalight-demo"), show_default=True)
@click.option("--quiet", is_flag=True, help="Show errors, warnings and where the report is.")
def demo(out: Path, quiet: bool) -> None:
    """Run the preset `demo` of the test-bed, on data that needs no download, and write the report on it.

    About a minute on two cores. What DIR has already is not run again.
    """
    from cmalight import bench as library

    show_messages(quiet=quiet)
    summary = library.run(library.read_spec("demo"), out, progress=not quiet)
    conclude(summary, out, quiet=quiet)
    click.echo(f"report: {library.write_report(out).resolve()}")


def _plan(
    spec: Spec, runs: list[PlannedRun], workers: int | None, out: Path | None, *, retry_failed: bool
) -> Iterator[str]:
    from cmalight.bench.running.executors import default_workers

    cells = list(dict.fromkeys(run.cell for run in runs))
    for dataset, network, seed in cells:
        yield f"{dataset}  {network}  seed {seed}"
    yield f"{len(cells)} cells x {len(spec.solvers)} solvers ({', '.join(s.name for s in spec.solvers)})"
    left = [run for run in runs if out is None or not _is_there(out, run.key, retry_failed=retry_failed)]
    if len(left) < len(runs):
        yield f"{len(runs) - len(left)} of {len(runs)} runs have a result in {out}"
    at_once = workers or default_workers(spec.threads)
    limit = spec.time_limit
    if limit is None:
        yield f"{len(left)} runs of {spec.max_epochs} epochs each: how long that takes is not known"
    else:
        rounds = -(-len(left) // at_once)
        yield (
            f"{len(left)} runs of at most {limit:g} s of training, {at_once} at once: at most "
            f"{duration(rounds * limit)}, and the time for measuring"
        )


def _is_there(out: Path, key: str, *, retry_failed: bool) -> bool:
    from cmalight.bench.store.results import ResultError, read_result, result_path
    from cmalight.bench.store.schema import WITHOUT_A_RESULT

    try:
        status = read_result(result_path(out, key))["status"]
    except (FileNotFoundError, ResultError):
        return False
    return not (retry_failed and status in WITHOUT_A_RESULT)


def conclude(summary: Summary, out: Path, *, quiet: bool) -> None:
    """Say what is in the folder now; an error where something could not be run."""
    if not quiet:
        click.echo(summary_text(summary, out))
    if not summary.is_complete:
        raise click.ClickException(_what_is_missing(summary))


def summary_text(summary: Summary, out: Path) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in sorted(summary.recorded.items()))
    again = f"; `--retry-failed` runs {summary.failed} of them again" if summary.failed else ""
    return f"{out}: {sum(summary.recorded.values())} of {summary.total} runs recorded ({counts or 'none'}){again}"


def _what_is_missing(summary: Summary) -> str:
    parts = [f"{what} cannot be had ({why})" for what, why in summary.left_out.items()]
    if summary.not_written:
        why = next(iter(summary.not_written.values()))
        parts.append(f"{len(summary.not_written)} results could not be written ({why})")
    return f"not everything ran: {'; '.join(parts)}; the same command runs what is left"


def _status(counts: Counts) -> Iterator[str]:
    failures = {name: count for name, count in sorted(counts.recorded.items()) if name != "done"}
    yield f"done     {counts.recorded.get('done', 0)}"
    yield f"running  {len(counts.running)}"
    for one in counts.running:
        loss = "" if one.loss is None else f", loss {one.loss:.5g}"
        yield f"         {one.run}: epoch {one.epoch}{loss}, {one.seconds:.0f} s"
    details = f" ({', '.join(f'{count} {name}' for name, count in failures.items())})" if failures else ""
    yield f"failed   {sum(failures.values())}{details}"
    yield f"left     {'unknown: the folder has no spec' if counts.left is None else counts.left}"
    if counts.left or counts.running:
        yield f"time     {duration(counts.seconds_left)} left"
    driver = counts.driver
    yield f"driver   {'none' if driver is None else f'process {driver.pid} on {driver.host} since {driver.since}'}"
    for line in counts.damaged:
        yield f"damaged  {line}"
