"""`cmalight datasets list | info NAME | fetch NAME`."""

from __future__ import annotations

import click


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
        p, d = (str(number or "?") for number in (entry.training_rows, entry.d))
        rows.append((name, entry.task or "?", p, d, library.where(entry)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, task, p, d, place in rows:
        click.echo(f"{name:<{widths[0]}}  {task:<{widths[1]}}  {p:>{widths[2]}}  {d:>{widths[3]}}  {place}")


@datasets.command()
@click.argument("name")
def info(name: str) -> None:
    """Describe the data set NAME of `cmalight datasets list`: size, encoding, origin, licence, citation."""
    from cmalight import datasets as library

    entry = library.dataset_info(name)
    sizes = {"P": entry.training_rows, "d": entry.d, "where": library.where(entry)}
    for label, value in {**vars(entry), **sizes}.items():
        if value and label != "source":
            text = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            click.echo(f"{label.replace('_', ' ') + ':':<15}{text}")


@datasets.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def fetch(names: tuple[str, ...]) -> None:
    """Download the data sets NAME... of `cmalight datasets list` that are not here, check and cache them."""
    from cmalight import datasets as library

    for name in names:
        path = library.fetch(name)
        click.echo(f"{name} needs no file: there is nothing to fetch" if path is None else f"{name}: {path}")
