"""The training loop of the documentation on a tiny regression, shared by the tests of this folder."""

import io
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from cmalight import EpochReport, Objective

LOSS = nn.MSELoss()
SAMPLES, BATCH = 22, 4  # the last batch has 2 samples

Batch = tuple[Tensor, Tensor]

_OBJECTIVES: weakref.WeakKeyDictionary[nn.Module, Objective] = weakref.WeakKeyDictionary()


def objective_of(model: nn.Module, data: Any = None) -> Objective:
    """One for the whole run, over the data in their first order."""
    if model not in _OBJECTIVES:
        dtype = next(model.parameters()).dtype
        _OBJECTIVES[model] = Objective(model, LOSS, batches(dtype=dtype) if data is None else data)
    return _OBJECTIVES[model]


def batches(order: int = 0, dtype: torch.dtype = torch.float32) -> list[Batch]:
    """The data in the `order`-th of its orders; each call gives the same tensors."""
    inputs = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(1)).to(dtype)
    target = inputs.sum(1, keepdim=True).sin()
    index = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(order))
    return list(zip(inputs[index].split(BATCH), target[index].split(BATCH), strict=True))


def network(*, norm: bool = False, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """Always the same starting weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        middle = nn.BatchNorm1d(4) if norm else nn.Identity()
        return nn.Sequential(nn.Linear(3, 4), middle, nn.Tanh(), nn.Linear(4, 1)).to(dtype)


def run_epoch(
    optimizer: Any,
    model: nn.Module,
    data: Iterable[Batch],
    *,
    step: Callable[[], Any] | None = None,
    after_step: Callable[[], Any] | None = None,
) -> EpochReport:
    data = list(data)
    with optimizer.epoch(objective_of(model)) as epoch:
        for inputs, target in epoch.batches(data):
            optimizer.zero_grad()
            loss = LOSS(model(inputs), target)
            loss.backward()
            epoch.observe(loss, len(target))
            (step or optimizer.step)()
            if after_step is not None:
                after_step()
    assert epoch.report is not None
    return epoch.report


def train(
    optimizer: Any, model: nn.Module, epochs: Iterable[int], *, dtype: torch.dtype = torch.float32, **hooks: Any
) -> list[str]:
    """The reports, as text: it shows every digit, and NaN equals NaN in it."""
    return [repr(run_epoch(optimizer, model, batches(k, dtype), **hooks)) for k in epochs]


def set_gradients(params: Iterable[Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)


def assert_same(left: Iterable[Tensor], right: Iterable[Tensor]) -> None:
    """Bit for bit."""
    lefts, rights = list(left), list(right)
    assert lefts
    for a, b in zip(lefts, rights, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def assert_same_models(left: nn.Module, right: nn.Module) -> None:
    """Parameters and buffers, bit for bit."""
    assert_same(left.state_dict().values(), right.state_dict().values())


def through_a_file(value: Any) -> Any:
    """Saved, and loaded as PyTorch loads what others have written."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
