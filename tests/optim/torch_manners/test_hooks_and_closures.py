"""Hooks fire once per call, closures run once with gradients, zero_grad clears."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .infos import each_implementation, each_optimizer
from .loop import LOSS, Objective, assert_same, batches, network, run_epoch, set_gradients


@each_optimizer
def test_step_hooks_fire_once_a_step_before_and_after_it(optimizer_class: Any) -> None:
    w = nn.Parameter(torch.tensor([1.0]))
    optimizer = optimizer_class([w], lr=0.5)
    seen: list[tuple[str, float]] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(("before", w.item())))
    optimizer.register_step_post_hook(lambda *_: seen.append(("after", w.item())))
    w.grad = torch.ones(1)
    optimizer.step()
    assert seen == [("before", 1.0), ("after", 0.5)]


@each_optimizer
def test_step_hooks_fire_once_a_batch_inside_an_epoch(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    run_epoch(optimizer, model, batches())
    assert seen == ["before", "after"] * 6


@each_optimizer
def test_a_removed_step_hook_fires_no_more(optimizer_class: Any) -> None:
    optimizer = optimizer_class(network().parameters())
    seen: list[int] = []
    handle = optimizer.register_step_pre_hook(lambda *_: seen.append(1))
    optimizer.step()
    handle.remove()
    optimizer.step()
    assert seen == [1]


@each_optimizer
def test_step_hooks_of_one_optimizer_do_not_fire_for_another_of_its_class(optimizer_class: Any) -> None:
    hooked, other = (optimizer_class(network().parameters()) for _ in range(2))
    seen: list[int] = []
    hooked.register_step_pre_hook(lambda *_: seen.append(1))
    other.step()
    assert seen == []


@each_optimizer
def test_hooks_of_all_optimizers_fire_once_a_step(optimizer_class: Any) -> None:
    optimizer = optimizer_class(network().parameters())
    seen: list[str] = []
    handles = [
        register_optimizer_step_pre_hook(lambda *_: seen.append("before")),
        register_optimizer_step_post_hook(lambda *_: seen.append("after")),
    ]
    try:
        optimizer.step()
    finally:
        for handle in handles:
            handle.remove()
    assert seen == ["before", "after"]


@each_optimizer
def test_a_step_pre_hook_may_replace_the_closure(optimizer_class: Any) -> None:
    optimizer = optimizer_class(network().parameters())
    optimizer.register_step_pre_hook(lambda *_: ((optimizer, lambda: 7.0), {}))
    assert optimizer.step() == 7.0


@each_optimizer
def test_state_dict_hooks_fire_once_and_may_replace_the_state_dict(optimizer_class: Any) -> None:
    optimizer = optimizer_class(network().parameters())
    seen: list[str] = []
    optimizer.register_state_dict_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_state_dict_post_hook(lambda _, state: seen.append("after") or {**state, "mark": 1})
    assert optimizer.state_dict()["mark"] == 1
    assert seen == ["before", "after"]


@each_optimizer
def test_load_state_dict_hooks_fire_once_and_may_replace_what_is_loaded(optimizer_class: Any) -> None:
    optimizer = optimizer_class(network().parameters(), lr=0.5)
    other = optimizer_class(network().parameters(), lr=0.25)
    seen: list[float] = []
    optimizer.register_load_state_dict_pre_hook(
        lambda opt, _: seen.append(opt.param_groups[0]["lr"]) or other.state_dict()
    )
    optimizer.register_load_state_dict_post_hook(lambda opt: seen.append(opt.param_groups[0]["lr"]))
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen == [0.5, 0.25]


@each_optimizer
def test_zero_grad_removes_gradients_or_fills_them_with_zeros(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters())
    set_gradients(model.parameters(), 0)
    first = model[0].weight.grad
    optimizer.zero_grad(set_to_none=False)
    assert model[0].weight.grad is first
    assert all(not p.grad.any() for p in model.parameters())
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())


@each_optimizer
@pytest.mark.parametrize("set_to_none", [True, False])
def test_both_ways_to_clear_gradients_give_the_same_epoch(optimizer_class: Any, set_to_none: bool) -> None:
    model, twin = network(), network()
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    plain = optimizer.zero_grad
    optimizer.zero_grad = lambda: plain(set_to_none=set_to_none)
    report = run_epoch(optimizer, model, batches())
    assert repr(report) == repr(run_epoch(optimizer_class(twin.parameters(), lr=0.1), twin, batches()))


@each_optimizer
@each_implementation
def test_a_closure_runs_once_and_its_loss_is_returned(optimizer_class: Any, implementation: Any) -> None:
    model, twin = network(), network()
    inputs, target = batches()[0]
    runs: list[float] = []
    results = []
    for net, kind in ((model, optimizer_class), (twin, SGD)):
        optimizer = kind(net.parameters(), lr=0.1, **implementation)

        def closure(net: Any = net, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = LOSS(net(inputs), target)
            loss.backward()
            runs.append(loss.item())
            return loss

        results.append(optimizer.step(closure).item())
    assert runs == results
    assert results[0] == results[1]
    assert_same(model.parameters(), twin.parameters())


@each_optimizer
def test_a_closure_has_gradients_even_under_no_grad(optimizer_class: Any) -> None:
    w = nn.Parameter(torch.tensor([1.0]))
    optimizer = optimizer_class([w], lr=0.5)

    def closure() -> Any:
        loss = 3 * w.sum()
        loss.backward()
        return loss

    with torch.no_grad():
        optimizer.step(closure)
        assert not torch.is_grad_enabled()
    assert w.item() == 1.0 - 0.5 * 3.0


@each_optimizer
def test_a_closure_without_a_result_steps_outside_an_epoch(optimizer_class: Any) -> None:
    w = nn.Parameter(torch.tensor([1.0]))
    optimizer = optimizer_class([w], lr=0.5)

    def closure() -> None:
        w.grad = torch.ones(1)

    assert optimizer.step(closure) is None
    assert w.item() == 0.5


@each_optimizer
def test_a_closure_runs_once_a_batch_and_is_observed_with_its_size(optimizer_class: Any) -> None:
    model, twin = network(), network()
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    data, runs = batches(), []
    with optimizer.epoch(Objective(model, LOSS, data)) as epoch:
        for inputs, target in epoch.batches(data):

            def closure(inputs: Any = inputs, target: Any = target) -> Any:
                runs.append(len(target))
                optimizer.zero_grad()
                loss = LOSS(model(inputs), target)
                loss.backward()
                return loss

            optimizer.step(closure)
    assert runs == [4, 4, 4, 4, 4, 2]
    assert repr(epoch.report) == repr(run_epoch(optimizer_class(twin.parameters(), lr=0.1), twin, data))
    assert_same(model.parameters(), twin.parameters())


@each_optimizer
def test_a_closure_that_observes_by_itself_is_not_observed_twice(optimizer_class: Any) -> None:
    """Losses 1 with count 1 and 1/2 with count 3: their mean is 0.625."""
    w = nn.Parameter(torch.tensor([1.0]))
    optimizer = optimizer_class([w], lr=0.5)
    with optimizer.epoch(lambda: 1.0) as epoch:
        for count, value in ((1, 1.0), (3, 0.5)):

            def closure(count: int = count, value: float = value) -> Any:
                optimizer.zero_grad()
                loss = value * w.sum() / w.item()
                loss.backward()
                epoch.observe(loss, count)
                return loss

            optimizer.step(closure)
    assert epoch.report.f_tilde == 0.625


@each_optimizer
def test_a_closure_that_neither_returns_nor_observes_a_loss_is_refused_inside_an_epoch(optimizer_class: Any) -> None:
    w = nn.Parameter(torch.tensor([1.0]))
    optimizer = optimizer_class([w], lr=0.5)

    def closure() -> None:
        w.grad = torch.ones(1)

    with (
        pytest.raises(RuntimeError, match=r"without an observation.*epoch\.observe"),
        optimizer.epoch(lambda: 1.0),
    ):
        optimizer.step(closure)
    assert w.item() == 1.0
