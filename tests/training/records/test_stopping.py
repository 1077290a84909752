"""Each stop rule has its status, and the reason says why."""

import math
import os
import signal
import threading

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from cmalight import CMALight, Status, fit
from cmalight.training.records import clock as clock_module
from tests.helpers import copied_state, same_state
from tests.training.common import MSE, data, model, train


def test_max_epochs():
    _, result = train(max_epochs=3)
    assert (result.status, result.epochs, result.reason) == (Status.MAX_EPOCHS, 3, "3 epochs done")


def test_no_epochs_at_all_is_allowed():
    network = model()
    before = copied_state(network)
    _, result = train(network, max_epochs=0)
    assert (result.status, result.epochs, result.evaluations) == (Status.MAX_EPOCHS, 0, 0)
    assert same_state(network.state_dict(), before)


def test_target_loss_by_the_estimate_or_by_the_true_loss():
    _, result = train(max_epochs=500, target_loss=0.05)
    assert result.status is Status.TARGET_LOSS
    assert result.history[-1].f_tilde <= 0.05 < result.history[-2].f_tilde
    _, result = train(max_epochs=500, target_loss=0.05, measure_train_loss=True)
    assert result.history[-1].train_loss <= 0.05 < result.history[-2].train_loss


def test_min_lr():
    _, result = train(max_epochs=500, optimizer_options={"lr": 100.0}, min_lr=10.0)
    assert result.status is Status.MIN_LR
    assert result.history[-1].lr > 10.0
    assert "fell to 10" in result.reason


def test_converged_by_the_direction():
    _, result = train(max_epochs=500, tolerance=0.5)
    assert result.status is Status.CONVERGED
    assert "within the tolerance" in result.reason


def test_patience_on_the_validation_loss_and_on_a_metric():
    x, y = data()
    spoilt = (x[:20], -y[:20])  # the better the training, the worse this
    _, result = train(max_epochs=500, validation=spoilt, patience=3)
    assert result.status is Status.PATIENCE
    assert result.epochs == result.best_epoch + 4
    _, result = train(max_epochs=500, validation=spoilt, metrics=("r2",), monitor="r2", patience=2)
    assert result.epochs == result.best_epoch + 3


def test_a_callback_may_stop():
    class StopAtTwo:
        seen = ()
        closed = False

        def on_epoch_end(self, record):
            self.seen += (record.epoch,)
            return record.epoch == 2

        def close(self):
            self.closed = True

    callback = StopAtTwo()
    _, result = train(max_epochs=10, callbacks=[callback])
    assert (result.status, callback.seen, callback.closed) == (Status.CALLBACK, (0, 1, 2), True)


def test_torchs_optimizers_that_diverge_are_stopped():
    _, result = train(optimizer=torch.optim.SGD((m := model()).parameters(), lr=1e200), network=m, max_epochs=50)
    assert result.status is Status.DIVERGED
    assert result.epochs < 50


class FakeTime:
    """A clock that advances when it is told to."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(clock_module.time, "perf_counter", lambda: self.now)


class Slow(nn.Module):
    """A model whose every forward pass takes a second of fake time."""

    def __init__(self, inner, time_):
        super().__init__()
        self.inner, self.time = inner, time_

    def forward(self, x):
        self.time.now += 1.0
        return self.inner(x)


def test_the_processors_clock_does_not_run_while_others_have_the_processor(monkeypatch):
    """The wall's clock, which the model turns on, is not looked at."""
    slow = Slow(model(), FakeTime(monkeypatch))
    monkeypatch.setattr(clock_module, "processor_seconds", lambda: slow.time.now / 10)
    _, result = train(slow, time_limit=0.95, max_epochs=None, optimizer="sgd", clock="processor", engine="eager")
    assert result.status is Status.TIME_LIMIT
    assert 0.95 <= result.seconds <= 1.05  # ten batches


def test_compilers_that_were_waited_for_are_on_the_processors_clock(monkeypatch):
    monkeypatch.setattr(clock_module.time, "process_time", lambda: 1.0)
    times = os.times_result((9.0, 9.0, 2.0, 0.5, 9.0))
    monkeypatch.setattr(clock_module.os, "times", lambda: times)
    assert clock_module.processor_seconds() == 3.5


def test_a_clock_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="Invalid clock value: 'sun'; expected one of wall, processor"):
        train(clock="sun")


@pytest.mark.parametrize("optimizer", ["cmalight", "sgd"])
def test_the_time_limit_is_checked_before_every_batch(monkeypatch, optimizer):
    slow = Slow(model(), FakeTime(monkeypatch))
    _, result = train(slow, time_limit=9.5, max_epochs=None, optimizer=optimizer, engine="eager")
    assert result.status is Status.TIME_LIMIT
    assert 9.5 <= result.seconds <= 10.5  # one batch at most


def test_a_full_evaluation_is_interrupted_by_the_time_limit(monkeypatch):
    """f(w⁰) alone would take six seconds of unmerged batches."""
    slow = Slow(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)).double(), FakeTime(monkeypatch))
    before = copied_state(slow)
    _, result = train(slow, time_limit=3.0, max_epochs=None, engine="eager")
    assert (result.status, result.epochs) == (Status.TIME_LIMIT, 0)
    assert result.seconds <= 4.0
    assert same_state(slow.state_dict(), before)


def test_a_line_search_is_interrupted_by_the_time_limit_and_goes_back(monkeypatch):
    slow = Slow(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)).double(), FakeTime(monkeypatch))
    before = copied_state(slow)
    optimizer = CMALight(slow.parameters(), lr=0.01, line_search="certified")
    _, result = train(slow, optimizer=optimizer, time_limit=1e9, max_epochs=0)
    optimizer.restart(lambda: 100.0)
    optimizer.param_groups[0]["phi"] = -1e9
    now = slow.time.now
    _, result = train(slow, optimizer=optimizer, time_limit=8.0, max_epochs=None, engine="eager")
    assert (result.status, result.epochs) == (Status.TIME_LIMIT, 0)  # six batches, then the search's evaluation
    assert slow.time.now - now == 8.0
    assert same_state(slow.state_dict(), before)


def test_a_stop_inside_an_epoch_keeps_the_weights_of_torchs_optimizers(monkeypatch):
    slow = Slow(model(), FakeTime(monkeypatch))
    before = copied_state(slow)
    train(slow, optimizer="sgd", time_limit=3.0, max_epochs=None, engine="eager")
    assert not same_state(slow.state_dict(), before)


def test_measuring_is_not_on_the_training_clock(monkeypatch):
    slow = Slow(model(), FakeTime(monkeypatch))
    _, result = train(slow, max_epochs=2, optimizer="sgd", validation=data(), measure_train_loss=True)
    assert [r.seconds for r in result.history] == [6.0, 12.0]
    assert slow.time.now > 12.0


def test_the_algorithms_own_evaluations_are_on_the_training_clock(monkeypatch):
    slow = Slow(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)).double(), FakeTime(monkeypatch))
    _, result = train(slow, max_epochs=1, optimizer="cma", pair=data(10))
    assert result.history[0].seconds == 3.0  # one batch, f(w⁰), f(w̃)


class InterruptAt:
    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, record):
        if record.epoch == self.epoch:
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_stops_at_the_next_batch_and_the_handler_is_put_back():
    handler = signal.getsignal(signal.SIGINT)
    _, result = train(max_epochs=50, callbacks=[InterruptAt(3)])
    assert (result.status, result.epochs) == (Status.INTERRUPTED, 4)
    assert signal.getsignal(signal.SIGINT) is handler


def test_ctrl_c_inside_an_epoch_goes_back_to_its_start():
    class Interrupting(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls == 5:
                os.kill(os.getpid(), signal.SIGINT)
            return super().forward(x)

    network = Interrupting(4, 1).double()
    before = copied_state(network)
    _, result = train(network, max_epochs=50)
    assert (result.status, result.epochs) == (Status.INTERRUPTED, 0)
    assert same_state(network.state_dict(), before)


def test_fit_works_outside_the_main_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(train(max_epochs=2)[1]))
    thread.start()
    thread.join()
    assert results[0].epochs == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_epochs": None}, "Give a run an end"),
        ({"max_epochs": -1}, "max_epochs"),
        ({"max_epochs": 1.5}, "max_epochs"),
        ({"time_limit": 0}, "time_limit"),
        ({"min_lr": -1.0}, "min_lr"),
        ({"tolerance": math.nan}, "tolerance"),
        ({"patience": 0, "validation": data()}, "patience"),
        ({"patience": 2}, "pass validation"),
        ({"metrics": ("r2",)}, "pass validation"),
        ({"metrics": ("acuracy",), "validation": data()}, "did you mean 'accuracy'"),
        ({"monitor": "accuracy", "validation": data()}, "figure to monitor"),
        ({"tolerance": 0.1, "optimizer": "adam"}, "only our optimizers"),
        ({"optimizer": "cmalite"}, "did you mean 'cmalight'"),
        ({"optimizer_options": {"learning_rate": 1.0}}, "learning_rate"),
        ({"engine": "fast"}, "engine"),
        ({"starts": 0}, "starts"),
        ({"order": "random"}, "order"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"time_limit": "5"}, "time_limit"),
        ({"metrics": "r2", "validation": data()}, "a list of names"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        train(**options)


class Stream(IterableDataset):
    def __init__(self, endless):
        self.endless = endless

    def __iter__(self):
        x, y = data(20)
        yield from zip(x, y, strict=True)
        while self.endless:
            yield from zip(x, y, strict=True)


def test_streams_are_refused_under_the_watchdog_and_need_a_time_limit_elsewhere():
    loader = DataLoader(Stream(endless=True), batch_size=5)
    with pytest.raises(ValueError, match="watchdog compares epochs with a fixed sum"):
        train(pair=loader)
    with pytest.raises(ValueError, match="set a time_limit"):
        train(pair=loader, optimizer="sgd")
    _, result = train(pair=loader, optimizer="sgd", time_limit=0.2, max_epochs=None)
    assert (result.status, result.epochs) == (Status.TIME_LIMIT, 0)


def test_a_stream_that_ends_is_an_epoch_for_torchs_optimizers():
    loader = DataLoader(Stream(endless=False), batch_size=5)
    _, result = train(pair=loader, optimizer="adam", time_limit=100, max_epochs=3)
    assert (result.status, result.epochs) == (Status.MAX_EPOCHS, 3)


def test_a_ready_optimizer_is_used_as_it_is():
    network = model()
    optimizer = CMALight(network.parameters(), lr=0.123)
    _, result = train(network, optimizer=optimizer)
    assert result.optimizer is optimizer
    assert result.history[0].lr == 0.123
    with pytest.raises(ValueError, match="a ready optimizer has its own"):
        fit(network, MSE, data(), optimizer=optimizer, optimizer_options={"lr": 1.0})


def test_any_data_loader_is_data():
    x, y = data()
    _, result = train(pair=DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True), max_epochs=30)
    assert result.history[-1].f_tilde < result.history[0].f_tilde
