"""How the command ends: 0, 2 with one line that says what was wrong, or 130 after Ctrl-C."""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from cmalight.errors import unknown_name

A_PATH = click.Path(path_type=Path)
WRONG_USE = 2
INTERRUPTED = 130

_NEWS = ("cmalight.tabular", "cmalight.bench")

# What to do about an error of the system, by its number.
_ADVICE = {
    errno.ENOENT: "check the path",
    errno.EACCES: "check its permissions, or choose another place",
    errno.EPERM: "check its permissions, or choose another place",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "the disk is full: free some space, or choose another place",
    errno.EDQUOT: "the quota is used up: free some space, or choose another place",
    errno.EFBIG: "the file is larger than the system allows: raise the limit, or choose another place",
}


# Where the library names an argument: as the first word, in backquotes, or after a bracket, with a value or without.
# What is in quotes is the user's.
_ARGUMENT = re.compile(
    r"(?<!\w)'[^']*'|(?:^|(?<=^Invalid ))(?P<first>\w+)(?=[ :])|(?<=`)(?P<ticked>\w+)(?=`)"
    r"|(?<=\()(?P<bracketed>\w+)\b(?: '(?P<value>[^']*)')?"
)


class KnownName(click.Choice[str]):
    """A choice whose error names the nearest known one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            self.fail(unknown_name("value", value, self.choices), param, ctx)
        return str(value)


class LibraryCall(click.Command):
    """A verb, whose errors call an argument of the library by the option that it was given by."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, RuntimeError, OSError) as error:
            if len(error.args) == 1 and isinstance(error.args[0], str):
                error.args = (_with_options(error.args[0], self),)
            raise


def _with_options(message: str, verb: click.Command, *, also_first: bool = True) -> str:
    options = {one.opts[0][2:].replace("-", "_"): one.opts[0] for one in verb.params if isinstance(one, click.Option)}

    def option(found: re.Match[str]) -> str:
        name = (found["first"] if also_first else None) or found["ticked"] or found["bracketed"] or ""
        typed = options.get(name) or options.get(name.removesuffix("s"))  # optimizer_options: one at a time
        if typed is None:
            return found[0]
        return typed if found["value"] is None else f"{typed} {shlex.quote(found['value'])}"

    return _ARGUMENT.sub(option, message)


class KnownVerbs(click.Group):
    """A verb that has verbs; the error for an unknown one names the nearest."""

    command_class = LibraryCall

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is None:
            ctx.fail(unknown_name(f"verb of `{self.name}`", cmd_name, self.list_commands(ctx)))
        return found


def one_line_errors(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the `main` of a click command. CMALIGHT_TRACEBACK=1 in the environment shows where an error came from."""

    @functools.wraps(run)
    def main(*args: Any, **kwargs: Any) -> NoReturn:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                code = run(*args, **{**kwargs, "standalone_mode": False})
            except click.exceptions.NoArgsIsHelpError as error:
                error.show()
                sys.exit(WRONG_USE)
            except (click.Abort, KeyboardInterrupt):
                _say("interrupted")
                sys.exit(INTERRUPTED)
            except Exception as error:
                message = _message(error)
                if message is None or os.environ.get("CMALIGHT_TRACEBACK"):
                    raise
                _say(f"error: {message}")
                sys.exit(WRONG_USE)
        sys.exit(code if isinstance(code, int) else 0)

    return main


def _message(error: Exception) -> str | None:
    """What the user is told; None for an error that is ours, not the user's."""
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "cmalight"
        return f"{error.format_message().rstrip('.')}; see `{path} --help`"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError) and error.strerror is not None:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror}; {_ADVICE.get(error.errno or 0, 'choose another path')}"
    if isinstance(error, ImportError) and "pip install" not in str(error):
        return None
    if isinstance(error, MemoryError):
        return "there is not enough memory; give less data, or a smaller network"
    return str(error) if isinstance(error, ValueError | RuntimeError | OSError | ImportError) else None


def _as_typed(message: str, *, also_first: bool = True) -> str:
    context = click.get_current_context(silent=True)
    return message if context is None else _with_options(message, context.command, also_first=also_first)


def _say(message: str) -> None:
    click.echo(f"cmalight: {' '.join(message.split())}", err=True)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _say(f"warning: {_as_typed(str(message))}")


def show_messages(*, quiet: bool) -> None:
    """What the library logs: news of a training or of the test-bed on stdout, warnings on stderr."""
    logger = logging.getLogger("cmalight")
    for handler in [handler for handler in logger.handlers if isinstance(handler, _Messages)]:
        logger.removeHandler(handler)
    logger.addHandler(_Messages())
    for name in _NEWS:
        logging.getLogger(name).setLevel(logging.WARNING if quiet else logging.INFO)


class _Messages(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            _say(f"warning: {_as_typed(record.getMessage())}")
        elif record.name in _NEWS:  # whose first words are headings
            click.echo(_as_typed(record.getMessage(), also_first=False))
