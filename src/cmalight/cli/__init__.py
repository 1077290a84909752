"""The `cmalight` command. Each verb is one library call in a module of its own, imported when the verb is used."""

from __future__ import annotations

import importlib

import click

from cmalight import __version__
from cmalight.cli.errors import one_line_errors
from cmalight.errors import unknown_name

# Name of the verb: where its click command is, and its line in `cmalight --help`, which must not import torch.
VERBS = {
    "demo": ("cmalight.cli.bench:demo", "Compare optimizers on small data and write a report; about a minute."),
    "datasets": ("cmalight.cli.datasets:datasets", "List, describe and fetch data sets."),
    "bench": ("cmalight.cli.bench:bench", "Compare optimizers on data sets and networks."),
}


class LazyVerbs(click.Group):
    """A group whose verbs are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all verbs in the order of the help page."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb, or say which name is the nearest."""
        if cmd_name not in VERBS:
            raise click.UsageError(unknown_name("command", cmd_name, VERBS), ctx)
        module, _, function = VERBS[cmd_name][0].partition(":")
        verb: click.Command = getattr(importlib.import_module(module), function)
        return verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the verbs and their one-line help without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])

    main = one_line_errors(click.Group.main)


@click.group(cls=LazyVerbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def command() -> None:
    """Compare optimizers on data sets and networks; the report is a page for the browser."""
