"""`cmalight datasets list | info NAME | fetch NAME`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from cmalight.cli.errors import KnownVerbs

if TYPE_CHECKING:
    from cmalight.datasets import Entry


@click.group(cls=KnownVerbs)
def datasets() -> None:
    """Data sets: what there is, what is known of one, and bringing it here."""


@datasets.command("list")
def list_datasets() -> None:
    """A table: name, task, P (training rows), d, and where the data is now."""
    from cmalight import datasets as registry

    rows = [
        (entry.name, entry.task, _number(entry.training_rows), _number(entry.d), registry.where(entry))
        for entry in registry.datasets()
    ]
    click.echo(_table(("name", "task", "P", "d", "where"), rows))


@datasets.command()
@click.argument("name", required=False, help="One of those that `cmalight datasets list` shows, or a TOML file.")
def info(name: str | None) -> None:
    """What is known of the data set NAME: origin, licence, encoding, size, files."""
    from cmalight import datasets as registry

    entry = registry.dataset_info(_given(name, "info"))
    facts = _facts(entry, registry.where(entry))
    click.echo("\n".join(f"{label + ':':<10} {text}" for label, text in facts if text))


@datasets.command()
@click.argument("name", required=False, help="One of those that `cmalight datasets list` shows, or a TOML file.")
@click.option("--trust", is_flag=True, help="Take the file that is there, whatever its checksum.")
def fetch(name: str | None, trust: bool) -> None:
    """Bring the data set NAME here: download what is missing, verify it, parse it."""
    from cmalight import datasets as registry

    entry = registry.dataset_info(_given(name, "fetch"))
    paths = registry.fetch(_given(name, "fetch"), trust=trust)
    if entry.is_embedded:
        click.echo(f"{entry.name} is embedded: there is nothing to fetch")
    for path in paths:
        click.echo(f"{entry.name}: {path}")


def _given(name: str | None, verb: str) -> str:
    if not name:
        raise click.ClickException(
            f"`datasets {verb}` needs the NAME of a data set, as in `cmalight datasets {verb} bikes`; "
            "`cmalight datasets list` shows them all"
        )
    return name


def _facts(entry: Entry, place: str) -> Iterator[tuple[str, str]]:
    yield "name", entry.name
    yield "title", entry.title
    yield "task", entry.task + (f", {entry.classes} classes" if entry.classes else "")
    yield "size", _size(entry)
    yield "encoding", entry.encoding
    yield "where", place
    for file in entry.files:
        yield "file", file.name + (f" ({file.size / 1e6:.1f} MB)" if file.size else "")
        for url in file.urls:
            yield "from", url
        for sha256 in file.sha256:
            yield "sha256", sha256
    yield "values", f"sha256 {entry.values_sha256}" if entry.values_sha256 else ""
    yield "licence", entry.licence
    yield "citation", entry.citation
    yield "homepage", entry.homepage


def _size(entry: Entry) -> str:
    if entry.rows is None:
        return "known when it is read"
    split = f"{entry.test_rows} more for testing" if entry.test_rows else f"P = {entry.training_rows} for training"
    return f"{entry.rows} rows, {split}; {_number(entry.features)} features, d = {_number(entry.d)}"


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns in line, numbers to the right; on a terminal with lines and colours, and as wide as that."""
    from rich.box import HEAVY_HEAD
    from rich.console import Console
    from rich.table import Table

    is_terminal = Console().is_terminal
    console = Console(width=None if is_terminal else 1000)
    table = Table(box=HEAVY_HEAD if is_terminal else None, pad_edge=False)
    for title in header:
        table.add_column(title, justify="right" if title in ("P", "d") else "left")
    for row in rows:
        table.add_row(*row)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
