"""`cmalight train`, `cmalight predict` and `cmalight evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cmalight.cli.errors import A_PATH, INTERRUPTED, show_messages


@click.command()
@click.argument("source", metavar="FILE|DATASET", help="A csv, parquet or xlsx file, or the name of a data set.")
@click.option("--target", metavar="COLUMN", help="Column to predict; needed for files.")
@click.option("--task", type=click.Choice(["regression", "classification"]), help="[decided by the target]")
@click.option("--categorical", multiple=True, metavar="COLUMN", help="Categories although they look like numbers.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Column to leave out.")
@click.option("--class-weight", type=click.Choice(["balanced"]), help="Give all classes the same weight.")
@click.option("--max-epochs", type=click.IntRange(1), default=40, show_default=True, help="Maximum number of epochs.")
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), help="Maximum training time in seconds.")
@click.option("--test-share", type=float, default=0.25, show_default=True, help="Share of the rows to score on.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Random seed.")
@click.option("--save", type=A_PATH, help="Write the model, for `cmalight predict`.")
@click.option("--curve", type=A_PATH, help="Draw the loss of each epoch (.png, .svg or .pdf).")
@click.option("--quiet", is_flag=True, help="Show warnings and errors only.")
@click.pass_context
def train(
    context: click.Context, /, source: str, class_weight: str | None, save: Path | None, quiet: bool, **options: Any
) -> None:
    """Train a network on a FILE (csv, parquet, xlsx) or on a DATASET of `cmalight datasets list`.

    A quarter of the rows is kept for testing: the network, a linear model and a guess are scored on these rows.
    """
    show_messages(quiet=quiet)
    from cmalight.integrations.tables import train_table

    if class_weight is not None:
        options["class_weight"] = class_weight
    result = train_table(source, save=save, verbose=not quiet, **options)
    if save is None and not quiet:
        click.echo("The model is not kept: give --save FILE to keep it for `cmalight predict`.")
    if result.interrupted:
        context.exit(INTERRUPTED)


@click.command()
@click.argument("model", type=A_PATH, metavar="MODEL", help="A model that `cmalight train --save` wrote.")
@click.argument("file", type=A_PATH, metavar="FILE", help="The rows: csv, parquet or xlsx.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Write this column of FILE beside the predictions.")
@click.option("--probabilities", is_flag=True, help="Write the probability of each class.")
@click.option("--out", type=A_PATH, help="Write to this csv file rather than to the screen.")
def predict(model: Path, file: Path, keep: tuple[str, ...], probabilities: bool, out: Path | None) -> None:
    """Predict each row of FILE with MODEL, which `cmalight train --save` wrote.

    Columns are found by name and get the types that they had at training. The target is not needed.
    """
    show_messages(quiet=False)
    from cmalight.integrations.tables import predict_table

    predictions = predict_table(model, file, keep=keep, probabilities=probabilities, out=out)
    if out is None:
        click.echo(predictions.to_csv(index=False), nl=False)
    else:
        click.echo(f"{len(predictions)} predictions written to {out}")


@click.command()
@click.argument("model", type=A_PATH, metavar="MODEL", help="A model that `cmalight train --save` wrote.")
@click.argument("file", type=A_PATH, metavar="FILE", help="Rows with the target: csv, parquet or xlsx.")
def evaluate(model: Path, file: Path) -> None:
    """Score MODEL, which `cmalight train --save` wrote, on the rows of FILE.

    A linear model and a guess, fitted on the same training rows, are scored beside it.
    """
    show_messages(quiet=False)
    from cmalight.integrations.tables import evaluate_table

    click.echo(evaluate_table(model, file))
