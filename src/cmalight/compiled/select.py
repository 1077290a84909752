"""Which engine a run gets: `auto` compiles where that is predicted to pay."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled.blocks import Loss
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.undisturbed import undisturbed

# Seconds to compile, and those for each parameter tensor, on a machine with nothing else to do.
_COMPILING, _COMPILING_A_TENSOR = 8.0, 0.5
# A prediction must beat the compile time by this factor.
_MARGIN = 2.0
# The most that a step can lose to Python, for each module: with less than this to win, nothing is measured.
_OVERHEAD, _OVERHEAD_A_MODULE = 5e-4, 2e-4
# The share of a step on a single sample that compiling saves.
_SAVED = 0.8
_TRIES = 5


@dataclass(frozen=True)
class Work:
    """What is left to do."""

    epochs: float
    seconds: float
    batches_an_epoch: int


def compile_seconds(model: nn.Module) -> float:
    """Predicted."""
    return _COMPILING + _COMPILING_A_TENSOR * sum(1 for _ in model.parameters())


def might_pay(model: nn.Module, work: Work) -> bool:
    """By what a step can lose at most; without running the model."""
    overhead = _OVERHEAD + _OVERHEAD_A_MODULE * sum(1 for _ in model.modules())
    most = min(work.seconds, work.epochs * work.batches_an_epoch * overhead)
    return most > _MARGIN * compile_seconds(model)


def predicted_saving(model: nn.Module, loss_fn: Loss, optimizer: Optimizer, feed: TensorBatches, work: Work) -> float:
    """Seconds: a step on one sample is nearly all overhead, which compiled steps are nearly without."""
    whole = _step_seconds(model, loss_fn, optimizer, [t[: feed.batch_size] for t in feed.tensors])
    single = _step_seconds(model, loss_fn, optimizer, [t[:1] for t in feed.tensors])
    eager = min(work.seconds, work.epochs * work.batches_an_epoch * whole)
    return eager * _SAVED * min(1.0, single / whole) if math.isfinite(single) else 0.0


def pays(saving: float, model: nn.Module) -> bool:
    return saving > _MARGIN * compile_seconds(model)


def _step_seconds(model: nn.Module, loss_fn: Loss, optimizer: Optimizer, batch: list[Tensor]) -> float:
    """Of a forward and a backward pass, the fastest of a few; infinite for a batch the model cannot take."""
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    fastest = math.inf
    with undisturbed(model, None, loss_fn), torch.enable_grad():
        for _ in range(_TRIES):
            began = time.perf_counter()
            try:
                torch.autograd.grad(loss_fn(model(batch[0]), batch[1]), params)
            except (RuntimeError, ValueError):
                return math.inf
            fastest = min(fastest, time.perf_counter() - began)
    return fastest
