"""The for-loop is the specification; foreach and fused agree with it, and all three with torch.optim.SGD."""

import sys

import pytest
import torch
from torch import nn
from torch.optim import SGD

from .cases import (
    IMPLEMENTATIONS,
    assert_same,
    batches,
    each_implementation,
    each_of_the_paper,
    network,
    run_epoch,
    run_losses,
    set_gradients,
    train,
)

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Shapes(nn.Module):
    """A matrix, a vector, a scalar and an empty parameter, of all dtypes, and one without a gradient."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        shapes = ((5, 3), (5,), (), (0,))
        values = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes for dtype in _DTYPES]
        self.weights = nn.ParameterList(values)
        self.unused = nn.Parameter(torch.ones(2))


def _step(optimizer, model, times=3):
    for seed in range(times):
        set_gradients(model.weights, seed)
        optimizer.step()


@each_of_the_paper
@each_implementation
def test_steps_outside_an_epoch_are_those_of_sgd_bit_for_bit_and_leave_gradients_alone(make, implementation):
    ours, theirs = Shapes(), Shapes()
    _step(make(ours, lr=0.1, weight_decay=0.5, **implementation), ours)
    _step(SGD(theirs.parameters(), lr=0.1, weight_decay=0.5, **implementation), theirs)
    assert_same(ours.parameters(), theirs.parameters())
    assert_same([p.grad for p in ours.weights], [p.grad for p in theirs.weights])
    assert ours.unused.tolist() == [1.0, 1.0]
    assert [p.dtype for p in ours.weights] == [*_DTYPES] * 4


@each_of_the_paper
@pytest.mark.parametrize("name", ["foreach", "fused"])
def test_a_run_agrees_with_the_forloop(make, name):
    """Epochs with a short last batch, of which some are undone; lines of the listing and learning rates are equal."""
    ends = []
    for chosen in (name, "forloop"):
        model = network(dtype=torch.float64)
        optimizer = make(model, weight_decay=0.01, **IMPLEMENTATIONS[chosen])
        reports = train(optimizer, model, range(4))
        ends.append(([text.split(", f_tilde")[0] for text in reports], list(model.parameters())))
    assert ends[0][0] == ends[1][0]
    torch.testing.assert_close(ends[0][1], ends[1][1], rtol=1e-12, atol=1e-12)


@each_of_the_paper
@pytest.mark.parametrize(
    ("name", "function"),
    [("forloop", "_single_tensor_sgd"), ("foreach", "_multi_tensor_sgd"), ("fused", "_fused_sgd")],
)
def test_the_implementation_asked_for_is_the_one_that_runs(make, name, function, monkeypatch):
    calls = []
    for each in ("_single_tensor_sgd", "_multi_tensor_sgd", "_fused_sgd"):
        monkeypatch.setattr(sys.modules["torch.optim.sgd"], each, lambda *_, each=each, **__: calls.append(each))
    model = network()
    run_epoch(make(model, **IMPLEMENTATIONS[name]), model, batches())
    assert calls == [function] * 6


@each_of_the_paper
@each_implementation
def test_the_short_last_batch_takes_a_step_in_its_proportion(make, implementation):
    """w = 8, loss = w: gradient 1 and with decay 1/4 a quarter of w more; lr 1/2, batches of 4 and of 1."""
    model = nn.Linear(1, 1, bias=False)
    w = nn.init.constant_(model.weight, 8.0)
    optimizer, seen = make(model, lr=0.5, weight_decay=0.25, **implementation), []
    run_losses(optimizer, w.item, [(w.sum, 4), (w.sum, 1)], after_step=lambda: seen.append(w.item()))
    assert seen == [8.0 - 0.5 * (1 + 0.25 * 8.0), 6.5 - 0.5 * 0.25 * (1 + 0.25 * 6.5)]
