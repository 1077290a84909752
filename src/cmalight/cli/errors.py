"""How the command ends: exit 0, exit 2 after one line that says what was wrong, or exit 130 after Ctrl-C."""

from __future__ import annotations

import errno
import functools
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

A_PATH = click.Path(path_type=Path)
WRONG_USE = 2
INTERRUPTED = 130
BROKEN_PIPE = 1  # as click ends a command whose reader has gone

_ADVICE = {
    errno.EACCES: "check its permissions, or choose another place",
    errno.ENOSPC: "free some space, or choose another place",
}


def one_line_errors(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the `main` of a click group so that a user's mistake is one line on stderr.

    Errors of the program itself keep their traceback; CMALIGHT_TRACEBACK=1 in the environment shows that of any error.
    """

    @functools.wraps(run)
    def main(*args: Any, **kwargs: Any) -> NoReturn:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
            try:
                code = run(*args, **{**kwargs, "standalone_mode": False})
                sys.stdout.flush()
            except click.exceptions.NoArgsIsHelpError as error:
                error.show()
                sys.exit(WRONG_USE)
            except (click.Abort, KeyboardInterrupt):
                say("interrupted")
                sys.exit(INTERRUPTED)
            except BrokenPipeError:
                _discard_stdout()
                sys.exit(BROKEN_PIPE)
            except Exception as error:
                message = message_for(error)
                if message is None or os.environ.get("CMALIGHT_TRACEBACK"):
                    raise
                say(f"error: {message}")
                _discard_stdout()
                sys.exit(WRONG_USE)
        sys.exit(code if isinstance(code, int) else 0)

    return main


def message_for(error: Exception) -> str | None:
    """Return what to tell the user, or None for a mistake of the program itself."""
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "cmalight"
        message = error.format_message().rstrip(".")
        return f"{message}{' See' if message.endswith('?') else '; see'} `{path} --help`"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError) and error.strerror is not None:
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{error.strerror}; {_ADVICE.get(error.errno or 0, 'check the path, or choose another')}"
    if isinstance(error, MemoryError):
        return "not enough memory; use less data or a smaller network"
    if isinstance(error, ImportError):
        return str(error) if "pip install" in str(error) else None
    return str(error) if isinstance(error, ValueError | RuntimeError | OSError) else None


def say(message: str) -> None:
    """Print one line to stderr, whatever line ends the message has."""
    click.echo(f"cmalight: {' '.join(message.split())}", err=True)


def show_messages(*, quiet: bool) -> None:
    """Show what the library logs: progress on stdout unless `quiet`, warnings on stderr."""
    logger = logging.getLogger("cmalight")
    logger.handlers = [handler for handler in logger.handlers if not isinstance(handler, _Messages)]
    logger.addHandler(_Messages())
    logger.setLevel(logging.WARNING if quiet else logging.INFO)


class _Messages(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            say(f"warning: {record.getMessage()}")
        else:
            click.echo(record.getMessage())


def _discard_stdout() -> None:
    """Keep Python from writing the rest of its buffer to a closed pipe or a full disk when it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # stdout is not a file of this process, as under click's test runner
        return
