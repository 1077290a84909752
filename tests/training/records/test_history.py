"""The history, its file, and what a run shows."""

import io
import json
import math
import os
import pty
import subprocess
import sys

import pandas
import pytest
import torch
from rich.console import Console
from torch import nn

import cmalight
from cmalight import fit
from cmalight.training import TensorBoard
from cmalight.training.records.history import EpochRecord, History
from cmalight.training.records.progress import Bar, EpochLines, describe, make_display
from cmalight.training.solvers.run_budget import share_done
from tests.training.common import MSE, data, model, train

RECORD = EpochRecord(3, 1.5, 0.25, 0.5, 0.5, "accepted", 2, validation_loss=0.3, metrics={"r2": 0.75})


def test_one_record_per_epoch_with_everything_in_it():
    _, result = train(max_epochs=4, validation=data(20), metrics=("r2", "mse"), measure_train_loss=True)
    assert [r.epoch for r in result.history] == [0, 1, 2, 3]
    assert all(a.seconds < b.seconds for a, b in zip(result.history, result.history[1:], strict=False))
    last = result.history[-1]
    assert last.outcome == "accepted"
    assert last.alpha == last.lr == 0.1
    assert [r.evaluations for r in result.history] == [1, 0, 0, 0]
    assert sum(r.evaluations for r in result.history) == result.evaluations
    assert last.next_lr == last.lr
    assert last.phi >= last.f_tilde
    assert last.metrics.keys() == {"r2", "mse"}
    assert last.metrics["mse"] == pytest.approx(last.validation_loss, rel=1e-9)
    assert last.train_loss < last.f_tilde


def test_a_history_is_printed_as_a_short_table():
    _, result = train(max_epochs=20, validation=data(20), metrics=("r2",))
    lines = str(result.history).splitlines()
    assert lines[0].split() == ["epoch", "seconds", "loss", "validation", "metrics", "lr", "evaluations", "outcome"]
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2", "3", "4", "...", "15", "16", "17", "18", "19"]
    assert len({len(line) for line in lines}) == 1
    assert repr(History()) == "History of 0 epochs"


def test_the_true_loss_is_the_same_after_an_epoch_that_was_undone():
    """With dropout: the random numbers of a measurement are the same each time."""
    network = model(dropout=0.5)
    _, result = train(network, optimizer_options={"lr": 1e6}, max_epochs=3, measure_train_loss=True, order="fixed")
    assert [r.alpha for r in result.history] == [0.0, 0.0, 0.0]
    assert len({r.train_loss for r in result.history}) == 1


def test_small_steps_over_a_table_take_one_thread_and_the_callers_come_back():
    seen = []

    class Look:
        def on_epoch_end(self, record):
            seen.append(torch.get_num_threads())

    x, y = torch.ones(40, 4), torch.ones(40, 1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for inputs, network, threads in (
            (x, nn.Linear(4, 1), None),
            (x, nn.Linear(4, 1), 2),
            (torch.ones(40, 3, 4), nn.Sequential(nn.Linear(4, 1), nn.Flatten(), nn.Linear(3, 1)), None),
            (x, nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 1, 4), nn.Flatten()), None),
        ):
            fit(network, MSE, (inputs, y), max_epochs=1, progress=False, callbacks=[Look()], threads=threads)
            assert torch.get_num_threads() == 2
        assert seen == [1, 2, 2, 2]
    finally:
        torch.set_num_threads(before)
    with pytest.raises(ValueError, match="Invalid threads value: 0"):
        train(threads=0)


def test_the_package_shows_its_public_names_alone():
    assert {name for name in dir(cmalight) if not name.startswith("__")} >= {"fit", "CMALight", "Objective"}
    assert not {"importlib", "annotations", "Any", "TYPE_CHECKING", "_HOMES"} & set(dir(cmalight))


def test_true_training_loss_is_left_out_unless_asked_for():
    _, result = train()
    assert result.history[0].train_loss is None


def test_to_pandas_has_a_row_an_epoch_and_a_column_a_metric():
    _, result = train(max_epochs=3, validation=data(20), metrics=("r2",))
    frame = result.history.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 3
    assert frame["r2"].iloc[-1] == result.history[-1].metrics["r2"]
    assert "metrics" not in frame
    assert list(History().to_pandas().columns)[:3] == ["epoch", "seconds", "f_tilde"]


def test_json_lines_grow_with_the_run_and_are_valid_json(tmp_path):
    path = tmp_path / "history.jsonl"
    lines = []

    class Count:
        def on_epoch_end(self, record):
            lines.append(len(path.read_text().splitlines()))

    _, result = train(max_epochs=3, history_file=path, callbacks=[Count()])
    assert lines == [1, 2, 3]
    parsed = [json.loads(line) for line in path.read_text().splitlines()]
    assert [p["f_tilde"] for p in parsed] == [r.f_tilde for r in result.history]


def test_a_number_that_is_not_finite_is_null_in_json():
    record = EpochRecord(0, 1.0, math.inf, 0.5, 0.0, "diverged", 1, metrics={"r2": math.nan})
    plain = json.loads(record.to_json(), parse_constant=lambda _: pytest.fail("not JSON"))
    assert plain["f_tilde"] is None
    assert plain["metrics"] == {"r2": None}


def test_plain_data_makes_the_same_history():
    history = History([RECORD])
    assert list(History.from_plain(history.to_plain())) == [RECORD]


def test_a_line_an_epoch():
    stream = io.StringIO()
    lines = EpochLines(stream)
    lines.epoch_done(RECORD)
    lines.close("it was time")
    assert stream.getvalue() == (
        "epoch 4  loss 0.25  validation 0.3  r2 0.75  lr 0.5  accepted  evaluations 2  1.5 s\nstopped: it was time\n"
    )


def test_the_share_done_follows_the_limit_that_ends_first():
    assert share_done(5, 10.0, max_epochs=20, time_limit=100.0) == 0.25
    assert share_done(5, 80.0, max_epochs=20, time_limit=100.0) == 0.8
    assert share_done(5, 80.0, max_epochs=None, time_limit=None) == 0.0


def run_in_a_process(code, **environment):
    environment = {**{k: v for k, v in os.environ.items() if k != "CI"}, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment, check=True
    )


TRAINING = """
import os, tempfile, torch
from cmalight import fit
torch.manual_seed(0)
x = torch.rand(50, 3)
options = dict(max_epochs=3, optimizer_options={"lr": 0.1}, validation=(x, x.sum(1)), metrics=("r2",))
with tempfile.TemporaryDirectory() as folder:
    for _ in range(2 if os.environ.get("RESUME") else 1):
        options["checkpoint"] = os.path.join(folder, "run.pt")
        fit(torch.nn.Linear(3, 1), torch.nn.MSELoss(), (x, x.sum(1)), **options)
"""


def test_it_is_quiet_where_there_is_no_terminal():
    run = run_in_a_process(TRAINING)
    assert (run.stdout, run.stderr) == ("", "")


def test_a_ci_log_gets_one_line_per_epoch_and_the_reason():
    run = run_in_a_process(TRAINING, CI="true")
    lines = run.stderr.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1", "epoch 2", "epoch 3", "stopped: 3 epochs done"]
    assert run.stdout == ""


def test_a_terminal_gets_a_bar_and_at_its_end_the_figures_and_the_reason():
    """A real pseudo-terminal."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    process = subprocess.Popen([sys.executable, "-c", TRAINING], stderr=follower, env=environment)
    os.close(follower)
    shown = b""
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    assert process.wait(300) == 0
    text = shown.decode()
    assert "epoch 1/3" in text.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert "evaluations" in text
    assert "stopped: 3 epochs done" in text


def test_no_progress_is_shown_when_none_is_wanted(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert type(make_display(False, max_epochs=1, time_limit=None)).__name__ == "RunDisplay"


def test_the_bar_shows_the_time_left(monkeypatch):
    monkeypatch.setattr("cmalight.training.records.progress._REFRESH_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "200")
    bar = Bar(max_epochs=10, time_limit=None)
    bar.epoch_done(RECORD)
    fields = bar._bar.tasks[0].fields
    bar.close("")
    assert fields["left"] == "0:02 left"  # four of ten epochs took 1.5 s
    assert fields["figures"] == describe(RECORD)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_the_bar_shows_epoch_time_and_loss_at_every_width(monkeypatch, width):
    monkeypatch.setattr("cmalight.training.records.progress._REFRESH_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", str(width))
    bar = Bar(max_epochs=1000, time_limit=None)
    bar.epoch_done(RECORD)
    bar._bar.stop()
    console = Console(width=width, file=io.StringIO())
    console.print(bar._bar.get_renderable())
    line = console.file.getvalue()
    assert len(line.splitlines()) == 1
    assert "epoch 5/1000" in line
    assert "6:14 left" in line
    assert "loss 0.25" in line
    assert "…" not in line  # a figure is there whole, or not at all
    assert ("r2 0.75" in line) == (width >= 80)


def test_tensorboard_gets_the_scalars(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, result = train(max_epochs=3, validation=data(20), metrics=("r2",), callbacks=[TensorBoard(tmp_path)])
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    names = {"loss/f_tilde", "loss/validation", "metric/r2", "control/lr", "control/evaluations", "outcome/accepted"}
    assert names <= set(events.Tags()["scalars"])
    values = [event.value for event in events.Scalars("loss/f_tilde")]
    assert values == pytest.approx([r.f_tilde for r in result.history], rel=1e-6)


def test_fit_works_with_torch_alone():
    """All optional libraries are taken away; torch itself warns when it cannot find NumPy."""
    blocked = """
import sys, warnings
sys.modules.update(dict.fromkeys(("numpy", "pandas", "rich", "sklearn", "tensorboard")))
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
"""
    run = run_in_a_process(blocked + TRAINING, CI="true", RESUME="1")
    assert run.stderr.splitlines()[-1] == "stopped: nothing left to train: 3 epochs done"


def test_a_missing_library_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r'pip install "cmalight\[data\]"'):
        History().to_pandas()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r'pip install "cmalight\[tensorboard\]"'):
        TensorBoard("folder")


def test_the_reason_is_in_the_result():
    _, result = train(max_epochs=2)
    assert str(result).startswith("max_epochs after 2 epochs and ")
    assert str(result).endswith(": 2 epochs done")
    assert torch.isfinite(torch.tensor(result.seconds))
