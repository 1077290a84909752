"""The `cmalight` command: each verb is one library call, and is imported when it is used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import click

from cmalight import __version__
from cmalight.cli.errors import one_line_errors
from cmalight.errors import unknown_name


@dataclass(frozen=True)
class Verb:
    """Where a verb is, and what `--help` says of it without importing it."""

    module: str
    name: str
    help: str


VERBS = {
    "demo": Verb("cmalight.cli.bench", "demo", "Compare solvers on small data, and look at the report: a minute."),
    "train": Verb("cmalight.cli.train", "train", "Train a network on a table or a data set."),
    "predict": Verb("cmalight.cli.predict", "predict", "Predict the rows of a table with a trained network."),
    "evaluate": Verb("cmalight.cli.predict", "evaluate", "Score a trained network on a table that has the target."),
    "datasets": Verb("cmalight.cli.datasets", "datasets", "List, describe and fetch data sets."),
    "bench": Verb("cmalight.cli.bench", "bench", "Compare solvers on data sets and networks."),
}


class Verbs(click.Group):
    """The verbs, imported one at a time; whatever a user got wrong is one line on stderr and exit 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            ctx.fail(unknown_name("command", cmd_name, VERBS))
        verb = VERBS[cmd_name]
        found: click.Command = getattr(importlib.import_module(verb.module), verb.name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])

    main = one_line_errors(click.Group.main)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def command() -> None:
    """Train networks with an optimizer that looks where its steps lead, and undoes those that did harm."""
