"""Nothing that is not finite gets in: rolled back bit for bit, the step size shrunk, training goes on."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from cmalight import CMA, CMALight, Objective, Outcome
from tests.helpers import MSE, copied_state, run_epoch, same_state, small_problem, split, table

OPTIMIZERS = [
    pytest.param(lambda params, **kw: CMALight(params, **kw), id="light"),
    pytest.param(lambda params, **kw: CMALight(params, line_search="certified", **kw), id="certified"),
    pytest.param(lambda params, **kw: CMA(params, **kw), id="cma"),
]


def epoch_with(optimizer, objective, model, batches, *, spoil_loss=None, spoil_gradient=None, value=math.nan):
    """One epoch in which the loss or the gradient of one batch is spoilt."""
    with optimizer.epoch(objective) as epoch:
        for number, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            if number == spoil_loss:
                loss = loss * value
            loss.backward()
            if number == spoil_gradient:
                next(model.parameters()).grad.view(-1)[0] = value
            epoch.observe(loss, len(y))
            optimizer.step()
    return epoch.report


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("batch", range(7))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("what", ["spoil_loss", "spoil_gradient"])
def test_a_batch_that_is_not_finite_undoes_the_epoch(make, what, value, batch):
    model, batches, objective = small_problem()
    assert len(batches) == 7
    optimizer = make(model.parameters(), lr=0.1)
    run_epoch(optimizer, objective, model, batches)
    before, phi, evaluations = copied_state(model), optimizer.known.phi, optimizer.evaluations
    report = epoch_with(optimizer, objective, model, batches, value=value, **{what: batch})
    assert report.outcome is Outcome.DIVERGED
    assert same_state(model.state_dict(), before)
    assert (report.alpha, report.phi, report.next_lr) == (0.0, phi, 0.75 * report.lr)
    assert optimizer.evaluations == evaluations


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_training_goes_on_and_converges_after_divergence(make):
    model, batches, objective = small_problem()
    optimizer = make(model.parameters(), lr=0.1)
    start = objective()
    for number in range(6):
        epoch_with(optimizer, objective, model, batches, spoil_loss=number)
    for _ in range(60):
        run_epoch(optimizer, objective, model, batches)
    assert objective() < 0.5 * start


@pytest.mark.filterwarnings("ignore:Each of the last")
def test_a_step_size_that_overflows_single_precision_is_survived():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    batches = split(*(t.float() for t in table()), 10)
    optimizer = CMALight(model.parameters(), lr=1e30)
    objective = Objective(model, MSE, batches)
    start = objective()
    outcomes = {run_epoch(optimizer, objective, model, batches).outcome for _ in range(280)}
    assert Outcome.DIVERGED in outcomes
    assert objective() < start


def force_line_search(optimizer, objective):
    """φ = 0 cannot be beaten on line 6."""
    with optimizer.epoch(objective) as epoch:
        epoch.abandon()
    optimizer.known = replace(optimizer.known, phi=0.0)


class Spoilt:
    """An objective whose evaluation number `when` is not finite."""

    def __init__(self, objective, when, value):
        self.objective, self.when, self.value, self.calls = objective, when, value, 0
        self.model = objective.model
        self.sample = objective.sample

    def __call__(self):
        self.calls += 1
        return self.value if self.calls == self.when else self.objective()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_light_a_trial_that_is_not_finite_is_not_extrapolated_to(value):
    model, batches, objective = small_problem()
    optimizer = CMALight(model.parameters(), lr=0.1)
    spoilt = Spoilt(objective, 2, value)
    force_line_search(optimizer, spoilt)
    report = run_epoch(optimizer, spoilt, model, batches)
    assert report.outcome is Outcome.SEARCH_SUCCEEDED
    assert report.alpha == report.lr  # the trial at alpha/δ was refused, the tentative point itself was not


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_light_a_tentative_point_whose_value_is_not_finite_is_undone(value):
    model, batches, objective = small_problem()
    optimizer = CMALight(model.parameters(), lr=0.1, max_extrapolations=0)
    spoilt = Spoilt(objective, 2, value)
    force_line_search(optimizer, spoilt)
    before = copied_state(model)
    report = run_epoch(optimizer, spoilt, model, batches)
    assert report.outcome is Outcome.SEARCH_REJECTED
    assert same_state(model.state_dict(), before)
    assert report.next_lr == 0.75 * report.lr


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_certified_a_tentative_value_that_is_not_finite_fails_the_search(value):
    model, batches, objective = small_problem()
    optimizer = CMALight(model.parameters(), lr=0.1, line_search="certified")
    spoilt = Spoilt(objective, 2, value)
    force_line_search(optimizer, spoilt)
    report = run_epoch(optimizer, spoilt, model, batches)
    assert report.outcome is Outcome.UNCONFIRMED  # f̃ is below f(w⁰), but f there is not: line 22
    assert report.next_lr == 0.75 * report.lr


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_cma_a_tentative_value_that_is_not_finite_is_undone(value):
    model, batches, objective = small_problem()
    before = copied_state(model)
    report = run_epoch(CMA(model.parameters(), lr=0.1), Spoilt(objective, 2, value), model, batches)
    assert report.outcome is Outcome.SEARCH_FAILED_REJECTED
    assert same_state(model.state_dict(), before)


@pytest.mark.parametrize("optimizer_class", [CMALight, CMA])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_objective_that_is_not_finite_at_the_start_is_a_clear_error(optimizer_class, value):
    model, batches, _ = small_problem()
    spoilt = [(x, y * value) for x, y in batches]
    optimizer = optimizer_class(model.parameters())
    with pytest.raises(ValueError, match="at the start"):
        run_epoch(optimizer, Objective(model, MSE, spoilt), model, spoilt)
    report = run_epoch(optimizer, Objective(model, MSE, batches), model, batches)
    assert report.lr == 0.5


def test_a_nan_in_the_weights_is_rolled_back_where_the_loss_does_not_show_it():
    """The last step of the epoch: no loss is taken after it."""
    model, batches, objective = small_problem()
    before = copied_state(model)
    optimizer = CMALight(model.parameters(), lr=0.1)
    report = epoch_with(optimizer, objective, model, batches, spoil_gradient=len(batches) - 1)
    assert report.outcome is Outcome.DIVERGED
    assert not math.isfinite(report.direction_norm)
    assert same_state(model.state_dict(), before)
    assert torch.isfinite(torch.cat([p.reshape(-1) for p in model.parameters()])).all()
