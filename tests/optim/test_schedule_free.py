"""Schedule-free optimizers train at one point and are judged at another: an epoch of Controlled switches by itself."""

import copy

import pytest
import schedulefree
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from cmalight import Controlled
from tests.helpers import MSE, copied_state, harmful_epoch, network, run_epoch, same_state, small_problem
from tests.optim.steady import Steady

MAKERS = {
    "adamw": lambda params: schedulefree.AdamWScheduleFree(params, lr=0.1),
    "radam": lambda params: schedulefree.RAdamScheduleFree(params, lr=0.1),
    "sgd": lambda params: schedulefree.SGDScheduleFree(params, lr=0.5),
}
each = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def controlled(model: nn.Module, make=MAKERS["adamw"], **settings) -> Steady:
    return Steady(make(model.parameters()), **settings)


def by_hand(base: torch.optim.Optimizer, model: nn.Module, batches) -> None:
    base.train()
    for x, y in batches:
        base.zero_grad()
        MSE(model(x), y).backward()
        base.step()
    base.eval()


@each
def test_an_epoch_ends_where_the_base_is_judged(make):
    model, batches, objective = small_problem()
    twin = network()
    optimizer, base = controlled(model, make, growth=1.0), make(twin.parameters())
    for _ in range(3):
        report = run_epoch(optimizer, objective, model, batches)
        by_hand(base, twin, batches)
        assert report.alpha
        assert same_state(copied_state(model), copied_state(twin))
        for group in base.param_groups:
            group["lr"] = report.next_lr


def test_the_function_is_evaluated_where_the_base_is_judged():
    model, batches, objective = small_problem()
    twin = network()
    optimizer = Controlled(MAKERS["adamw"](model.parameters()), rule="certified")
    base = MAKERS["adamw"](twin.parameters())
    points = []

    def watched() -> float:
        points.append(copied_state(model))
        return objective()

    start = copied_state(model)
    with optimizer.epoch(watched) as epoch:
        for x, y in batches:
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            epoch.observe(100.0 * loss, len(y))  # so that the line search is asked
            optimizer.step()
    by_hand(base, twin, batches)
    assert same_state(points[0], start)
    assert any(same_state(point, copied_state(twin)) for point in points[1:])


def test_an_epoch_that_begins_in_training_mode_is_judged_alike():
    """Whoever calls train() and eval() as for the base alone may go on doing so."""
    runs = []
    for calls in (True, False):
        model, batches, objective = small_problem()
        optimizer = controlled(model)
        for _ in range(6):
            if calls:
                optimizer.train()
            run_epoch(optimizer, objective, model, batches)
            if calls:
                optimizer.eval()
        runs.append((model, optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["train_mode"]))
    torch.testing.assert_close(runs[0][0].state_dict(), runs[1][0].state_dict(), rtol=1e-10, atol=1e-12)
    assert runs[0][1:] == runs[1][1:]
    assert runs[0][2] is False


def test_a_restart_evaluates_where_the_base_is_judged():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    run_epoch(optimizer, objective, model, batches)
    judged = objective()
    optimizer.train()
    assert objective() != pytest.approx(judged, rel=1e-6)
    optimizer.restart(objective)
    assert optimizer.param_groups[0]["f_0"] == pytest.approx(judged, rel=1e-10)


def test_an_epoch_abandoned_or_undone_is_back_where_the_base_is_judged():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    run_epoch(optimizer, objective, model, batches)
    weights, state = copied_state(model), copy.deepcopy(optimizer.state_dict()["state"])
    for ending in ("abandoned", "undone"):
        if ending == "undone":
            assert harmful_epoch(optimizer, objective, model, batches).alpha == 0.0
        else:
            with optimizer.epoch(objective) as epoch:
                for x, y in batches:
                    optimizer.zero_grad()
                    loss = MSE(model(x), y)
                    loss.backward()
                    epoch.observe(loss, len(y))
                    optimizer.step()
                epoch.abandon()
        assert same_state(copied_state(model), weights)
        assert optimizer.param_groups[0]["train_mode"] is False
        torch.testing.assert_close(optimizer.state_dict()["state"], state, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized:UserWarning")
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_distributed_checkpoint_goes_on_bit_for_bit(tmp_path, mode):
    """To load one, torch has a fresh optimizer build its state, which these bases refuse in evaluation mode."""
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    for _ in range(3):
        run_epoch(optimizer, objective, model, batches)
    saved = {"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, optimizer)}
    dcp.save(saved, checkpoint_id=tmp_path)
    other, _, other_objective = small_problem(seed=1)
    loaded = controlled(other)
    getattr(loaded, mode)()
    state = {"model": other.state_dict(), "optimizer": get_optimizer_state_dict(other, loaded)}
    dcp.load(state, checkpoint_id=tmp_path)
    other.load_state_dict(state["model"])
    set_optimizer_state_dict(other, loaded, state["optimizer"])
    for _ in range(3):
        ours = run_epoch(optimizer, objective, model, batches)
        assert ours == run_epoch(loaded, other_objective, other, batches)
    assert same_state(copied_state(model), copied_state(other))
