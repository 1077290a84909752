"""Hooks fire once per call, closures run once with gradients, zero_grad clears."""

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from cmalight import Certified, Controlled
from cmalight.optim.epoch_optimizer import EpochOptimizer

from .cases import (
    MSE,
    assert_same_models,
    batches,
    each,
    each_of_the_paper,
    each_with_a_window,
    network,
    objective_of,
    run_epoch,
    set_gradients,
)


@each
def test_step_hooks_of_ours_and_of_all_optimizers_fire_once_per_step_until_they_are_removed(make):
    """Those of all optimizers see the base of a watched one."""
    model, seen, of_all = network(), [], []
    optimizer = make(model)
    handles = [
        optimizer.register_step_pre_hook(lambda *_: seen.append("before")),
        optimizer.register_step_post_hook(lambda *_: seen.append("after")),
        register_optimizer_step_pre_hook(lambda one, *_: of_all.append(one)),
        register_optimizer_step_post_hook(lambda one, *_: of_all.append(one)),
    ]
    try:
        run_epoch(optimizer, model, batches())
    finally:
        for handle in handles:
            handle.remove()
    assert seen == ["before", "after"] * 6
    assert of_all == [optimizer.base if isinstance(optimizer, Controlled | Certified) else optimizer] * 12
    optimizer.step(lambda: 1.0)
    assert len(seen) == 12


@each
def test_hooks_of_state_dicts_fire_once_and_may_replace_them(make):
    optimizer, other, seen = make(network(), lr=0.5), make(network(), lr=0.25), []
    keys = set(optimizer.param_groups[0])
    optimizer.register_state_dict_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_state_dict_post_hook(lambda _, state: seen.append("after") or {**state, "mark": 1})
    optimizer.register_load_state_dict_pre_hook(
        lambda opt, _: seen.append(opt.param_groups[0]["lr"]) or other.state_dict()
    )
    optimizer.register_load_state_dict_post_hook(lambda opt: seen.append(opt.param_groups[0]["lr"]))
    state = optimizer.state_dict()
    assert state["mark"] == 1
    optimizer.load_state_dict(state)
    assert seen == ["before", "after", 0.5, 0.25]
    assert set(optimizer.param_groups[0]) == keys


@each
def test_a_step_pre_hook_may_replace_the_closure(make):
    optimizer = make(network())
    optimizer.register_step_pre_hook(lambda *_: ((optimizer, lambda: 7.0), {}))
    assert optimizer.step() == 7.0


@each
def test_a_closure_may_be_given_by_its_name(make):
    """As Lightning does."""
    assert make(network()).step(closure=lambda: 7.0) == 7.0


@each
def test_zero_grad_removes_gradients_or_fills_them_with_zeros(make):
    model = network()
    optimizer = make(model)
    set_gradients(model.parameters())
    first = model[0].weight.grad
    optimizer.zero_grad(set_to_none=False)
    assert model[0].weight.grad is first
    assert all(not p.grad.any() for p in model.parameters())
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())


@each_with_a_window
def test_a_closure_runs_once_per_batch_and_trains_as_the_plain_loop(make):
    model, twin = network(), network()
    optimizer, data, runs = make(model), batches(), []

    def step_all(given):
        for x, y in given:

            def closure(x=x, y=y):
                runs.append(len(y))
                optimizer.zero_grad()
                loss = MSE(model(x), y)
                loss.backward()
                return loss

            with torch.no_grad():  # a closure has gradients all the same
                assert optimizer.step(closure).item() > 0

    if isinstance(optimizer, EpochOptimizer):
        with optimizer.epoch(objective_of(model)) as epoch:
            step_all(epoch.batches(data))
        report = repr(epoch.report)
    else:
        step_all(data)
        report = repr(optimizer.report)
    assert runs == [4, 4, 4, 4, 4, 2]
    assert report == run_epoch(make(twin), twin, data)
    assert_same_models(model, twin)


@each_of_the_paper
def test_a_closure_that_observes_by_itself_is_not_observed_twice(make):
    """Losses 1 with count 1 and 1/2 with count 3: their mean is 0.625."""
    model = nn.Linear(1, 1, bias=False)
    w = model.weight
    optimizer = make(model, lr=0.5)
    with optimizer.epoch(lambda: 1.0) as epoch:
        for count, value in ((1, 1.0), (3, 0.5)):

            def closure(count=count, value=value):
                optimizer.zero_grad()
                loss = value * w.sum() / w.item()
                loss.backward()
                epoch.observe(loss, count)
                return loss

            optimizer.step(closure)
    assert epoch.report.f_tilde == 0.625


@each_of_the_paper
def test_a_closure_that_neither_returns_nor_observes_a_loss_is_refused_inside_an_epoch(make):
    model = nn.Linear(1, 1, bias=False)
    before = model.weight.item()
    optimizer = make(model)
    with (
        pytest.raises(RuntimeError, match=r"without an observation.*epoch\.observe"),
        optimizer.epoch(lambda: 1.0),
    ):
        optimizer.step(lambda: None)
    assert model.weight.item() == before
