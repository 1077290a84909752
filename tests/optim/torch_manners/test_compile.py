"""torch.compile(optimizer.step) gives what eager gives, without compiling anew at each step."""

import shutil
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.optim import SGD
from torch.testing import assert_close

from .infos import each_optimizer
from .loop import assert_same, batches, network, run_epoch, set_gradients, train

# Raised by torch itself when it first imports Inductor.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")

# Bit for bit is promised with this backend alone: Inductor contracts a·b + c into one rounding.
_EXACT = "aot_eager"

each_compiled = pytest.mark.parametrize(
    "implementation", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=["forloop", "foreach", "fused"]
)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    counters.clear()


def _compiled_frames() -> int:
    return counters["frames"]["ok"]


@each_optimizer
@each_compiled
def test_compiled_steps_outside_an_epoch_equal_eager_ones(optimizer_class: Any, implementation: Any) -> None:
    compiled, eager = network(), network()
    optimizer = optimizer_class(compiled.parameters(), lr=0.1, weight_decay=0.5, **implementation)
    reference = optimizer_class(eager.parameters(), lr=0.1, weight_decay=0.5, **implementation)
    step = torch.compile(optimizer.step, backend=_EXACT)
    for seed in range(3):
        set_gradients(compiled.parameters(), seed)
        set_gradients(eager.parameters(), seed)
        step()
        reference.step()
    assert _compiled_frames() > 0
    assert_same(compiled.parameters(), eager.parameters())


@each_optimizer
@each_compiled
def test_compiled_epochs_equal_eager_ones(optimizer_class: Any, implementation: Any) -> None:
    """With a short last batch, an lr that changes from epoch to epoch, and weight decay."""
    compiled, eager = network(), network()
    optimizer = optimizer_class(compiled.parameters(), lr=0.8, weight_decay=0.01, **implementation)
    reference = optimizer_class(eager.parameters(), lr=0.8, weight_decay=0.01, **implementation)
    step = torch.compile(optimizer.step, backend=_EXACT)
    reports = train(optimizer, compiled, range(4), step=step)
    assert _compiled_frames() > 0
    assert reports == train(reference, eager, range(4))
    assert_same(compiled.parameters(), eager.parameters())


@each_optimizer
@each_compiled
def test_steps_of_equal_batches_compile_once_in_an_epoch(optimizer_class: Any, implementation: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.05, **implementation)
    step = torch.compile(optimizer.step, backend=_EXACT)
    frames: list[int] = []
    run_epoch(optimizer, model, batches()[:5], step=step, after_step=lambda: frames.append(_compiled_frames()))
    assert frames[0] > 0
    assert frames == [frames[0]] * 5


@each_optimizer
def test_a_short_last_batch_compiles_once_more_and_then_never_again(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.05)
    step = torch.compile(optimizer.step, backend=_EXACT)
    frames: list[int] = []
    for order in range(3):
        run_epoch(optimizer, model, batches(order), step=step, after_step=lambda: frames.append(_compiled_frames()))
        optimizer.param_groups[0]["lr"] = 0.05
    assert len(frames) == 18
    assert frames[4] == frames[0]
    assert set(frames[6:]) == {frames[5]}


@each_optimizer
def test_entering_and_leaving_an_epoch_does_not_compile_anew(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.05)
    step = torch.compile(optimizer.step, backend=_EXACT)
    set_gradients(model.parameters(), 0)
    step()
    before = _compiled_frames()
    run_epoch(optimizer, model, batches()[:5], step=step)
    assert _compiled_frames() == before > 0


@each_optimizer
def test_a_new_lr_compiles_as_often_as_in_sgd(optimizer_class: Any) -> None:
    """torch compiles lr in as a number: one more frame for each value, up to its limit."""
    new_frames = []
    for kind in (optimizer_class, SGD):
        torch._dynamo.reset()
        counters.clear()
        model = network()
        optimizer = kind(model.parameters(), lr=0.1)
        step = torch.compile(optimizer.step, backend=_EXACT)
        frames = []
        for lr in (0.1, 0.1, 0.05, 0.05, 0.025, 0.1):
            optimizer.param_groups[0]["lr"] = lr
            set_gradients(model.parameters(), 0)
            step()
            frames.append(_compiled_frames())
        new_frames.append([after - before for before, after in pairwise(frames)])
    assert new_frames[0] == new_frames[1]
    assert new_frames[0][0] == 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor on a CPU needs a C++ compiler")
@each_optimizer
def test_inductor_gives_the_epochs_of_eager_to_rounding(optimizer_class: Any) -> None:
    compiled, eager = network(dtype=torch.float64), network(dtype=torch.float64)
    optimizer = optimizer_class(compiled.parameters(), lr=0.05, weight_decay=0.01)
    reference = optimizer_class(eager.parameters(), lr=0.05, weight_decay=0.01)
    step = torch.compile(optimizer.step)
    for order in range(2):
        data = batches(order, torch.float64)
        report = run_epoch(optimizer, compiled, data, step=step)
        expected = run_epoch(reference, eager, data)
        assert report.outcome is expected.outcome
        assert report.f_tilde == pytest.approx(expected.f_tilde, rel=1e-12)
    assert _compiled_frames() > 0
    assert_close(list(compiled.parameters()), list(eager.parameters()), rtol=1e-12, atol=1e-12)
