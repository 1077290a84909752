"""What every native loop over batches is given and gives back, and the arithmetic of its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from cmalight.compiled.layout import Layout
from cmalight.compiled.steps import State, StepRule

Loss = Callable[[Any, Any], Tensor]


class Progress(NamedTuple):
    """How far an epoch has come; of several starts at once, one place per start in all but `batch` and `going`."""

    batch: Tensor  # the next one
    going: Tensor  # False where the watch has stopped it
    total: Tensor  # Σ count · (loss + penalty), in double precision
    lowest: Tensor  # the lowest loss
    weights: Tensor
    state: State
    first: Tensor | None = None  # the loss of the first batch of the last call, where the loop tells


class Watch(NamedTuple):
    """When the loop is left before its end, for Python to decide whether the epoch goes on.

    checks: after which of the full batches it is asked
    bound: the mean over all samples of the epoch above which it is, as soon as that is certain
    samples: in the epoch
    active: which starts are in their epoch; the others stay where they are
    start: w^k
    """

    checks: Tensor
    bound: Tensor
    samples: Tensor
    active: Tensor
    start: Tensor


def flat_loss(model: nn.Module, loss_fn: Loss, layout: Layout) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The mean loss of a batch as a function of the flat vector."""

    def loss(weights: Tensor, inputs: Tensor, target: Tensor) -> Tensor:
        parameters = dict(zip(layout.names, layout.parts(weights), strict=True))
        return loss_fn(functional_call(model, parameters, (inputs,)), target).reshape(())

    return loss


def first_line(error: BaseException) -> str:
    """Of its message, or the first two where the first only introduces the second."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def penalty_of(rule: StepRule, groups: tuple[tuple[int, int], ...], weights: Tensor) -> Tensor:
    """What the groups add to an observed loss."""
    terms = [
        weight * weights[begin:end].double().square().sum()
        for weight, (begin, end) in zip(rule.penalties, groups, strict=True)
        if weight
    ]
    return sum(terms[1:], terms[0]) if terms else weights.new_zeros((), dtype=torch.float64)


def by_groups(
    rule: StepRule, groups: tuple[tuple[int, int], ...], weights: Tensor, gradient: Tensor, state: State, lr: Tensor
) -> tuple[Tensor, State]:
    """A step of every group."""
    if len(groups) == 1:
        return rule.step(0, weights, gradient, state, lr[0])
    parts = [
        rule.step(
            number,
            weights[begin:end],
            gradient[begin:end],
            tuple(t[begin:end] if t.dim() else t for t in state),
            lr[number],
        )
        for number, (begin, end) in enumerate(groups)
    ]
    joined = tuple(
        torch.cat(pieces) if pieces[0].dim() else pieces[0]
        for pieces in zip(*(new_state for _, new_state in parts), strict=True)
    )
    return torch.cat([new for new, _ in parts]), joined
