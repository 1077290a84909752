"""What a driver shows while it runs."""

import io
import logging
import os
from contextlib import suppress

import pytest
from rich.console import Console

from cmalight import bench
from cmalight.bench.running import board, display
from cmalight.bench.running.one_run import Told
from tests.bench.common import finished, spec, start, toml


def test_the_table_shows_what_is_running_and_what_failed():
    runs = bench.plan(spec(solvers=["adam", "sgd", "ig"]))
    seen = board.Board(runs, 2, 10.0)
    seen.hear(Told(runs[0].key, 7, 0.125, 3.0))
    seen.record(runs[1], "failed")
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(display.drawing(seen.view(), ["diabetes 1x5 seed 0 sgd: failed: it raised"]))
    text = console.export_text()
    assert "1 of 3 runs recorded" in text
    assert "1 without a figure, 0:00 left" in text
    assert "adam" in text
    assert "0.125" in text
    assert "it raised" in text


def test_a_late_word_of_a_run_that_is_over_is_not_shown():
    runs = bench.plan(spec())
    seen = board.Board(runs, 1, None)
    seen.ends(runs[0].key, for_good=True)
    seen.hear(Told(runs[0].key, 1, None, 0.0))
    assert seen.view().running == ()


def test_plain_lines_where_there_is_no_terminal(caplog):
    runs = bench.plan(spec())
    seen = board.Board(runs, 1, None)
    seen.record(runs[0], "done")
    shown = display.make_display(True)
    content = {"status": "done", "final_loss": 0.5, "seconds": 1.0, "epochs": {"epoch": [0, 1]}}
    with caplog.at_level(logging.INFO, logger="cmalight.bench"):
        shown.recorded(runs[0], content, seen.view())
    assert "1 of 1, 0:00 left: diabetes 1x5 seed 0 adam: loss 0.5 after 2 epochs and 1.0 s" in caplog.text


def test_the_time_left_is_a_bound_until_a_run_has_ended_and_then_by_the_pace(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(board.time, "monotonic", lambda: now[0])
    runs = bench.plan(spec(solvers=["adam", "sgd", "ig", "cma"]))
    seen = board.Board(runs, 2, 10.0)
    assert seen.view().time_left == "at least 0:20 left"
    now[0] = 15.0  # five seconds of which the processes took to start
    seen.record(runs[0], "done")
    seen.record(runs[1], "done")
    assert seen.view().time_left == "0:15 left"
    seen.hear(Told(runs[2].key, 7, 0.125, 3.0))
    assert seen.view().time_left == "0:09 left"  # two and a half of four are done, in fifteen seconds


def test_a_cell_is_done_when_all_its_solvers_are():
    runs = bench.plan(spec(solvers=["adam", "sgd"], seeds=2))
    seen = board.Board(runs, 1, None)
    for run in runs[:3]:
        seen.record(run, "failed", reused=True)
    assert (seen.view().cells_done, seen.view().cells) == (1, 2)


@pytest.mark.slow
def test_a_terminal_gets_the_live_table(tmp_path):
    """A real one, as far as the command can tell."""
    pty = pytest.importorskip("pty")
    path = toml(tmp_path / "spec.toml", solvers=["adam", "tests.bench.solvers:Raises"])
    ours, theirs = pty.openpty()
    process = start(
        "run", path, "--out", tmp_path / "out", "--workers", 1, stderr=theirs, env={"COLUMNS": "150", "TERM": "xterm"}
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # Linux says so when the other side is closed
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    code, stdout, _ = finished(process)
    assert (code, stdout.count("\n")) == (0, 1)
    assert "1 of 1 cells done: 2 of 2 runs recorded (0 were there), 0 running, 1 without a figure" in shown.decode()
    assert "failed: the solver divided by zero" in shown.decode()
