"""`cmalight train`."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from cmalight.cli.errors import A_PATH, INTERRUPTED, KnownName, LibraryCall, show_messages

Function = Callable[..., Any]


def at_most_once(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str | None:
    """For an option that has one value: click would take the last of several without a word."""
    if len(given) > 1:
        name = parameter.opts[0]
        raise click.UsageError(f"{name} is given {len(given)} times ({', '.join(given)}); give it once", context)
    return given[0] if given else None


def reading_options(function: Function) -> Function:
    """The options on how to read a csv file, which reach the verb as one `reading`."""

    @functools.wraps(function)
    def verb(
        *args: Any, encoding: str, delimiter: str | None, decimal: str, missing: tuple[str, ...], **others: Any
    ) -> Any:
        return function(*args, reading=_reading(encoding, delimiter, decimal, missing), **others)

    for option in (
        click.option("--missing", multiple=True, metavar="TEXT", help="A cell with this text is a missing value."),
        click.option("--decimal", type=KnownName([".", ","]), default=".", help="The decimal sign of a csv file."),
        click.option("--encoding", metavar="NAME", default="utf-8", help="Of a csv file, such as latin-1 [utf-8]."),
        click.option("--delimiter", metavar="CHARACTER", help="What separates the cells of a csv file [found out]."),
    ):
        verb = option(verb)
    return verb


def _reading(encoding: str, delimiter: str | None, decimal: str, missing: tuple[str, ...]) -> Any:
    from cmalight.tables.table import Reading

    if delimiter is not None:
        delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
        if len(delimiter) != 1:
            raise click.BadParameter(f"{delimiter!r} is not one character (or 'tab')", param_hint="--delimiter")
    return Reading(encoding=encoding, delimiter=delimiter, decimal=decimal, missing=missing)


def _option(text: str) -> tuple[str, Any]:
    """A name and a value as Python writes it, such as betas=(0.9, 0.99); true and false may be small."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE", param_hint="--optimizer-option")
    try:
        return name, ast.literal_eval({"true": "True", "false": "False", "none": "None"}.get(value.lower(), value))
    except (ValueError, SyntaxError):
        return name, value


def _taken(kind: Any, given: dict[str, Any]) -> Any:
    """An object whose fields are options of the command, which are then no longer among the others."""
    return kind(**{one.name: given.pop(one.name) for one in fields(kind)})


@click.command(cls=LibraryCall, short_help="Train a network on a table or a data set.")
@click.argument("source", metavar="FILE|DATASET", help="A table (- is standard input), or the name of a data set.")
@click.option(
    "--target",
    metavar="COLUMN",
    multiple=True,
    callback=at_most_once,
    help="What to predict; in an npz file the name of an array [y].",
)
@click.option("--task", type=KnownName(["regression", "classification"]), help="[found out from the target]")
@click.option("--categorical", multiple=True, metavar="COLUMN", help="Categories, though they look like numbers.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Leave this column out.")
@click.option("--as-is", multiple=True, metavar="COLUMN", help="Take it as it is: no date, amount or id.")
@click.option(
    "--scaling",
    type=KnownName(["robust", "standard", "minmax"]),
    default="robust",
    show_default=True,
    help="Of the numbers among the inputs.",
)
@click.option("--impute", type=KnownName(["median"]), help="Fill missing values in rather than refuse them.")
@click.option("--trust", is_flag=True, help="Take the files of a data set, whatever their checksum.")
@click.option("--test-share", type=float, default=0.25, show_default=True, help="The share of rows kept for testing.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of split and weights.")
@reading_options
@click.option("--net", metavar="LxN", default="1x50", show_default=True, help="L hidden layers of N neurons.")
@click.option("--activation", metavar="NAME", default="sigmoid", show_default=True, help="tanh, relu, gelu, silu.")
@click.option(
    "--optimizer",
    metavar="NAME",
    default="auto",
    show_default=True,
    help="auto (finds its step size), cmalight, cma, ig, adam, sgd, ...",
)
@click.option("--lr", type=click.FloatRange(0, min_open=True), help="The first step size [the optimizer's own].")
@click.option("--weight-decay", type=click.FloatRange(0), help="[the optimizer's own]")
@click.option(
    "--optimizer-option", "options", multiple=True, metavar="NAME=VALUE", help="Another option of the optimizer."
)
@click.option("--class-weight", type=KnownName(["balanced"]), help="Let all classes weigh the same, rare ones too.")
@click.option("--batch-size", type=click.IntRange(1), help="[about 50 batches per epoch, of 8 to 128 rows]")
@click.option("--max-epochs", type=click.IntRange(1), help="At most so many [100, or no limit with --time-limit].")
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Of training; measuring does not count.",
)
@click.option(
    "--patience",
    type=click.IntRange(1),
    metavar="EPOCHS",
    help="Stop after so many without a better loss on a tenth of the training rows, and take the best weights.",
)
@click.option("--device", metavar="NAME", default="cpu", show_default=True, help="cpu, cuda or mps.")
@click.option("--threads", type=click.IntRange(1), help="Of the CPU [one where steps are small, else all].")
@click.option("--checkpoint", type=A_PATH, help="Save to this file now and then; the same command goes on from it.")
@click.option("--save", type=A_PATH, help="Write the trained network with its encoding, for `cmalight predict`.")
@click.option("--history", type=A_PATH, help="Write one line of JSON per epoch.")
@click.option("--plot", type=A_PATH, help="Draw losses and predictions (png, svg or pdf).")
@click.option("--quiet", is_flag=True, help="Show errors and warnings only.")
@click.pass_context
def train(
    context: click.Context,
    /,
    source: str,
    batch_size: int | None,
    options: tuple[str, ...],
    quiet: bool,
    **given: Any,
) -> None:
    """Train a network on FILE (csv, xlsx, parquet, npz; - is standard
    input) or on a DATASET of `cmalight datasets list`.

    Files are written when the training is over, or stopped with Ctrl-C.
    """
    show_messages(quiet=quiet)
    from cmalight.tabular import Outputs, TableChoices, train_on_table

    result = train_on_table(
        source,
        _taken(TableChoices, given),
        outputs=_taken(Outputs, given),
        optimizer_options=dict(_option(text) for text in options),
        batch_size="auto" if batch_size is None else batch_size,
        progress=not quiet,
        **given,
    )
    if result.interrupted:
        context.exit(INTERRUPTED)
