"""fit tells a control how long the run is: by epochs, by the clock, and anew where a run is extended."""

import pytest
import torch

from cmalight import Controlled, fit
from cmalight.training import CheckpointError
from cmalight.training.checkpoints import checkpoint
from cmalight.training.records.stopping import Status
from tests.helpers import copied_state, same_state
from tests.training.common import MSE, data, model, needs_compiler
from tests.training.records.test_stopping import FakeTime, Slow


class Rates:
    """The lr of every step of an optimizer's base."""

    def __init__(self, optimizer: Controlled) -> None:
        self.seen = []
        optimizer.base.register_step_pre_hook(lambda base, *_: self.seen.append(base.param_groups[0]["lr"]))


def trained(epochs: int | None, *, network=None, optimizer=None, **more):
    network = model() if network is None else network
    optimizer = Controlled(torch.optim.Adam(network.parameters(), lr=1e-2)) if optimizer is None else optimizer
    rates = Rates(optimizer)
    options = {"max_epochs": epochs, "batch_size": 10, "progress": False, "engine": "eager", **more}
    result = fit(network, MSE, data(60), optimizer=optimizer, **options)
    return network, optimizer, rates.seen, result


def test_by_epochs_the_step_size_ends_at_almost_nothing():
    _, _, rates, _ = trained(10)
    assert len(rates) == 60
    assert 0.0 < rates[-1] < 0.05 * max(rates)
    last = rates[-12:]
    assert last == sorted(last, reverse=True)
    assert len(set(last)) == 12  # batch by batch


def test_by_the_clock_too(monkeypatch):
    """A clock of our own: a tenth of a second at each look."""
    ticks = iter(range(10**9))
    monkeypatch.setattr("time.perf_counter", lambda: 0.1 * next(ticks))
    _, _, rates, result = trained(None, time_limit=60.0)
    assert result.status.value == "time limit" or "time" in str(result.status).lower()
    assert 0.0 < rates[-1] < 0.2 * max(rates)


def test_the_same_optimizer_in_a_second_run_has_a_budget_of_its_own():
    network, optimizer, first, _ = trained(6)
    _, _, second, _ = trained(6, network=network, optimizer=optimizer)
    assert first[-1] < 0.1 * max(first)
    assert max(second) > 0.5 * max(first)
    assert second[-1] < 0.1 * max(second)


def test_patience_stops_on_the_way_and_the_budget_stays_that_of_the_whole_run():
    """The step size was on its line to the end of all epochs, not to where patience would stop."""
    x, y = data(60)
    spoilt = (x[:20], -y[:20])  # the better the training, the worse this
    _, _, whole, _ = trained(20)
    _, optimizer, rates, result = trained(20, validation=spoilt, patience=3)
    assert result.status is Status.PATIENCE
    assert result.epochs == result.best_epoch + 4 < 12
    assert rates == whole[: len(rates)]
    assert rates[-1] > 0.5 * max(rates)
    assert optimizer.budget.max_epochs == 20


def test_a_run_that_patience_has_not_stopped_ends_at_almost_nothing():
    _, _, rates, result = trained(10, validation=data(60), patience=3)
    assert result.epochs == 10
    assert 0.0 < rates[-1] < 0.05 * max(rates)


class Broken(Exception):
    pass


class BreaksAfter:
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch_end(self, record) -> None:
        if record.epoch == self.epoch:
            raise Broken


@pytest.mark.parametrize("epoch", [2, 4, 7])
def test_a_run_that_is_broken_off_goes_on_bit_for_bit(tmp_path, epoch):
    whole, _, rates, result = trained(8)
    file = tmp_path / "run.pt"
    with pytest.raises(Broken):
        trained(8, checkpoint=file, checkpoint_seconds=0.0, callbacks=[BreaksAfter(epoch)])
    parts, _, resumed_rates, resumed = trained(8, checkpoint=file)
    assert 0 < len(resumed_rates) <= len(rates) - 6 * (epoch - 1)
    assert resumed_rates == rates[-len(resumed_rates) :]
    assert same_state(copied_state(whole), copied_state(parts))
    assert [(r.lr, r.f_tilde) for r in resumed.history] == [(r.lr, r.f_tilde) for r in result.history]


def test_a_finished_run_that_is_extended_has_its_step_size_again(tmp_path):
    file = tmp_path / "run.pt"
    _, _, first, _ = trained(5, checkpoint=file)
    _, _, second, result = trained(20, checkpoint=file)
    assert len(result.history) == 20
    assert first[-1] < 0.1 * max(first)
    assert max(second) >= 0.9 * max(first)
    assert 0.0 < second[-1] < 0.05 * max(second)


def judged(optimizer):
    return optimizer.control.memory(optimizer.rule()).batches_judged


class StopsAfter(BreaksAfter):
    def on_epoch_end(self, record) -> bool:
        return record.epoch == self.epoch


@pytest.mark.parametrize("engine", ["eager", pytest.param("compiled", marks=needs_compiler)])
@pytest.mark.parametrize("starts", [1, 2])
def test_a_run_that_ends_between_short_epochs_is_judged(engine, starts):
    options = {"max_epochs": 40, "batch_size": 10, "progress": False, "callbacks": [StopsAfter(1)]}
    network = model()
    result = fit(network, MSE, data(60), engine=engine, starts=starts, **options)
    assert [record.outcome for record in result.history] == ["open", "open"]
    assert result.optimizer.held_window is None
    assert judged(result.optimizer) == 12
    if starts == 1:
        again = model()
        fit(again, MSE, data(60), engine="eager", **options)
        torch.testing.assert_close(network.state_dict(), again.state_dict())


@pytest.mark.parametrize("seconds", [20.0, 37.0, 62.0, 63.0])
@pytest.mark.parametrize("inner", [[], [torch.nn.BatchNorm1d(4)]], ids=["merged", "batch by batch"])
def test_what_a_time_limit_cuts_short_is_judged_and_not_lost(monkeypatch, seconds, inner):
    """Short epochs that were open when the time was over would be lost with it."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(*inner, *model()).double()
    slow = Slow(network, FakeTime(monkeypatch))
    _, optimizer, rates, result = trained(None, time_limit=seconds, network=slow)
    assert result.status is Status.TIME_LIMIT
    assert judged(optimizer) == len(rates) > 0
    assert optimizer.held_window is None


@pytest.mark.parametrize("harm", ["weights", "state", "steps"])
def test_a_window_in_a_checkpoint_has_to_fit(tmp_path, harm):
    file = tmp_path / "run.pt"
    trained(40, checkpoint=file, callbacks=[StopsAfter(1)])
    content = checkpoint.load_latest(file)
    window = content["optimizer"]["window"]
    if harm == "weights":
        window["start"]["weights"][0] = torch.zeros(3)
    elif harm == "state":
        window["remembered"]["state"][99] = {}
    else:
        window["earlier"]["steps"] = "many"
    checkpoint.save(content, file)
    with pytest.raises(CheckpointError, match="window"):
        trained(40, checkpoint=file)


class Hooks:
    """Brings a hook that no compiled epoch would run."""

    def __init__(self, network) -> None:
        self.network = network

    def on_epoch_end(self, record) -> None:
        if record.epoch == 2:
            self.network[0].register_forward_hook(lambda *_: None)


@needs_compiler
def test_epochs_that_are_open_when_compiling_is_given_up_stay():
    ends = []
    for engine in ("eager", "auto"):
        network = model()
        options = {"max_epochs": 7, "batch_size": 10, "progress": False, "callbacks": [Hooks(network)]}
        result = fit(network, MSE, data(60), engine=engine, **options)
        assert result.engine == "eager"
        ends.append((network.state_dict(), [record.outcome for record in result.history]))
    torch.testing.assert_close(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]
    assert ends[0][1][2] == "open"


def test_a_checkpoint_with_nothing_left_to_train_is_settled_too(tmp_path):
    """What was open when the run ended is judged whenever it is loaded."""
    file, pair = tmp_path / "run.pt", data(60)

    class Ruins:
        def __init__(self, network) -> None:
            self.network = network

        def on_epoch_end(self, record) -> None:
            with torch.no_grad():
                for p in self.network.parameters():
                    p.add_(100.0)

    ends = []
    for _ in range(2):
        network = model()
        start = MSE(network(pair[0]), pair[1]).item()
        options = {"target_loss": 1e9, "checkpoint": file, "callbacks": [Ruins(network)]}
        _, optimizer, _, result = trained(40, network=network, **options)
        assert (result.status, result.epochs) == (Status.TARGET_LOSS, 1)
        assert "ended too high" in result.reason
        assert optimizer.held_window is None
        assert MSE(network(pair[0]), pair[1]).item() <= start
        ends.append(copied_state(network))
    assert same_state(*ends)
