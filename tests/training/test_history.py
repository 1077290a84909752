"""The history, its file, and what a run shows."""

import io
import json
import math
import sys

import pandas
import pytest

from cmalight.training import EpochRecord, History, TensorBoard
from cmalight.training.history import Display
from cmalight.training.stopping import StopRules
from tests.training.common import MSE, AfterEpoch, data, mae, train

RECORD = EpochRecord(3, 1.5, 0.25, 0.5, "accepted", 2, validation_loss=0.3, metrics={"mae": 0.75})
RULES = StopRules(max_epochs=10)


def test_one_record_per_epoch_with_everything_in_it():
    options = {"optimizer": "cmalight", "validation": data(20), "metrics": (mae, MSE), "measure_train_loss": True}
    _, result = train(max_epochs=4, **options)
    assert [record.epoch for record in result.history] == [0, 1, 2, 3]
    assert all(a.seconds < b.seconds for a, b in zip(result.history, result.history[1:], strict=False))
    last = result.history[-1]
    assert (last.outcome, last.alpha, last.lr) == ("accepted", 0.1, 0.1)
    assert [record.evaluations for record in result.history] == [1, 0, 0, 0]
    assert result.evaluations == 1
    assert last.phi >= last.batch_loss
    assert last.metrics["MSELoss"] == pytest.approx(last.validation_loss, rel=1e-9)
    assert last.train_loss < last.batch_loss


def test_under_torchs_optimizers_there_is_nothing_of_a_control():
    record = train()[1].history[-1]
    assert (record.outcome, record.alpha, record.phi, record.train_loss) == ("uncontrolled", None, None, None)


def test_a_history_is_printed_by_its_ends():
    _, result = train(max_epochs=20, validation=data(20), metrics=(mae,))
    lines = str(result.history).splitlines()
    assert lines[-1] == f"epoch 19  {result.history[-1]}"
    assert [line.split("  ")[0] for line in lines[4:7]] == ["epoch 4", "...", "epoch 15"]
    assert len(lines) == 11
    assert repr(History()) == "History of 0 epochs"


def test_to_pandas_has_a_row_per_epoch_and_a_column_per_metric():
    _, result = train(max_epochs=3, validation=data(20), metrics=(mae,))
    frame = result.history.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 3
    assert frame["mae"].iloc[-1] == result.history[-1].metrics["mae"]
    assert "metrics" not in frame
    assert list(History().to_pandas().columns)[:3] == ["epoch", "seconds", "batch_loss"]


def test_json_lines_grow_with_the_run_and_make_the_same_records(tmp_path):
    path = tmp_path / "history.jsonl"
    lines = []
    count = AfterEpoch(lambda record: lines.append(len(path.read_text().splitlines())))
    _, result = train(max_epochs=3, history_file=path, callbacks=[count])
    assert lines == [1, 2, 3]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [EpochRecord(**row) for row in rows] == list(result.history)


def test_a_number_that_is_not_finite_is_null_in_json():
    record = EpochRecord(0, 1.0, math.inf, 0.5, "diverged", metrics={"mae": math.nan})
    plain = json.loads(record.to_json(), parse_constant=lambda _: pytest.fail("not JSON"))
    assert plain["batch_loss"] is None
    assert plain["metrics"] == {"mae": None}


def test_a_line_per_epoch_where_there_is_no_terminal():
    stream = io.StringIO()
    display = Display(RULES, stream)
    display.note("resumed")
    display.position(3.5, 1.0)
    display.epoch_done(RECORD)
    display.close("it was time")
    assert stream.getvalue() == (
        "resumed\n"
        "epoch 4  loss 0.25  validation 0.3  mae 0.75  lr 0.5  accepted  evaluations 2  1.5 s\n"
        "stopped: it was time\n"
    )


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("width", "end"), [(60, "loss 0.25"), (85, "mae 0.75"), (160, str(RECORD))])
def test_a_bar_on_a_terminal_shows_whole_numbers_at_every_width(monkeypatch, width, end):
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    Display(RULES, stream).epoch_done(RECORD)
    line = stream.getvalue().removeprefix("\r\x1b[K")
    assert line.startswith("epoch 5/10  ######----------  0:03 left")  # four of ten epochs took 1.5 s
    assert line.endswith(end)
    assert len(line) < width


def test_no_progress_is_shown_where_none_is_wanted(capsys):
    train()
    assert capsys.readouterr() == ("", "")


def test_tensorboard_gets_the_scalars(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, result = train(max_epochs=3, validation=data(20), metrics=(mae,), callbacks=[TensorBoard(tmp_path)])
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    names = {"loss/batch", "loss/validation", "metric/mae", "control/lr", "outcome/uncontrolled"}
    assert names <= set(events.Tags()["scalars"])
    values = [event.value for event in events.Scalars("loss/batch")]
    assert values == pytest.approx([record.batch_loss for record in result.history], rel=1e-6)


@pytest.mark.parametrize(
    ("module", "use", "extra"),
    [
        ("pandas", History().to_pandas, "data"),
        ("torch.utils.tensorboard", lambda: TensorBoard("folder"), "tensorboard"),
    ],
)
def test_a_missing_library_is_named_with_the_line_that_installs_it(monkeypatch, module, use, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf'pip install "cmalight\[{extra}\]"'):
        use()
