"""Epochs of few batches are judged together: what is left open between them, and how it ends."""

import copy
import itertools
import math
import pickle

import pytest
import torch
from torch import nn

from cmalight import Controlled, Objective, Outcome
from tests.helpers import MSE, copied_state, harmful_epoch, network, run_epoch, same_state, small_problem, split, table
from tests.optim.test_controlled import BASES

LENGTH = 32  # batches of a first window


def controlled(model, **settings):
    return Controlled(torch.optim.Adam(model.parameters(), lr=7e-3), **{"max_epochs": 40, **settings})


def outcomes(optimizer, objective, model, batches, epochs):
    return [run_epoch(optimizer, objective, model, batches, early=True).outcome for _ in range(epochs)]


@pytest.mark.parametrize("size", [4, 10, 16, 32])
def test_as_many_epochs_as_come_nearest_to_a_window_are_judged_together(size):
    model, batches, objective = small_problem(size)
    in_an_epoch = 100 / size
    together = max(1, round(LENGTH / in_an_epoch))
    found = outcomes(controlled(model), objective, model, batches, 2 * together)
    left_open = [Outcome.OPEN] * (together - 1)
    assert found[: together - 1] == found[together:-1] == left_open
    assert Outcome.OPEN not in (found[together - 1], found[-1])


def test_later_windows_have_more_epochs():
    model, batches, objective = small_problem(25)
    found = outcomes(controlled(model, max_epochs=300), objective, model, batches, 290)
    ends = [at for at, outcome in enumerate(found) if outcome is not Outcome.OPEN]
    lengths = [later - earlier for earlier, later in itertools.pairwise(ends)]
    assert lengths[0] == LENGTH // 4
    assert lengths == sorted(lengths)
    assert lengths[-1] > 2 * lengths[0]


@pytest.mark.parametrize("settings", [{"max_epochs": None}, {"max_epochs": 1}, {"lr": 1e-6}, {"max_batches": 7}])
def test_without_a_budget_at_its_end_and_at_the_start_every_epoch_is_judged(settings):
    model, batches, objective = small_problem()
    assert outcomes(controlled(model, **settings), objective, model, batches, 1) != [Outcome.OPEN]


def test_the_paper_s_rules_judge_every_epoch():
    model, batches, objective = small_problem()
    optimizer = controlled(model, max_epochs=None, rule="certified")
    optimizer.budget.max_epochs = 40
    assert Outcome.OPEN not in outcomes(optimizer, objective, model, batches, 6)


def test_reports_are_those_of_their_own_epoch():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    seen = []

    def loss_fn(output, target):
        loss = MSE(output, target)
        if torch.is_grad_enabled():
            seen.append(loss.item() * len(target))
        return loss

    for _ in range(9):
        seen.clear()
        report = run_epoch(optimizer, objective, model, batches, loss_fn=loss_fn)
        assert report.f_tilde == pytest.approx(sum(seen) / 100, rel=1e-12)
        assert report.alpha > 0.0


def with_batch_norm():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Sigmoid(), nn.Linear(5, 1)).double()
    batches = split(*table(), 25)
    return model, batches, Objective(model, MSE, batches)


def test_what_ends_too_high_goes_back_to_before_the_first_of_them():
    model, batches, objective = with_batch_norm()
    optimizer = controlled(model)
    assert outcomes(optimizer, objective, model, batches, 8)[-1] is not Outcome.OPEN
    weights, state = copied_state(model), copy.deepcopy(optimizer.base.state_dict()["state"])
    assert outcomes(optimizer, objective, model, batches, 6) == [Outcome.OPEN] * 6
    assert not same_state(copied_state(model), weights)
    assert harmful_epoch(optimizer, objective, model, batches).outcome is Outcome.OPEN  # its losses were ordinary
    # One that is far above the start is judged at once.
    assert run_epoch(optimizer, objective, model, batches, early=True).outcome is Outcome.REFUSED
    assert same_state(copied_state(model), weights)
    after = optimizer.base.state_dict()["state"]
    assert all(torch.equal(after[at][name], value) for at, own in state.items() for name, value in own.items())


def test_an_epoch_that_is_not_finite_is_undone_at_once():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    weights = copied_state(model)
    outcomes(optimizer, objective, model, batches, 2)
    report = run_epoch(optimizer, objective, model, batches, loss_fn=lambda *pair: MSE(*pair) * math.inf)
    assert report.outcome is Outcome.DIVERGED
    assert same_state(copied_state(model), weights)


def test_weights_that_are_not_finite_are_not_left_open():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    weights = copied_state(model)
    assert harmful_epoch(optimizer, objective, model, batches, leap=math.nan).outcome is Outcome.DIVERGED
    assert same_state(copied_state(model), weights)


def test_settling_judges_what_is_open_and_nothing_else():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    optimizer.settle(objective)  # nothing is open
    assert not optimizer.control.state.epochs
    weights = copied_state(model)
    outcomes(optimizer, objective, model, batches, 2)
    harmful_epoch(optimizer, objective, model, batches)
    before = optimizer.control.state
    optimizer.settle(objective)
    assert same_state(copied_state(model), weights)
    assert optimizer.held_window is None
    after = optimizer.control.state
    assert (after.epochs, after.steps) == (before.epochs, before.steps) == (3, 12)
    assert after.height == pytest.approx(before.height / 10)  # line 39
    good = copied_state(model)
    outcomes(optimizer, objective, model, batches, 2)
    moved = copied_state(model)
    optimizer.settle(objective)
    assert same_state(copied_state(model), moved)
    assert not same_state(moved, good)


def test_settling_inside_an_epoch_is_refused():
    model, _, objective = small_problem(25)
    optimizer = controlled(model)
    with optimizer.epoch(objective) as epoch:
        with pytest.raises(RuntimeError, match="under way"):
            optimizer.settle(objective)
        epoch.abandon()


def saved_and_loaded(optimizer, model):
    other = network(seed=7)
    twin = controlled(other)
    other.load_state_dict(model.state_dict())
    twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return twin, other


def pickled(optimizer, model):
    return pickle.loads(pickle.dumps((optimizer, model)))


def copied(optimizer, model):
    return copy.deepcopy((optimizer, model))


def copied_and_copied(optimizer, model):
    return copied(*copied(optimizer, model))


@pytest.mark.parametrize("again", [saved_and_loaded, pickled, copied, copied_and_copied])
@pytest.mark.parametrize("harm", [False, True])
@pytest.mark.parametrize("epochs", range(1, 9))
def test_a_run_that_goes_on_in_a_window_is_the_same_bit_for_bit(again, harm, epochs):
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    outcomes(optimizer, objective, model, batches, epochs)
    twin, other = again(optimizer, model)
    theirs = Objective(other, MSE, batches)
    for one, of in ((optimizer, (objective, model)), (twin, (theirs, other))):
        if harm:
            harmful_epoch(one, *of, batches)
    assert outcomes(optimizer, objective, model, batches, 12) == outcomes(twin, theirs, other, batches, 12)
    assert same_state(copied_state(model), copied_state(other))
    assert optimizer.control.state == twin.control.state


def test_weights_that_somebody_changes_between_epochs_begin_a_window():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    outcomes(optimizer, objective, model, batches, 3)
    with torch.no_grad():
        model[0].bias.add_(0.01)
    changed = copied_state(model)
    assert harmful_epoch(optimizer, objective, model, batches).outcome is Outcome.REFUSED
    assert same_state(copied_state(model), changed)


def test_a_step_outside_an_epoch_ends_a_window():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    outcomes(optimizer, objective, model, batches, 3)
    MSE(model(batches[0][0]), batches[0][1]).backward()
    optimizer.step()
    moved = copied_state(model)
    with optimizer.epoch(objective) as epoch:
        assert optimizer.control.memory(optimizer.rule()).batches_judged == 12
        epoch.abandon()
    assert same_state(copied_state(model), moved)


def swapped(model):
    """As an average of the weights is put in their place for a validation, and they are put back."""
    for p in model.parameters():
        p.data = p.data.clone()
        with torch.no_grad():
            p.add_(0.0)


def test_weights_that_are_touched_after_every_epoch_are_judged_all_the_same():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    start = objective()
    for number in range(12):
        if number in (0, 5, 6):
            harmful_epoch(optimizer, objective, model, batches)
        else:
            run_epoch(optimizer, objective, model, batches, early=True)
        swapped(model)
    optimizer.settle(objective)
    assert objective() < start
    assert optimizer.control.memory(optimizer.rule()).batches_judged == 48


def test_a_restart_and_new_parameters_begin_a_window():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    outcomes(optimizer, objective, model, batches, 3)
    optimizer.restart(objective)
    assert optimizer.held_window is None
    outcomes(optimizer, objective, model, batches, 3)
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2, dtype=torch.float64))]})
    assert optimizer.held_window is None
    assert outcomes(optimizer, objective, model, batches, 8)[-1] is not Outcome.DIVERGED


def test_an_epoch_that_is_abandoned_takes_those_of_its_window_with_it():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    weights = copied_state(model)
    outcomes(optimizer, objective, model, batches, 3)
    moved = copied_state(model)
    with optimizer.epoch(objective) as epoch:
        epoch.abandon()
    assert same_state(copied_state(model), moved)  # nothing had begun yet
    with optimizer.epoch(objective) as epoch:
        epoch.observe(0.5, 25)
        epoch.abandon()
    assert same_state(copied_state(model), weights)
    assert Outcome.KEPT in outcomes(optimizer, objective, model, batches, 9)


def test_an_epoch_that_is_abandoned_before_its_first_batch_leaves_the_base_where_it_is_judged():
    """Schedule-free optimizers train elsewhere."""
    model, batches, objective = small_problem(25)
    optimizer = Controlled(BASES["schedule-free"](list(model.parameters())), max_epochs=40)
    outcomes(optimizer, objective, model, batches, 12)
    while optimizer.held_window is None:
        outcomes(optimizer, objective, model, batches, 1)
    judged = copied_state(model)
    with optimizer.epoch(objective) as epoch:
        epoch.abandon()
    torch.testing.assert_close(copied_state(model), judged, rtol=1e-12, atol=1e-12)
    assert optimizer.param_groups[0]["train_mode"] is False
    with pytest.raises(RuntimeError, match="saw no batch"), optimizer.epoch(objective):
        pass
    torch.testing.assert_close(copied_state(model), judged, rtol=1e-12, atol=1e-12)


def test_an_epoch_without_batches_is_refused_and_takes_nothing_with_it():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    outcomes(optimizer, objective, model, batches, 3)
    moved = copied_state(model)
    with pytest.raises(RuntimeError, match="saw no batch"), optimizer.epoch(objective):
        pass
    assert same_state(copied_state(model), moved)
    outcomes(optimizer, objective, model, batches, 5)
    assert optimizer.control.memory(optimizer.rule()).batches_judged == 32


@pytest.mark.parametrize("left_out", [0, 1, 3])
def test_the_last_epoch_of_the_budget_is_judged_however_short_it_was(left_out):
    """Steps that GradScaler skips, a break, or a rest of accumulated gradients."""
    model, batches, objective = small_problem(25)
    optimizer = controlled(model, max_epochs=6)
    outcomes(optimizer, objective, model, batches, 5)
    assert run_epoch(optimizer, objective, model, batches[left_out:]).outcome is not Outcome.OPEN
    optimizer = controlled(model, max_epochs=None, max_batches=24)
    outcomes(optimizer, objective, model, batches, 5)
    late = run_epoch(optimizer, objective, model, batches[min(left_out, 1) :])
    assert late.outcome is not Outcome.OPEN


def test_what_somebody_sets_in_a_group_between_epochs_stays_when_they_are_undone():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    outcomes(optimizer, objective, model, batches, 3)
    optimizer.param_groups[0]["betas"] = (0.8, 0.99)
    optimizer.param_groups[0]["initial_lr"] = 0.1  # as schedulers do
    harmful_epoch(optimizer, objective, model, batches)
    assert optimizer.settle(objective).outcome is Outcome.REFUSED
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.99)
    assert optimizer.param_groups[0]["initial_lr"] == 0.1


def test_a_window_of_another_model_is_refused_once():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    outcomes(optimizer, objective, model, batches, 3)
    state = copy.deepcopy(optimizer.state_dict())
    state["window"]["start"]["buffers"].append({"unknown": torch.zeros(1)})
    optimizer.load_state_dict(state)
    with pytest.raises(ValueError, match="does not fit this model"):
        run_epoch(optimizer, objective, model, batches)
    assert outcomes(optimizer, objective, model, batches, 1) == [Outcome.OPEN]


def test_an_epoch_that_is_cut_short_is_judged_with_those_of_its_window():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    outcomes(optimizer, objective, model, batches, 3)
    moved = copied_state(model)
    with optimizer.epoch(objective) as epoch:
        assert epoch.cut_short()
    assert same_state(copied_state(model), moved)
    assert optimizer.control.memory(optimizer.rule()).batches_judged == 12


def test_an_error_inside_an_epoch_closes_the_window():
    model, batches, objective = small_problem(25)
    optimizer = controlled(model)
    outcomes(optimizer, objective, model, batches, 3)
    with pytest.raises(ZeroDivisionError), optimizer.epoch(objective):
        raise ZeroDivisionError
    assert optimizer.held_window is None
    assert outcomes(optimizer, objective, model, batches, 8)[-1] is not Outcome.OPEN


def test_thawed_parameters_are_part_of_a_saved_window():
    model, batches, objective = small_problem(25)
    model[0].weight.requires_grad_(False)
    optimizer = controlled(model)
    outcomes(optimizer, objective, model, batches, 2)
    model[0].weight.requires_grad_(True)
    outcomes(optimizer, objective, model, batches, 2)
    twin, other = saved_and_loaded(optimizer, model)
    theirs = Objective(other, MSE, batches)
    for one, of in ((optimizer, (objective, model)), (twin, (theirs, other))):
        harmful_epoch(one, *of, batches)
        one.settle(of[0])
    assert same_state(copied_state(model), copied_state(other))


def test_nothing_is_held_between_epochs_that_are_judged():
    model, batches, objective = small_problem(size=2)  # 50 batches
    optimizer = controlled(model)
    outcomes(optimizer, objective, model, batches, 3)
    assert optimizer.held_window is None
    assert "window" not in optimizer.state_dict()
