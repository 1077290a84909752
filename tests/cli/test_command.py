"""The command's frame: exit codes, one-line errors, signals, what is imported."""

import errno
import os
import subprocess
import sys
import warnings
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cmalight.cli import command
from cmalight.cli.errors import one_line_errors, show_messages
from tests.cli.verbs import verbs

ROOT = Path(__file__).parents[2]


class Frame(click.Group):
    main = one_line_errors(click.Group.main)


def ending(action):
    """How a command ends whose only verb does this."""
    group = Frame("cmalight")
    group.command("act")(action)
    return CliRunner().invoke(group, ["act"], prog_name="cmalight")


def raising(error):
    def act():
        raise error

    return ending(act)


def test_without_a_verb_the_help_is_shown_and_exit_2(cmalight):
    result = cmalight()
    assert result.exit_code == 2
    assert all(name in result.stderr for name in command.commands)


@pytest.mark.parametrize(("typed", "meant"), [("dataset", "datasets"), ("bnech", "bench")])
def test_an_unknown_verb_gets_the_nearest(cmalight, typed, meant):
    assert f"Unknown command '{typed}'; did you mean '{meant}'? known are demo, " in cmalight.refused(typed)


def test_help_imports_nothing_heavy():
    code = """
import sys
from cmalight.cli import command
from tests.cli.verbs import verbs
for path, _ in [("cmalight", None), *verbs(command)]:
    try:
        command([*path.split()[1:], "--help"], prog_name="cmalight")
    except SystemExit as end:
        assert end.code == 0
heavy = {"torch", "numpy", "pandas", "plotly", "pyarrow", "pydantic", "rich", "sklearn"}
print(*heavy & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True, cwd=ROOT
    )
    assert all(f"Usage: {path} " in done.stdout for path, _ in verbs(command))
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("something\n  is wrong"), "something is wrong"),
        (RuntimeError("it stopped"), "it stopped"),
        (ImportError('a plot needs it: pip install "x"'), 'a plot needs it: pip install "x"'),
        (OSError(errno.ENOSPC, "No space left"), "No space left; free some space, or choose another place"),
        (OSError(errno.EIO, "I/O error", "a"), "a: I/O error; check the path, or choose another"),
        (MemoryError(), "not enough memory; use less data or a smaller network"),
        (click.UsageError("bad option."), "bad option; see `cmalight act --help`"),
        (click.ClickException("it failed"), "it failed"),
    ],
)
def test_a_mistake_of_the_user_is_one_line_and_exit_2(error, line):
    result = raising(error)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"cmalight: error: {line}\n")


@pytest.mark.parametrize("error", [KeyError("ours"), ImportError("no module")])
def test_a_mistake_of_the_program_keeps_its_traceback(error):
    assert raising(error).exception is error


def test_the_traceback_of_any_error_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("CMALIGHT_TRACEBACK", "1")
    error = ValueError("wrong")
    assert raising(error).exception is error


def test_ctrl_c_is_one_line_and_exit_130():
    result = raising(KeyboardInterrupt())
    assert (result.exit_code, result.stderr.strip()) == (130, "cmalight: interrupted")


def test_warnings_and_messages_of_the_library_are_lines():
    import logging

    def act():
        show_messages(quiet=False)
        logging.getLogger("cmalight.bench").info("one run done")
        logging.getLogger("cmalight").warning("the cache is full")
        show_messages(quiet=True)
        logging.getLogger("cmalight").info("not shown")
        warnings.warn("odd data", UserWarning, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = ending(act)
    logger = logging.getLogger("cmalight")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    assert result.stdout == "one run done\n"
    assert result.stderr == "cmalight: warning: the cache is full\ncmalight: warning: odd data\n"


@pytest.mark.parametrize("writes", ["click.echo('x')", "sys.stdout.write('x')"])
def test_a_closed_pipe_is_quiet(writes):
    code = f"""
import sys, click
from cmalight.cli.errors import one_line_errors
class Frame(click.Group):
    main = one_line_errors(click.Group.main)
group = Frame("cmalight")
group.command("act")(lambda: {writes} and None)
group(["act"])
"""
    reading, writing = os.pipe()
    os.close(reading)
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_behind_stdout_is_one_line():
    with open("/dev/full", "w") as full:
        call = [sys.executable, "-m", "cmalight", "datasets", "list"]
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert done.stderr == "cmalight: error: No space left on device; free some space, or choose another place\n"
