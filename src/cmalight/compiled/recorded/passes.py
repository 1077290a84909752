"""A step and an evaluation of a model, recorded with all that goes in and comes out."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cmalight.compiled.blocks import Loss, by_groups, penalty_of
from cmalight.compiled.layout import Layout
from cmalight.compiled.recorded.draws import Draw, Drawn, Numbers
from cmalight.compiled.recorded.recording import Recording, record
from cmalight.compiled.steps import State, StepRule
from cmalight.evaluation.larger_batches import looks_across_the_batch

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class RecordedPass:
    """What a pass over a batch does.

    Attributes:
        recording: its inputs are those below, one after the other.
        inputs: samples and targets; of a step also the flat vector, the step sizes, and the optimizer's state.
        params: the trained parameters, which are parts of the flat vector.
        buffers: those that it changes, by their names; of an evaluation none, as nobody sees them afterwards.
    """

    recording: Recording
    inputs: tuple[Tensor, ...]
    params: tuple[Tensor, ...]
    buffers: dict[str, Tensor]

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The random numbers that it needs, in their order."""
        return tuple(self.recording.draws.values())


@dataclass(frozen=True)
class RecordedPasses:
    """Of a run.

    Attributes:
        steps: on a full batch, and on a short last one.
        evaluation: of a chunk; None where that of one chunk depends on those before it.
        chunk: its samples.
        numbers: that they draw.
    """

    steps: tuple[RecordedPass, ...]
    evaluation: RecordedPass | None
    chunk: int
    numbers: Numbers

    @property
    def buffers(self) -> tuple[str, ...]:
        """The names of those that a step changes."""
        return tuple(self.steps[0].buffers)


def record_passes(
    model: nn.Module,
    loss_fn: Loss,
    layout: Layout,
    rule: StepRule,
    state: State,
    data: Sequence[Tensor],
    sizes: Sequence[int],
    chunk: int,
    *,
    is_known: Callable[[Any], bool],
) -> RecordedPasses:
    """The arguments are those of `plan`; a chunk is a batch where batches cannot be evaluated together."""

    def evaluation_of(size: int) -> RecordedPass | None:
        return _evaluation(model, loss_fn, layout, [t[:size] for t in data], is_known)

    steps = tuple(_step(model, loss_fn, layout, rule, state, [t[:size] for t in data], is_known) for size in sizes)
    if looks_across_the_batch(model) or steps[0].draws:
        chunk = sizes[0]
    evaluation = evaluation_of(chunk)
    most = (len(data[0]) // sizes[0], 1)
    drawn = tuple(Drawn(one.draws, layout.dtype, count) for one, count in zip(steps, most, strict=False) if one.draws)
    own = None
    if evaluation is not None and evaluation.draws:
        own = Drawn(evaluation.draws, layout.dtype, len(data[0]) // chunk)
    return RecordedPasses(steps, evaluation, chunk, Numbers(drawn, own))


def _step(
    model: nn.Module,
    loss_fn: Loss,
    layout: Layout,
    rule: StepRule,
    state: State,
    batch: Sequence[Tensor],
    is_known: Callable[[Any], bool],
) -> RecordedPass:
    """Loss, penalty, weights and state after a step on a batch."""
    params = layout.params
    rates = torch.ones(len(layout.groups), dtype=torch.float64)
    inputs = (*(t.clone() for t in batch), layout.flat(), rates, *(t.clone() for t in state))

    def step(x: Tensor, y: Tensor, weights: Tensor, lr: Tensor, *rest: Tensor) -> list[Tensor]:
        with torch.enable_grad():
            value = loss_fn(model(x), y).reshape(())
            gradients = torch.autograd.grad(value, list(params))
        with torch.no_grad():
            gradient = torch.cat([g.reshape(-1) for g in gradients])
            added = penalty_of(rule, layout.groups, weights)
            new_weights, new_state = by_groups(rule, layout.groups, weights, gradient, rest[: len(state)], lr)
            return [value.detach().double(), added, new_weights, *new_state]

    return _recorded(model, step, inputs, params, is_known)


def _evaluation(
    model: nn.Module, loss_fn: Loss, layout: Layout, chunk: Sequence[Tensor], is_known: Callable[[Any], bool]
) -> RecordedPass | None:
    """The loss of a chunk; None where that of one chunk depends on those before it, by a buffer."""

    @torch.no_grad()
    def evaluation(x: Tensor, y: Tensor, *_: Tensor) -> list[Tensor]:
        return [loss_fn(model(x), y).reshape(()).double()]

    # Cloned, because a model may change what it is given.
    whole = _recorded(model, evaluation, tuple(t.clone() for t in chunk), layout.params, is_known)
    alone = whole.recording.without_changes()
    if any(alone.reads(before) for before, _ in whole.recording.changes.values()):
        return None
    return RecordedPass(alone, whole.inputs, whole.params, {})


def _recorded(
    model: nn.Module,
    function: Callable[..., list[Tensor]],
    inputs: tuple[Tensor, ...],
    params: tuple[Tensor, ...],
    is_known: Callable[[Any], bool],
) -> RecordedPass:
    buffers = {name: buffer for name, buffer in model.named_buffers() if buffer.numel()}
    with _averages_by_tensors(model):
        recording = record(
            function, [*inputs, *params], is_known=is_known, buffers=list(buffers.values()), parameters=params
        )
    names = list(buffers)
    return RecordedPass(recording, inputs, params, {names[place]: buffers[names[place]] for place in recording.changes})


@contextmanager
def _averages_by_tensors(model: nn.Module) -> Iterator[None]:
    """BatchNorm with momentum=None reads how many batches it has seen; here it calculates with that number instead."""
    patched = [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        and type(module).forward is nn.modules.batchnorm._BatchNorm.forward
        and module.training
        and module.track_running_stats
        and module.momentum is None
        and "forward" not in vars(module)
    ]
    try:
        for module in patched:
            module.forward = types.MethodType(_averaging, module)  # type: ignore[method-assign]
        yield
    finally:
        for module in patched:
            del module.forward


def _averaging(module: nn.modules.batchnorm._BatchNorm, x: Tensor) -> Tensor:
    mean, variance, seen = (module.get_buffer(name) for name in _STATISTICS)
    module._check_input_dim(x)  # type: ignore[no-untyped-call]
    seen.add_(1)
    fresh = torch.zeros_like(mean), torch.zeros_like(variance)
    out = functional.batch_norm(x, *fresh, module.weight, module.bias, training=True, momentum=1.0, eps=module.eps)
    share = 1 / seen.to(mean.dtype)
    for average, new in zip((mean, variance), fresh, strict=True):
        average.copy_(share * new + (1 - share) * average)
    return out
