"""`cmalight predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cmalight.cli.errors import KnownName, show_messages
from cmalight.cli.train import A_PATH, reading, reading_options


@click.command(short_help="Predict the rows of a table with a trained network.")
@click.argument("model", type=A_PATH, metavar="MODEL")
@click.argument("file", type=A_PATH, metavar="FILE")
@click.option("--out", type=A_PATH, help="Write the predictions to this csv file rather than to the screen.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Leave this column out.")
@click.option(
    "--unknown",
    type=KnownName(["zeros", "refuse"]),
    default="zeros",
    show_default=True,
    help="A category that was not in the training rows: none of the known ones, or an error.",
)
@reading_options
def predict(
    model: Path,
    file: Path,
    out: Path | None,
    drop: tuple[str, ...],
    unknown: Any,
    delimiter: str | None,
    decimal: str,
    missing: tuple[str, ...],
) -> None:
    """Predict every row of FILE (csv, parquet, npz) with MODEL, which `cmalight train --save` wrote.

    The columns are found by name; the target may be among them and is not looked at.
    """
    show_messages(quiet=False)
    how = reading(delimiter, decimal, missing)
    from cmalight.tabular.run import predict_table

    predictions = predict_table(model, file, drop=drop, reading=how, unknown=unknown, out=out)
    if out is None:
        click.echo(predictions.to_csv(), nl=False)
    else:
        click.echo(f"{len(predictions.values)} predictions written to {out}")
