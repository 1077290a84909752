"""Long epochs are judged now and then: what is undone is only the last part, and there is one report."""

import copy
import gc
import math

import pytest
import torch
from torch import nn

from cmalight import Controlled, Objective, Outcome
from cmalight.evaluation.snapshot import Snapshot
from tests.helpers import MSE, copied_state, network, run_epoch, same_state, split, table
from tests.optim.steady import steady_adam

WINDOW, BATCHES = 4, 20


def problem(**settings):
    """20 batches in five windows of four."""
    model = network()
    batches = split(*table(samples=200), 10)
    assert len(batches) == BATCHES
    return model, batches, Objective(model, MSE, batches), steady_adam(model, **{"window": WINDOW, **settings})


class Counted:
    """An objective that counts how often its sample is asked for."""

    def __init__(self, objective):
        self.objective, self.model, self.calls = objective, objective.model, 0

    def __call__(self):
        raise AssertionError("no pass over all the data is needed")

    def sample(self):
        value = self.objective.sample()

        def counted() -> float:
            self.calls += 1
            return value()

        return counted


@pytest.mark.parametrize("early", [True, False], ids=["epoch.batches", "plain loop"])
def test_it_is_judged_after_every_window_in_any_loop(early):
    model, batches, objective, optimizer = problem()
    counted = Counted(objective)
    report = run_epoch(optimizer, counted, model, batches, early=early)
    assert counted.calls == 1 + BATCHES / WINDOW
    assert report.outcome is Outcome.KEPT
    assert (optimizer.control.state.epochs, optimizer.control.state.steps) == (1, BATCHES)


def test_without_harm_windows_change_nothing():
    model, batches, objective, optimizer = problem()
    other, _, other_objective, whole = problem(window=1000)
    for _ in range(3):
        ours = run_epoch(optimizer, objective, model, batches, early=True)
        theirs = run_epoch(whole, other_objective, other, batches, early=True)
        assert ours.f_tilde == pytest.approx(theirs.f_tilde, rel=1e-12)
        assert (ours.lr, ours.next_lr) == (theirs.lr, theirs.next_lr)
    assert same_state(copied_state(model), copied_state(other))


def leap(model: nn.Module) -> None:
    with torch.no_grad():
        model[2].weight.add_(1e4)


@pytest.mark.parametrize("early", [True, False], ids=["epoch.batches", "plain loop"])
@pytest.mark.parametrize("window", range(5))
def test_a_window_that_did_harm_is_undone_alone_bit_for_bit(window, early):
    model, batches, objective, optimizer = problem()
    run_epoch(optimizer, objective, model, batches)
    steps, begun, after = [], None, None

    def everything():
        return copied_state(model), copy.deepcopy(optimizer.base.state_dict()["state"])

    optimizer.base.register_step_post_hook(lambda *_: leap(model) if len(steps) == (window + 1) * WINDOW else None)
    with optimizer.epoch(objective) as epoch:
        for x, y in epoch.batches(batches) if early else batches:
            if len(steps) == window * WINDOW:
                begun = everything()
            if len(steps) == (window + 1) * WINDOW:
                after = everything()
            steps.append(1)
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
    after = everything() if window == 4 else after
    assert same_state(after[0], begun[0])
    torch.testing.assert_close(after[1], begun[1], rtol=0, atol=0)
    assert epoch.report.outcome is Outcome.REFUSED
    assert same_state(copied_state(model), begun[0]) == (window == 4)


@pytest.mark.parametrize("harmful", [set(), {0}, {4}, {0, 1, 2, 3, 4}, {1, 3}])
def test_one_report_says_what_the_whole_epoch_came_to(harmful):
    """Its loss is the mean of all batches, its lr the first; any window that was undone shows, and any that was not."""
    model, batches, objective, optimizer = problem()
    losses = []
    base = optimizer.base
    base.register_step_post_hook(
        lambda *_: leap(model) if len(losses) % WINDOW == 0 and len(losses) // WINDOW - 1 in harmful else None
    )
    with optimizer.epoch(objective) as epoch:
        for x, y in epoch.batches(batches):
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            losses.append(loss.item())
            epoch.observe(loss, len(y))
            optimizer.step()
    report = epoch.report
    assert report.f_tilde == pytest.approx(sum(losses) / len(losses))
    assert report.lr == pytest.approx(0.01)
    assert report.next_lr == pytest.approx(0.01 * 0.5 ** len(harmful))
    assert (report.alpha > 0.0) == (len(harmful) < 5)
    assert report.outcome is (Outcome.REFUSED if harmful else Outcome.KEPT)
    assert optimizer.control.state.epochs_still == int(len(harmful) == 5)
    assert optimizer.control.state.epochs == 1


def test_a_stream_without_end_is_controlled_in_one_epoch():
    model, batches, objective, optimizer = problem()
    counted = Counted(objective)
    f_0 = objective()

    def stream():
        for number in range(60):
            yield batches[number % BATCHES]

    report = run_epoch(optimizer, counted, model, stream(), early=True)
    assert counted.calls == 1 + 60 / WINDOW
    assert report.outcome.keeps
    assert objective() < f_0


def test_a_window_that_is_not_finite_does_not_spoil_the_epoch():
    model, batches, objective, optimizer = problem()
    with optimizer.epoch(objective) as epoch:
        for number, (x, y) in enumerate(epoch.batches(batches)):
            optimizer.zero_grad()
            loss = MSE(model(x), y) * (math.nan if number == 5 else 1.0)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
    assert epoch.report.outcome is Outcome.DIVERGED
    assert epoch.report.alpha > 0.0
    assert torch.isfinite(torch.cat([p.flatten() for p in model.parameters()])).all()
    assert epoch.report.next_lr == pytest.approx(0.005)


def test_abandoning_goes_back_to_where_it_was_last_judged():
    model, batches, objective, optimizer = problem()
    with optimizer.epoch(objective) as epoch:
        for number, (x, y) in enumerate(epoch.batches(batches)):
            if number == 2 * WINDOW:
                judged = copied_state(model)
            if number == 2 * WINDOW + 3:
                epoch.abandon()
                break
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
    assert epoch.report is None
    assert same_state(copied_state(model), judged)
    assert run_epoch(optimizer, objective, model, batches).outcome.keeps


def test_accumulated_gradients_are_steps_and_windows_count_steps():
    model, batches, objective, optimizer = problem(window=3)
    counted = Counted(objective)
    with optimizer.epoch(counted) as epoch:
        for number, (x, y) in enumerate(batches, start=1):
            loss = MSE(model(x), y)
            (loss / 2).backward()
            epoch.observe(loss, len(y))
            if number % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert optimizer.control.state.steps == 10
    assert counted.calls == 1 + 3 + 1  # after 3, 6 and 9 steps, and at the end


@pytest.mark.parametrize("boundary", [1, 2])
def test_a_run_with_windows_goes_on_from_its_state_bit_for_bit(boundary):
    runs = []
    for saved in (False, True):
        model, batches, objective, optimizer = problem(max_epochs=4)
        for epoch in range(4):
            if saved and epoch == boundary:
                state, weights = copy.deepcopy(optimizer.state_dict()), copied_state(model)
                model, batches, objective, optimizer = problem(max_epochs=4)
                model.load_state_dict(weights)
                optimizer.load_state_dict(state)
            run_epoch(optimizer, objective, model, batches, early=True)
        runs.append(copied_state(model))
    assert same_state(*runs)


class _Census(nn.Linear):
    """Counts the copies of weights that are held whenever a copy of the model's state is made."""

    def __init__(self):
        super().__init__(4, 1)
        self.counts = []

    def get_extra_state(self):
        self.counts.append(sum(type(thing) is Snapshot for thing in gc.get_objects()))

    def set_extra_state(self, state):
        pass


def test_one_copy_of_the_weights_is_held_at_a_time():
    """From window to window, and from epoch to epoch while the last one still has a name."""
    gc.collect()
    model, batches = nn.Sequential(_Census()).double(), split(*table(100), 10)
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=1e-3), window=3)
    objective = Objective(model, MSE, batches)
    for _ in range(3):
        with optimizer.epoch(objective) as epoch:
            for x, y in epoch.batches(batches):
                optimizer.zero_grad()
                loss = MSE(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
    assert len(model[0].counts) > 12
    assert max(model[0].counts) == 1
