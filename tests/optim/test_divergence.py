"""Nothing that is not finite gets in: rolled back bit for bit, the step size shrunk, training goes on."""

import math
from functools import partial

import pytest
from torch import nn

from cmalight import CMA, CMALight, Objective, Outcome
from tests.helpers import (
    MSE,
    begun,
    copied_state,
    each_of_the_paper,
    force_line_search,
    run_epoch,
    same_state,
    small_problem,
    split,
    table,
)

each_value = pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])


def epoch_with(optimizer, objective, model, batches, *, what="loss", at=0, value=math.nan):
    """One epoch in which the loss or the gradient of one batch is spoilt."""
    with optimizer.epoch(objective) as epoch:
        for number, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            if (what, at) == ("loss", number):
                loss = loss * value
            loss.backward()
            if (what, at) == ("gradient", number):
                next(model.parameters()).grad.view(-1)[0] = value
            epoch.observe(loss, len(y))
            optimizer.step()
    return epoch.report


@each_of_the_paper
@pytest.mark.parametrize(
    ("what", "at", "value"),
    [
        ("loss", 0, math.nan), ("loss", 3, math.inf), ("loss", 6, -math.inf), ("gradient", 3, math.inf),
        ("gradient", 6, math.nan), ("gradient", 6, -math.inf),  # after the last step, where no loss shows it
    ],
)  # fmt: skip
def test_a_batch_that_is_not_finite_undoes_the_epoch(make, what, at, value):
    model, batches, objective = small_problem()
    assert len(batches) == 7
    optimizer = make(model.parameters(), lr=0.1)
    run_epoch(optimizer, objective, model, batches)
    before, phi, evaluations = copied_state(model), optimizer.known.phi, optimizer.evaluations
    report = epoch_with(optimizer, objective, model, batches, what=what, at=at, value=value)
    assert report.outcome is Outcome.DIVERGED
    assert same_state(model.state_dict(), before)
    assert (report.alpha, report.phi, report.next_lr) == (0.0, phi, 0.75 * report.lr)
    assert optimizer.evaluations == evaluations


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


class Spoilt:
    """An objective whose second evaluation is not finite."""

    def __init__(self, objective, value):
        self.objective, self.value, self.calls = objective, value, 0
        self.model = objective.model

    def __call__(self):
        self.calls += 1
        return self.value if self.calls == 2 else self.objective()


@each_value
def test_light_a_trial_that_is_not_finite_is_not_extrapolated_to(value):
    optimizer, objective, model, batches = begun(lr=0.1)
    spoilt = Spoilt(objective, value)
    force_line_search(optimizer, spoilt)
    report = run_epoch(optimizer, spoilt, model, batches)
    assert report.outcome is Outcome.SEARCH_SUCCEEDED
    assert report.alpha == report.lr  # the trial at alpha/δ was refused, the tentative point itself was not


@pytest.mark.parametrize(
    ("make", "outcome"),
    [
        (partial(CMALight, max_extrapolations=0), Outcome.SEARCH_REJECTED),
        (partial(CMALight, line_search="certified"), Outcome.UNCONFIRMED),  # f̃ is below f(w⁰), f is not: line 22
        (CMA, Outcome.SEARCH_FAILED_REJECTED),
    ],
    ids=["light", "certified", "cma"],
)
@each_value
def test_a_tentative_point_whose_value_is_not_finite_is_undone(make, outcome, value):
    model, batches, objective = small_problem()
    optimizer, spoilt = make(model.parameters(), lr=0.1), Spoilt(objective, value)
    force_line_search(optimizer, spoilt)
    before = copied_state(model)
    report = run_epoch(optimizer, spoilt, model, batches)
    assert report.outcome is outcome
    assert same_state(model.state_dict(), before)
    assert report.next_lr == 0.75 * report.lr


@pytest.mark.parametrize("optimizer_class", [CMALight, CMA])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_objective_that_is_not_finite_at_the_start_is_a_clear_error(optimizer_class, value):
    model, batches, _ = small_problem()
    spoilt = [(x, y * (value if number > 1 else 1.0)) for number, (x, y) in enumerate(batches)]
    optimizer = optimizer_class(model.parameters())
    with pytest.raises(ValueError, match=r"At the start the loss of batch 2, counted from 0, is (NaN|inf)"):
        run_epoch(optimizer, Objective(model, MSE, spoilt), model, spoilt)
    report = run_epoch(optimizer, Objective(model, MSE, batches), model, batches)
    assert report.lr == 0.5
