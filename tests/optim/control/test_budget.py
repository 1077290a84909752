"""Controlled knows how long its run is: the step size ends at almost nothing, step by step."""

import contextlib
import copy
import pickle

import pytest
import torch

from cmalight import Controlled, Objective
from tests import helpers
from tests.helpers import MSE, copied_state, network, run_epoch, same_state, small_problem, split, table
from tests.optim.steady import Steady, line, steady_adam

BATCHES = 7


def rates_of(optimizer, objective, model, batches, epochs, *, early=True):
    """The lr of every step."""
    rates = []
    hook = optimizer.base.register_step_pre_hook(lambda base, *_: rates.append(base.param_groups[0]["lr"]))
    for _ in range(epochs):
        run_epoch(optimizer, objective, model, batches, early=early)
    hook.remove()
    return rates


def test_by_epochs_the_step_size_goes_to_zero_batch_by_batch():
    model, batches, objective = small_problem()
    assert len(batches) == BATCHES
    rates = rates_of(steady_adam(model, max_epochs=4), objective, model, batches, 4)
    assert rates == pytest.approx(line(4 * BATCHES, begins=2 * BATCHES))
    assert 0.0 < rates[-1] < 0.001


@pytest.mark.parametrize("early", [True, False])
def test_by_batches_it_goes_to_zero_in_any_loop(early):
    model, batches, objective = small_problem()
    optimizer = steady_adam(model, max_batches=4 * BATCHES)
    rates = rates_of(optimizer, objective, model, batches, 4, early=early)
    assert rates == pytest.approx(line(4 * BATCHES, begins=2 * BATCHES))


def test_a_plain_loop_is_taken_to_be_as_long_as_the_objectives_loader():
    model, batches, objective = small_problem()
    rates = rates_of(steady_adam(model, max_epochs=2), objective, model, batches, 2, early=False)
    assert rates == pytest.approx(line(2 * BATCHES, begins=BATCHES))


def test_a_plain_loop_is_taken_to_be_as_long_as_those_before():
    model, batches, objective = small_problem()
    optimizer = steady_adam(model, max_epochs=4)
    rates = rates_of(optimizer, lambda: objective(), model, batches, 2, early=False)
    rates += rates_of(optimizer, lambda: objective(), model, batches + batches, 1, early=False)
    whole = line(4 * BATCHES, begins=2 * BATCHES)
    assert rates[: 3 * BATCHES] == pytest.approx(whole[: 3 * BATCHES])
    assert rates[3 * BATCHES :] == pytest.approx([0.005] * BATCHES)  # one that is longer waits for its end


def test_a_first_epoch_whose_length_nobody_knows_has_one_rate():
    model, batches, objective = small_problem()
    optimizer = steady_adam(model, max_epochs=1)
    with pytest.warns(RuntimeWarning, match=r"its step size will not go to zero: give max_batches .*max_steps") as told:
        rates = rates_of(optimizer, lambda: objective(), model, batches, 1, early=False)
    assert rates == [0.01] * BATCHES
    assert len(told) == 1
    assert told[0].filename == helpers.__file__


@pytest.mark.parametrize("limit", [{"max_epochs": 2}, {"max_epochs": 1, "max_batches": 2 * BATCHES}, {}], ids=str)
def test_an_unknown_length_that_does_no_harm_is_not_warned_about(limit):
    model, batches, objective = small_problem()
    rates_of(steady_adam(model, **limit), lambda: objective(), model, batches, 2, early=False)


def test_a_rule_that_has_no_use_for_a_budget_does_not_warn_of_it():
    model, batches, objective = small_problem()
    optimizer = Controlled(torch.optim.Adam(model.parameters()), rule="certified")
    optimizer.budget.max_epochs = 1
    run_epoch(optimizer, lambda: objective(), model, batches)


def test_the_nearest_limit_counts():
    model, batches, objective = small_problem()
    rates = rates_of(steady_adam(model, max_epochs=100, max_batches=2 * BATCHES), objective, model, batches, 2)
    assert rates == pytest.approx(line(2 * BATCHES, begins=BATCHES))


def test_a_share_that_is_reported_counts_too():
    model, batches, objective = small_problem()
    optimizer = steady_adam(model)
    share = iter([0.0, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0])
    optimizer.report_share(lambda: next(share, 1.0))
    rates = rates_of(optimizer, objective, model, batches, 1)
    assert rates[:6] == pytest.approx([0.01, 0.01, 0.005, 0.002, 0.0002, 0.00002])
    assert 0.0 < rates[6] < 1e-5


def test_a_share_can_be_a_number_and_can_be_taken_back():
    model, batches, objective = small_problem()
    optimizer = steady_adam(model)
    optimizer.report_share(0.75)
    assert rates_of(optimizer, objective, model, batches, 1) == pytest.approx([0.005] * BATCHES)
    optimizer.report_share(None)
    assert rates_of(optimizer, objective, model, batches, 1) == pytest.approx([0.01] * BATCHES)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="Invalid share value"):
        steady_adam(network()).report_share(share)


def test_beyond_its_budget_a_run_goes_on_with_almost_nothing():
    model, batches, objective = small_problem()
    optimizer = steady_adam(model, max_epochs=1)
    rates = rates_of(optimizer, objective, model, batches, 3)
    assert all(rate > 0.0 for rate in rates)
    assert max(rates[BATCHES:]) < 1e-3 * 0.01
    before = copied_state(model)
    run_epoch(optimizer, objective, model, batches)
    torch.testing.assert_close(copied_state(model), before, rtol=0, atol=1e-6)


def test_a_finished_run_that_gets_more_epochs_has_its_step_size_again():
    model, batches, objective = small_problem()
    optimizer = steady_adam(model, max_epochs=2)
    first = rates_of(optimizer, objective, model, batches, 2)
    optimizer.budget.max_epochs = 8
    longer = rates_of(optimizer, objective, model, batches, 6)
    assert first[-1] < 0.001
    assert longer[0] == pytest.approx(0.01)
    assert longer[-1] < 0.001


def test_a_run_beyond_its_budget_that_is_extended_has_its_step_size_again():
    model, batches, objective = small_problem()
    groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2].parameters(), "lr": 0.001}]
    optimizer = Steady(torch.optim.Adam(groups), decay=0.5, max_epochs=1)
    rates_of(optimizer, objective, model, batches, 3)
    optimizer.budget.max_epochs = 20
    assert rates_of(optimizer, objective, model, batches, 1)[0] == pytest.approx(0.01)
    assert optimizer.param_groups[1]["lr"] == pytest.approx(0.001)


def test_a_share_that_falls_back_raises_the_step_size_again():
    """As a time limit does whose clock was wrong."""
    model, batches, objective = small_problem()
    optimizer = steady_adam(model)
    shares = iter([0.0, 1.0, 1.0, 0.5, 0.75, 1.0, 0.0])
    optimizer.report_share(lambda: next(shares, 0.0))
    rates = rates_of(optimizer, objective, model, batches, 1)
    assert [rates[0], rates[3], rates[4], rates[6]] == pytest.approx([0.01, 0.01, 0.005, 0.01])


def test_the_end_of_a_budget_is_no_convergence():
    model, batches, objective = small_problem()
    optimizer = steady_adam(model, max_epochs=2)
    rates_of(optimizer, objective, model, batches, 3)
    assert not optimizer.has_converged


def test_without_a_budget_nothing_decays():
    model, batches, objective = small_problem()
    assert rates_of(steady_adam(model), objective, model, batches, 4) == pytest.approx([0.01] * 4 * BATCHES)


def test_groups_keep_their_ratio():
    model, batches, objective = small_problem()
    groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2].parameters(), "lr": 0.001}]
    optimizer = Steady(torch.optim.Adam(groups), decay=0.5, max_epochs=4)
    for _ in range(4):
        run_epoch(optimizer, objective, model, batches, early=True)
        first, second = (group["lr"] for group in optimizer.param_groups)
        assert first == pytest.approx(10 * second)


@pytest.mark.parametrize("limit", [{"max_epochs": 9}, {"max_batches": 9 * BATCHES}])
@pytest.mark.parametrize("boundary", [1, 5, 8])
def test_a_saved_run_goes_on_bit_for_bit(limit, boundary):
    """With the budget given again, as its settings are."""
    runs = []
    for saved in (False, True):
        model, batches, objective = small_problem()
        optimizer = steady_adam(model, **limit)
        reports = []
        for epoch in range(9):
            if saved and epoch == boundary:
                state, weights = copy.deepcopy(optimizer.state_dict()), copied_state(model)
                model = network(seed=3)
                model.load_state_dict(weights)
                objective = Objective(model, MSE, batches)
                optimizer = steady_adam(model, **limit)
                optimizer.load_state_dict(state)
            reports.append(run_epoch(optimizer, objective, model, batches, early=True))
        runs.append((reports, copied_state(model)))
    assert runs[0][0] == runs[1][0]
    assert same_state(runs[0][1], runs[1][1])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_has_the_same_budget(copied):
    model, batches, objective = small_problem()
    optimizer = steady_adam(model, max_epochs=4, max_batches=1000)
    optimizer.report_share(0.1)
    run_epoch(optimizer, objective, model, batches, early=True)
    other, other_optimizer = copied((model, optimizer))
    assert other_optimizer.budget == optimizer.budget
    other_objective = Objective(other, MSE, batches)
    for _ in range(3):
        ours = run_epoch(optimizer, objective, model, batches, early=True)
        assert ours == run_epoch(other_optimizer, other_objective, other, batches, early=True)
    assert same_state(copied_state(model), copied_state(other))


def test_a_copy_does_not_hold_on_to_somebody_elses_clock():
    optimizer = steady_adam(network(), max_epochs=4)
    optimizer.report_share(lambda: 0.5)
    assert copy.deepcopy(optimizer).budget.reported is None


def test_an_epoch_that_is_undone_counts_as_used():
    model, batches, objective = small_problem()
    optimizer = steady_adam(model, max_epochs=4)
    with optimizer.epoch(objective) as epoch:
        for x, y in epoch.batches(batches):
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
        with torch.no_grad():
            model[2].weight.add_(1e6)
    assert epoch.report.alpha == 0.0
    rates = rates_of(optimizer, objective, model, batches, 3)
    whole = line(4 * BATCHES, begins=2 * BATCHES)[BATCHES:]
    assert rates == pytest.approx([rate * epoch.report.next_lr / epoch.report.lr for rate in whole])


def test_an_abandoned_epoch_does_not_count():
    model, batches, objective = small_problem()
    optimizer = steady_adam(model, max_epochs=4)
    with optimizer.epoch(objective) as epoch:
        epoch.abandon()
    rates = rates_of(optimizer, objective, model, batches, 4)
    assert rates == pytest.approx(line(4 * BATCHES, begins=2 * BATCHES))


def test_a_long_epoch_is_judged_within_its_budget():
    """Windows do not disturb the line to zero."""
    model = network()
    batches = split(*table(samples=200), 10)
    optimizer = steady_adam(model, max_epochs=2, window=6)
    rates = rates_of(optimizer, Objective(model, MSE, batches), model, batches, 2)
    assert rates == pytest.approx(line(40, begins=20))


class Broken(Exception):
    pass


@pytest.mark.parametrize("ending", ["abandoned", "broken", "cut short"])
def test_the_judged_windows_of_an_epoch_that_was_left_count(ending):
    """20 batches in windows of 6: after 15 steps 12 were judged, and where the rest is judged, too, all 15."""
    model = network()
    batches = split(*table(samples=200), 10)
    objective = Objective(model, MSE, batches)
    optimizer = steady_adam(model, max_batches=60, window=6)
    with contextlib.suppress(Broken), optimizer.epoch(objective) as epoch:
        for number, (x, y) in enumerate(epoch.batches(batches)):
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
            if number == 14:
                break
        if ending == "broken":
            raise Broken
        epoch.abandon() if ending == "abandoned" else epoch.cut_short()
    done = 15 if ending == "cut short" else 12
    rates = rates_of(optimizer, objective, model, batches, 2)
    assert rates == pytest.approx(line(60, begins=30)[done : done + 40])
    optimizer.budget.max_batches, optimizer.budget.max_epochs = None, 4  # whose epochs have 20 steps in the mean
    rates = rates_of(optimizer, lambda: objective(), model, batches, 2, early=False)
    assert rates == pytest.approx(line(80, begins=40)[40:])


def test_a_share_that_is_reported_inside_an_epoch_counts_from_the_next_step_on():
    model, batches, objective = small_problem()
    optimizer = steady_adam(model, max_epochs=100)
    rates = []
    optimizer.base.register_step_pre_hook(lambda base, *_: rates.append(base.param_groups[0]["lr"]))
    optimizer.base.register_step_post_hook(lambda *_: optimizer.report_share(0.75))
    run_epoch(optimizer, objective, model, batches)
    assert rates == pytest.approx([0.01] + [0.005] * (BATCHES - 1))
