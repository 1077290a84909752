"""Which engine a run gets: `auto` compiles where that is predicted to pay."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled.blocks import Loss
from cmalight.compiled.steps import step_rule
from cmalight.compiled.trust.trials import trial
from cmalight.evaluation.batches import TensorBatches

# Seconds to record a step and write it out, and to build what was written; and those for each parameter tensor.
_WRITING, _WRITING_A_TENSOR = 0.012, 0.002
_BUILDING, _BUILDING_A_TENSOR = 0.4, 0.005
# By torch's compiler, where a model has operations that are not written out.
_TRACING, _TRACING_A_TENSOR = 8.0, 0.5
# A prediction must beat the seconds that it costs by this factor.
_MARGIN = 1.1
# The most that a step can lose to Python, for each module: with less than this to win, nothing is measured.
_OVERHEAD, _OVERHEAD_A_MODULE = 5e-4, 2e-4
# What a step of an optimizer and the loop around it take, and what each parameter tensor adds, and each average of one.
_STEPPING, _STEPPING_A_TENSOR, _STEPPING_AN_AVERAGE = 1.5e-4, 6e-6, 8e-6
# The share of a step on two samples that compiling saves.
_SAVED = 0.9
_TRIES = 5
# A step that takes so many seconds is not tried again: what noise there is does not decide then.
_LONG = 0.05


@dataclass(frozen=True)
class Work:
    """What is left to do."""

    epochs: float
    seconds: float
    batches_an_epoch: int


def writing_seconds(model: nn.Module) -> float:
    """Predicted: to know what there is to be built."""
    return _WRITING + _WRITING_A_TENSOR * sum(1 for _ in model.parameters())


def compile_seconds(model: nn.Module, *, written: bool) -> float:
    """Predicted: to build what was written, or to have it traced and compiled by torch."""
    fixed, each = (_BUILDING, _BUILDING_A_TENSOR) if written else (_TRACING, _TRACING_A_TENSOR)
    return fixed + each * sum(1 for _ in model.parameters())


def might_pay(model: nn.Module, work: Work, seconds: float) -> bool:
    """Whether that may cost so much, by what a step can lose at most; without running the model."""
    overhead = _OVERHEAD + _OVERHEAD_A_MODULE * sum(1 for _ in model.modules())
    most = min(work.seconds, work.epochs * work.batches_an_epoch * overhead)
    return pays(most, seconds)


def predicted_saving(model: nn.Module, loss_fn: Loss, optimizer: Optimizer, feed: TensorBatches, work: Work) -> float:
    """Seconds: a step on two samples, fewer than which BatchNorm refuses, is nearly all overhead."""
    whole = _step_seconds(model, loss_fn, optimizer, [t[: feed.batch_size].clone() for t in feed.tensors])
    single = _step_seconds(model, loss_fn, optimizer, [t[:2].clone() for t in feed.tensors])
    if not math.isfinite(single):
        return 0.0
    averages = len(getattr(step_rule(optimizer), "averages", ()))
    tensors = sum(len(group["params"]) for group in optimizer.param_groups)
    around = _STEPPING + tensors * (_STEPPING_A_TENSOR + averages * _STEPPING_AN_AVERAGE)
    saved = _SAVED * min(single, whole) + around
    steps = min(work.seconds / (whole + around), work.epochs * work.batches_an_epoch)
    return steps * saved


def pays(saving: float, seconds: float) -> bool:
    """Whether so large a saving is worth what it costs."""
    return saving > _MARGIN * seconds


def _step_seconds(model: nn.Module, loss_fn: Loss, optimizer: Optimizer, batch: list[Tensor]) -> float:
    """Of a forward and a backward pass, the fastest of a few; infinite for a batch the model cannot take."""
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    fastest = math.inf
    with trial(model, loss_fn), torch.enable_grad():
        for _ in range(_TRIES):
            began = time.perf_counter()
            try:
                torch.autograd.grad(loss_fn(model(batch[0]), batch[1]), params)
            except (RuntimeError, ValueError):
                return math.inf
            fastest = min(fastest, time.perf_counter() - began)
            if fastest > _LONG:
                break
    return fastest
