"""`cmalight datasets list | info NAME | fetch NAME`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cmalight.datasets import Entry

_NAME = click.argument("name")


@click.group()
def datasets() -> None:
    """List, describe and fetch data sets."""


@datasets.command("list")
def list_datasets() -> None:
    """List all data sets: name, task, P (training rows), d (columns with the constant 1), and where the data is."""
    from cmalight import datasets as library

    rows = [("name", "task", "P", "d", "where")]
    for name in library.known():
        entry = library.dataset_info(name)
        rows.append((name, entry.task or "?", _number(entry.training_rows), _number(entry.d), library.where(entry)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, task, p, d, place in rows:
        click.echo(f"{name:<{widths[0]}}  {task:<{widths[1]}}  {p:>{widths[2]}}  {d:>{widths[3]}}  {place}")


@datasets.command()
@_NAME
def info(name: str) -> None:
    """Describe the data set NAME of `cmalight datasets list`: size, encoding, origin, licence, citation."""
    from cmalight import datasets as library

    entry = library.dataset_info(name)
    for label, text in _facts(entry, library.where(entry)):
        if text:
            click.echo(f"{label + ':':<10} {text}")


@datasets.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def fetch(names: tuple[str, ...]) -> None:
    """Download the data sets NAME... of `cmalight datasets list` that are not here, check and cache them."""
    from cmalight import datasets as library

    for name in names:
        path = library.fetch(name)
        click.echo(f"{name} needs no file: there is nothing to fetch" if path is None else f"{name}: {path}")


def _facts(entry: Entry, place: str) -> Iterator[tuple[str, str]]:
    yield "name", entry.name
    yield "title", entry.title
    yield "task", (entry.task or "known when it is read") + (f", {entry.classes} classes" if entry.classes else "")
    yield "size", _size(entry)
    yield "encoding", entry.encoding
    yield "where", place
    yield "file", entry.file
    for url in entry.urls:
        yield "from", url
    yield "sha256", entry.sha256 or ""
    yield "values", f"sha256 {entry.values_sha256}" if entry.values_sha256 else ""
    if entry.file and not (entry.sha256 or entry.values_sha256):
        yield "checksum", "none is known; the numbers of rows and columns are checked"
    yield "group", entry.group
    yield "licence", entry.licence
    yield "citation", entry.citation
    yield "homepage", entry.homepage


def _size(entry: Entry) -> str:
    if entry.rows is None:
        return "known when it is read"
    split = f"{entry.test_rows} more for testing" if entry.test_rows else f"P = {entry.training_rows} for training"
    return f"{entry.rows} rows, {split}; {entry.features} features, d = {entry.d}"


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)
