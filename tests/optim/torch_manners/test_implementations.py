"""The for-loop is the specification; foreach and fused agree with it, and all three with torch.optim.SGD."""

import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.testing import assert_close

from .infos import INFOS, each_implementation, each_input, each_optimizer, fast_implementation
from .loop import assert_same, batches, network, run_epoch, set_gradients, train

_SGDS = ("lr", "weight_decay")


def _parameters() -> list[nn.Parameter]:
    """Of several shapes: a scalar, an empty one, and a matrix and a vector."""
    generator = torch.Generator().manual_seed(3)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 3), (5,), (), (0,))]


def _step(optimizer: Any, params: list[nn.Parameter], times: int = 3) -> None:
    for seed in range(times):
        set_gradients(params, seed)
        optimizer.step()


def test_inputs_leave_the_choice_of_the_implementation_to_the_tests() -> None:
    inputs = [given.kwargs for info in INFOS for given in info.optim_inputs_func("cpu")]
    assert len(inputs) == 14
    assert not any({"foreach", "fused", "differentiable"} & kwargs.keys() for kwargs in inputs)


@each_optimizer
@pytest.mark.parametrize("inside", [False, True], ids=["outside-an-epoch", "inside-an-epoch"])
@pytest.mark.parametrize(
    ("implementation", "function"),
    [
        ({"foreach": False}, "_single_tensor_sgd"),
        ({"foreach": True}, "_multi_tensor_sgd"),
        ({"fused": True}, "_fused_sgd"),
    ],
    ids=["forloop", "foreach", "fused"],
)
def test_the_implementation_asked_for_is_the_one_that_runs(
    optimizer_class: Any, inside: bool, implementation: Any, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    for name in ("_single_tensor_sgd", "_multi_tensor_sgd", "_fused_sgd"):
        monkeypatch.setattr(sys.modules["torch.optim.sgd"], name, lambda *_, name=name, **__: calls.append(name))
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.1, **implementation)
    if inside:
        run_epoch(optimizer, model, batches())
    else:
        set_gradients(model.parameters(), 0)
        optimizer.step()
    assert calls == [function] * (6 if inside else 1)


@each_input
@each_implementation
def test_steps_outside_an_epoch_are_those_of_sgd_bit_for_bit(
    optimizer_class: Any, kwargs: Any, implementation: Any
) -> None:
    ours, theirs, start = _parameters(), _parameters(), _parameters()
    sgd = {"lr": 0.5} | {name: kwargs[name] for name in _SGDS if name in kwargs}
    _step(optimizer_class(ours, **kwargs, **implementation), ours)
    _step(SGD(theirs, **sgd, **implementation), theirs)
    assert_same(ours, theirs)
    assert not torch.equal(ours[0], start[0])


@each_input
@fast_implementation
def test_a_run_agrees_with_the_forloop(optimizer_class: Any, kwargs: Any, implementation: Any) -> None:
    """Epochs with a short last batch, of which some are rejected."""
    fast, plain = network(dtype=torch.float64), network(dtype=torch.float64)
    fast_optimizer = optimizer_class(fast.parameters(), **kwargs, **implementation)
    plain_optimizer = optimizer_class(plain.parameters(), **kwargs, foreach=False, fused=False)
    for order in range(4):
        data = batches(order, torch.float64)
        report, expected = run_epoch(fast_optimizer, fast, data), run_epoch(plain_optimizer, plain, data)
        assert report.outcome is expected.outcome
        assert report.next_lr == expected.next_lr
        assert report.evaluations == expected.evaluations
        assert report.f_tilde == pytest.approx(expected.f_tilde, rel=1e-12)
    assert_close(list(fast.parameters()), list(plain.parameters()), rtol=1e-12, atol=1e-12)


@each_optimizer
@each_implementation
def test_inside_an_epoch_the_short_last_batch_takes_a_step_in_its_proportion(
    optimizer_class: Any, implementation: Any
) -> None:
    """w = 8, loss = w: gradient 1 and with decay 1/4 a quarter of w more; lr 1/2, batches of 4 and of 1."""
    w = nn.Parameter(torch.tensor([8.0]))
    optimizer = optimizer_class([w], lr=0.5, weight_decay=0.25, **implementation)
    seen = []
    with optimizer.epoch(lambda: w.item()) as epoch:
        for count in (4, 1):
            optimizer.zero_grad()
            loss = w.sum()
            loss.backward()
            epoch.observe(loss, count)
            optimizer.step()
            seen.append(w.item())
    assert seen[0] == 8.0 - 0.5 * (1 + 0.25 * 8.0)
    assert seen[1] == 6.5 - 0.5 * 0.25 * (1 + 0.25 * 6.5)


@each_optimizer
@each_implementation
def test_parameters_without_a_gradient_stay(optimizer_class: Any, implementation: Any) -> None:
    params, start = _parameters(), _parameters()
    optimizer = optimizer_class(params, weight_decay=0.5, **implementation)
    params[1].grad = torch.ones_like(params[1])
    optimizer.step()
    assert_same([params[0], params[2]], [start[0], start[2]])
    assert not torch.equal(params[1], start[1])


@each_optimizer
@each_implementation
def test_a_step_without_any_gradient_changes_nothing(optimizer_class: Any, implementation: Any) -> None:
    params, start = _parameters(), _parameters()
    optimizer_class(params, weight_decay=0.5, **implementation).step()
    assert_same(params, start)


@each_optimizer
@each_implementation
def test_zero_gradients_change_nothing_without_weight_decay(optimizer_class: Any, implementation: Any) -> None:
    params, start = _parameters(), _parameters()
    optimizer = optimizer_class(params, **implementation)
    for p in params:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert_same(params, start)


@each_optimizer
@each_implementation
def test_gradients_are_not_changed_by_a_step(optimizer_class: Any, implementation: Any) -> None:
    params, twins = _parameters(), _parameters()
    optimizer = optimizer_class(params, weight_decay=0.5, **implementation)
    set_gradients(params, 0)
    set_gradients(twins, 0)
    optimizer.step()
    assert_same([p.grad for p in params], [p.grad for p in twins])


@each_optimizer
@each_implementation
def test_a_rejected_epoch_leaves_every_parameter_in_its_storage(optimizer_class: Any, implementation: Any) -> None:
    model = network()
    storages = [p.data_ptr() for p in model.parameters()]
    optimizer = optimizer_class(model.parameters(), lr=1.2, **implementation)
    run_epoch(optimizer, model, batches())
    assert [p.data_ptr() for p in model.parameters()] == storages


@each_optimizer
@pytest.mark.parametrize("implementation", [{}, {"foreach": False}, {"foreach": True}], ids=str)
def test_parameters_with_gaps_in_memory_train_like_contiguous_ones(optimizer_class: Any, implementation: Any) -> None:
    """Not with fused=True: torch's fused CPU kernel ignores gaps, for SGD as well."""
    dense, gappy = network(dtype=torch.float64), network(dtype=torch.float64)
    for layer in (gappy[0], gappy[3]):
        for name, p in list(layer.named_parameters()):
            setattr(layer, name, nn.Parameter(torch.stack([p.detach(), p.detach()], dim=-1)[..., 0]))
    strides = gappy[0].weight.stride()
    assert strides == (6, 2)
    for model in (dense, gappy):
        optimizer = optimizer_class(model.parameters(), lr=0.8, weight_decay=0.01, **implementation)
        train(optimizer, model, range(3), dtype=torch.float64)
    assert_close(list(gappy.parameters()), list(dense.parameters()), rtol=1e-12, atol=1e-12)
    assert gappy[0].weight.stride() == strides


@each_optimizer
@each_implementation
def test_channels_last_weights_keep_their_layout(optimizer_class: Any, implementation: Any) -> None:
    weight = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    ours = nn.Parameter(weight.to(memory_format=torch.channels_last, copy=True))
    theirs = nn.Parameter(weight.to(memory_format=torch.channels_last, copy=True))
    for p, optimizer_type in ((ours, optimizer_class), (theirs, SGD)):
        optimizer = optimizer_type([p], lr=0.1, weight_decay=0.5, **implementation)
        (p**2).sum().backward()
        optimizer.step()
    assert ours.is_contiguous(memory_format=torch.channels_last)
    assert_same([ours], [theirs])


@each_input
def test_the_optimizer_can_be_printed(optimizer_class: Any, kwargs: Any) -> None:
    text = repr(optimizer_class(_parameters(), **kwargs))
    assert text.startswith(f"{optimizer_class.__name__} (")
    assert f"lr: {kwargs.get('lr', 0.5)}" in text
