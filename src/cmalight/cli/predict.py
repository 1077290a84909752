"""`cmalight predict` and `cmalight evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cmalight.cli.errors import A_PATH, KnownName, LibraryCall, show_messages
from cmalight.cli.train import Function, reading_options


def table_options(function: Function) -> Function:
    """What both verbs take: a model, a file, and how to see its columns."""
    for option in (
        click.option(
            "--unknown",
            type=KnownName(["zeros", "refuse"]),
            default="zeros",
            show_default=True,
            help="A category that was not in the training rows: none of the known ones, or an error.",
        ),
        click.option("--drop", multiple=True, metavar="COLUMN", help="Leave this column out."),
        click.argument(
            "file", type=A_PATH, metavar="FILE", help="The rows: csv, xlsx, parquet or npz; - is standard input."
        ),
        click.argument("model", type=A_PATH, metavar="MODEL", help="What `cmalight train --save` wrote."),
    ):
        function = option(function)
    return reading_options(function)


@click.command(cls=LibraryCall, short_help="Predict the rows of a table with a trained network.")
@table_options
@click.option("--keep", multiple=True, metavar="COLUMN", help="Write this column of FILE beside the predictions.")
@click.option("--probabilities", is_flag=True, help="Write the probability of every class.")
@click.option("--out", type=A_PATH, help="Write the predictions to this csv file rather than to the screen.")
def predict(
    model: Path,
    file: Path,
    drop: tuple[str, ...],
    unknown: Any,
    reading: Any,
    keep: tuple[str, ...],
    probabilities: bool,
    out: Path | None,
) -> None:
    """Predict every row of FILE with MODEL, which `cmalight train --save` wrote.

    FILE is csv, xlsx, parquet or npz; - is standard input. The columns are found by name. The target may be among
    them: then the predictions are scored, too.
    """
    show_messages(quiet=False)
    from cmalight.tabular import predict_table

    predictions = predict_table(
        model, file, drop=drop, keep=keep, reading=reading, unknown=unknown, out=out, probabilities=probabilities
    )
    if out is None:
        try:
            click.echo(predictions.to_csv(probabilities=probabilities), nl=False)
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard output") from error
    else:
        click.echo(f"{len(predictions.values)} predictions written to {out}")
    for line in predictions.scores.lines("these rows") if predictions.scores else ():
        click.echo(line, err=out is None)  # what goes into a pipe is the predictions alone


@click.command(cls=LibraryCall, short_help="Score a trained network on a table that has the target.")
@table_options
def evaluate(
    model: Path,
    file: Path,
    drop: tuple[str, ...],
    unknown: Any,
    reading: Any,
) -> None:
    """Score MODEL, which `cmalight train --save` wrote, on the rows of FILE.

    FILE is csv, xlsx, parquet or npz; - is standard input. The line below the scores is what a guess gets: the most
    frequent class, or the mean, of the training rows.
    """
    show_messages(quiet=False)
    from cmalight.tabular import evaluate_table

    scores = evaluate_table(model, file, drop=drop, reading=reading, unknown=unknown)
    for line in (*scores.lines(f"{len(scores.truth)} rows"), *scores.confusion_lines()):
        click.echo(line)
