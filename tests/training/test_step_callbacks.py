"""Callbacks of steps: called after the steps they ask for, in both engines, without changing the run."""

import pytest
import schedulefree
import torch

from cmalight import Status, TensorBatches
from cmalight.training import Position, measure
from tests.helpers import same_state
from tests.training.common import MSE, FakeTime, data, model, train, without_times
from tests.training.test_fit import Slow

KINDS = {
    "plain": {"optimizer": "adam-cosine"},
    "watched": {"optimizer": "auto"},
    "epoch": {"optimizer": "cmalight"},
    "epoch, undone": {"optimizer": "cmalight", "optimizer_options": {"lr": 3.0}},
}
ENGINES = ("eager", "compiled")


class At:
    """Notes the positions after these steps, and measures f there."""

    def __init__(self, *steps, network=None, stop=None, also=lambda: None):
        self.waiting, self.network, self.stop, self.also = list(steps), network, stop, also
        self.positions, self.losses = [], []

    def next_step(self):
        return self.waiting[0] if self.waiting else None

    def on_step(self, position):
        self.positions.append(position)
        while self.waiting and self.waiting[0] <= position.steps:
            self.waiting.pop(0)
        if self.network is not None:
            self.losses.append(measure(self.network, MSE, TensorBatches(*data())).loss)
        self.also()
        return position.steps == self.stop

    def on_epoch_end(self, record): ...


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_is_called_after_the_steps_it_asks_for_and_changes_nothing(kind, engine):
    network = model()
    callback = At(1, 3, 6, 7, 16, 18, 99, network=network)
    _, result = train(network, engine=engine, callbacks=[callback], max_epochs=4, **KINDS[kind])
    assert result.engine == engine
    assert [position.steps for position in callback.positions] == [1, 3, 6, 7, 16, 18]
    assert [position.epochs for position in callback.positions] == pytest.approx([1 / 6, 0.5, 1, 7 / 6, 16 / 6, 3])
    alone, expected = train(engine=engine, max_epochs=4, **KINDS[kind])
    assert same_state(network.state_dict(), alone.state_dict())
    assert without_times(result.history) == without_times(expected.history)


@pytest.mark.parametrize("kind", KINDS)
def test_both_engines_say_the_same(kind):
    eager, compiled = At(2, 6, 9, 21, network=model()), At(2, 6, 9, 21, network=model())
    for engine, callback in zip(ENGINES, (eager, compiled), strict=True):
        train(callback.network, engine=engine, callbacks=[callback], **KINDS[kind])
    for one, other in zip(eager.positions, compiled.positions, strict=True):
        assert one.lr == pytest.approx(other.lr, rel=1e-12)
        ours, theirs = ({**vars(position), "seconds": 0.0} for position in (one, other))
        assert ours == pytest.approx(theirs, rel=1e-7)
    assert eager.losses == pytest.approx(compiled.losses, rel=1e-7)


@pytest.mark.parametrize("engine", ENGINES)
def test_within_an_epoch_of_cmalight_the_model_is_where_the_step_put_it_and_at_its_end_where_it_was_judged(engine):
    network = model()
    callback = At(3, 6, 9, 12, network=network)
    options = {"optimizer": "cmalight", "optimizer_options": {"lr": 1e6}, "engine": engine, "max_epochs": 2}
    train(network, callbacks=[callback], order="fixed", **options)
    first = measure(model(), MSE, TensorBatches(*data())).loss
    assert callback.losses[0] > first
    assert callback.losses[1] == callback.losses[3] == first  # both epochs were undone
    assert [position.evaluations for position in callback.positions] == [1, 1, 1, 1]
    assert [position.evaluated_rows for position in callback.positions] == [60] * 4


@pytest.mark.parametrize("engine", ENGINES)
def test_the_batch_loss_is_the_mean_since_the_last_position(engine):
    callback = At(6, 18, 24, network=None)
    _, result = train(optimizer="adam", engine=engine, callbacks=[callback], max_epochs=4)
    losses = [record.batch_loss for record in result.history]
    means = [position.batch_loss for position in callback.positions]
    assert means == pytest.approx([losses[0], (losses[1] + losses[2]) / 2, losses[3]])
    assert callback.positions[0].lr == 1e-3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["plain", "epoch"])
@pytest.mark.parametrize(("stop", "epochs"), [(9, 1), (12, 2)])
def test_a_callback_may_stop_the_run_inside_an_epoch_and_at_its_end(kind, engine, stop, epochs):
    callback = At(stop, 30, stop=stop)
    _, result = train(callbacks=[callback], engine=engine, **KINDS[kind])
    assert (result.status, result.epochs) == (Status.CALLBACK, epochs)
    assert [position.steps for position in callback.positions] == [stop]


def test_the_clock_stands_still(monkeypatch):
    time = FakeTime(monkeypatch)
    callback = At(2, 4)
    callback.also = lambda: setattr(time, "now", time.now + 100.0)
    _, result = train(Slow(model(), time), callbacks=[callback], max_epochs=1, time_limit=50.0)
    assert [position.seconds for position in callback.positions] == [2.0, 4.0]
    assert (result.seconds, result.status) == (6.0, Status.MAX_EPOCHS)


def test_after_a_resume_steps_epochs_and_work_are_those_of_the_whole_run(tmp_path):
    options = {"optimizer": "cma", "checkpoint": tmp_path / "run.pt"}
    train(max_epochs=2, **options)
    callback = At(1, 20)
    _, result = train(max_epochs=4, callbacks=[callback], **options)
    whole = At(13, 20)
    train(max_epochs=4, optimizer="cma", callbacks=[whole])
    assert [position.steps for position in callback.positions] == [13, 20]  # a step that has passed means the next one
    assert [position.evaluations for position in callback.positions] == [p.evaluations for p in whole.positions]
    assert isinstance(callback.positions[0], Position)
    assert result.epochs == 4


def test_a_schedule_free_optimizer_is_measured_at_its_average_and_goes_on_where_it_was():
    ends, modes = [], []
    for steps in ((), (2, 6, 9)):
        network = model()
        optimizer = schedulefree.AdamWScheduleFree(network.parameters(), lr=0.05)
        callback = At(*steps, also=lambda: modes.append(optimizer.param_groups[0]["train_mode"]))  # noqa: B023
        train(network, optimizer=optimizer, callbacks=[callback])
        ends.append(network.state_dict())
    assert modes == [False] * 3
    assert same_state(*ends)
    assert torch.isfinite(ends[0]["0.weight"]).all()
