"""Compiled steps against eager ones: whether what was recorded is still what the model and its loss compute.

A record follows tensors. What a model or a loss reads elsewhere (a variable that a callback changes, a number that a
library below torch computed) is in it as it was, and nothing but the result tells.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled.blocks import Loss, by_groups
from cmalight.compiled.layout import CannotCompile, Layout
from cmalight.compiled.steps import State, StepRule
from cmalight.evaluation.snapshot import ModuleState

# By how much of themselves a loss, and the way that a step goes, may differ.
_LOSS = {torch.float64: 1e-6, torch.float32: 1e-4}
_STEP = {torch.float64: 1e-4, torch.float32: 1e-2}
# Gradients below this share of the largest may be rounding, which Adam makes as large as others.
_ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3}
# How often as far as eager steps from weights that differ by rounding.
_TIMES = 100.0
# After so many batches an eager forward pass costs about a per cent of them, even of the smallest networks.
_BATCHES = 2000


class Differs(CannotCompile):
    """A compiled step does not give what an eager one gives."""


@dataclass(frozen=True)
class Trained:
    """What a step moves."""

    model: nn.Module
    optimizer: Optimizer
    layout: Layout

    @functools.cached_property
    def has_state(self) -> bool:
        """Whether a forward pass may change more than the generator of random numbers."""
        own = nn.Module.get_extra_state
        return any(module._buffers or type(module).get_extra_state is not own for module in self.model.modules())


@dataclass(frozen=True)
class StepTaken:
    """Of a step on one batch.

    Attributes:
        loss: of the batch.
        step: from the weights before to those after, where gradients are large enough; empty if that was not asked.
        buffers: after it, those that it changes.
    """

    loss: float
    step: Tensor
    buffers: tuple[Tensor, ...] = ()


class Schedule:
    """When to look: often where others may change things between epochs, and ever more rarely where nobody does.

    Args:
        always: before every epoch, as there are callbacks.
    """

    def __init__(self, *, always: bool) -> None:
        self._always = always
        self._epochs = self._batches = 0

    def due(self, batches: int) -> tuple[bool, bool]:
        """Before an epoch of so many batches: whether to look at all, and at the step as well as at the loss.

        The first epoch begins right after the look that ends the preparations.
        """
        self._epochs += 1
        thorough = self._epochs > 1 and self._epochs & (self._epochs - 1) == 0
        looks = thorough or (self._always and self._epochs > 1) or self._batches >= _BATCHES
        self._batches = batches if looks else self._batches + batches
        return looks, thorough


def elsewhere(weights: Tensor) -> Tensor:
    """Weights near these, none of them the same: what was read from the weights would show there."""
    wave = torch.arange(weights.shape[-1], dtype=weights.dtype).cos()
    return weights + wave * (0.01 * weights.abs() + 1e-3)


@dataclass(frozen=True)
class EagerStep:
    """On one batch, by the model itself; leaves no trace of it.

    Attributes:
        trained: the model, and what its step needs.
        loss_fn: its loss.
        rule: of the steps.
        state: of the optimizer before.
        rates: the step sizes of the groups.
        batch: inputs and targets.
        buffers: the names of those that a step changes.
    """

    trained: Trained
    loss_fn: Loss
    rule: StepRule
    state: State
    rates: Tensor
    batch: Sequence[Tensor]
    buffers: Sequence[str] = ()

    def loss(self, weights: Tensor | None = None) -> StepTaken:
        """Of the forward pass alone; at the model's own weights if there are none."""
        with self._at(weights), torch.enable_grad():
            loss = self._forward()
            return StepTaken(float(loss.detach()), loss.new_empty(0), self._after())

    def step(self, weights: Tensor) -> tuple[StepTaken, Tensor]:
        """With the gradient, which says which weights can be compared."""
        layout = self.trained.layout
        with self._at(weights), torch.enable_grad():
            loss = self._forward()
            gradients = torch.autograd.grad(loss, list(layout.params))
            buffers = self._after()
        with torch.no_grad():
            gradient = torch.cat([g.reshape(-1) for g in gradients])
            moved, _ = by_groups(self.rule, layout.groups, weights, gradient, self.state, self.rates)
        counts = gradient.abs() > _ROUNDING[layout.dtype] * gradient.abs().max()
        return StepTaken(float(loss.detach()), moved - weights, buffers), counts

    def _forward(self) -> Tensor:
        inputs, target = (t.clone() for t in self.batch)  # a model may change what it is given
        return self.loss_fn(self.trained.model(inputs), target).reshape(())

    def _after(self) -> tuple[Tensor, ...]:
        return tuple(self.trained.model.get_buffer(name).clone() for name in self.buffers)

    @contextmanager
    def _at(self, weights: Tensor | None) -> Iterator[None]:
        layout, random = self.trained.layout, torch.get_rng_state()
        before = ModuleState(self.trained.model) if self.trained.has_state else None
        own = None if weights is None else layout.flat()
        try:
            if weights is not None:
                layout.put(weights)
            yield
        finally:
            if own is not None:
                layout.put(own)
            if before is not None:
                before.restore()
            torch.set_rng_state(random)


def agree(compiled: float, eager: float, dtype: torch.dtype) -> bool:
    """At a glance: where they do not, `compare` decides."""
    return abs(compiled - eager) <= _LOSS[dtype] * abs(eager)


def compare(compiled: StepTaken, eager: EagerStep, weights: Tensor) -> None:
    """Raises Differs where they are further apart than rounding brings them."""
    dtype, thorough = eager.trained.layout.dtype, bool(compiled.step.numel())
    expected, counts = eager.step(weights) if thorough else (eager.loss(weights), torch.empty(0, dtype=torch.bool))
    if not (math.isfinite(compiled.loss) or math.isfinite(expected.loss)):
        return  # both have diverged
    tolerances = [_LOSS[dtype], _STEP[dtype], *(_LOSS[dtype] for _ in expected.buffers)]
    sizes = [float(part[part.isfinite()].norm()) for part in _parts(expected, counts)]
    allowed = [share * size for share, size in zip(tolerances, sizes, strict=True)]
    allowed[1] += 4 * torch.finfo(dtype).eps * float(weights.double().norm())  # of weights that hardly move
    far = _apart(compiled, expected, counts)
    if _within(far, allowed):
        return
    for sign in (1, -1):  # a loss near zero is a difference of numbers that nearly agree
        near = weights * (1 + sign * 4 * torch.finfo(dtype).eps)
        spread = _apart(eager.step(near)[0] if thorough else eager.loss(near), expected, counts)
        allowed = [most + _TIMES * own for most, own in zip(allowed, spread, strict=True)]
    if not _within(far, allowed):
        where = (
            f"gives a loss of {compiled.loss:.6g}, and an eager one {expected.loss:.6g}"
            if not far[0] <= allowed[0]
            else "ends elsewhere than an eager one"
        )
        raise Differs(f"a compiled step {where}: the model or its loss depends on more than tensors, or has changed")


def _parts(outcome: StepTaken, counts: Tensor) -> list[Tensor]:
    step = outcome.step[counts] if len(counts) else outcome.step
    return [torch.tensor(outcome.loss).double(), step.double(), *(buffer.double() for buffer in outcome.buffers)]


def _apart(one: StepTaken, other: StepTaken, counts: Tensor) -> list[float]:
    pairs = zip(_parts(one, counts), _parts(other, counts), strict=True)
    # What is infinite in both, or no number, is the same.
    return [float((a - b).masked_fill((a == b) | (a.isnan() & b.isnan()), 0).norm()) for a, b in pairs]


def _within(distances: Sequence[float], allowed: Sequence[float]) -> bool:
    return all(distance <= most for distance, most in zip(distances, allowed, strict=True))
