"""The `cmalight` command. Each verb is one library call, and imports the library when it is used."""

from __future__ import annotations

import click

from cmalight import __version__
from cmalight.cli.bench import bench, demo
from cmalight.cli.datasets import datasets
from cmalight.cli.errors import one_line_errors
from cmalight.errors import unknown_name


class Verbs(click.Group):
    """A group that keeps the order of its verbs, and turns every mistake of a user into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all verbs in the order of the help page."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Return the verb, or say which name is the nearest."""
        if cmd_name not in self.commands:
            raise click.UsageError(unknown_name("command", cmd_name, self.commands), ctx)
        return self.commands[cmd_name]

    main = one_line_errors(click.Group.main)


@click.group(cls=Verbs, commands=[demo, datasets, bench], context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def command() -> None:
    """Compare optimizers on data sets and networks; the report is a page for the browser."""
