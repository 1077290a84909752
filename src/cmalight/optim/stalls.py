"""Runs that do not get on: noticed, and said once."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from cmalight.rules.paper import has_stalled

if TYPE_CHECKING:
    from cmalight.optim.host import EpochOptimizer

# So many epochs in a row without a move are a stall; without any change of φ and ζ, a cycle.
_PATIENCE = 30


def has_converged(optimizer: EpochOptimizer) -> bool:
    """Whether the step size is so far below rounding that nothing will move any more."""
    state = optimizer.control.state
    rounding = _rounding(optimizer)
    return bool(state.epochs) and state.height < rounding * rounding * min(state.zeta_0, 1.0)


def warn_if_stalled(optimizer: EpochOptimizer) -> None:
    """Once in a run: where weights or step size stand still, or the light search goes round in a circle."""
    control = optimizer.control
    state = control.state
    if state.stall_reported or not optimizer.owns_lr:
        return
    stalled = has_stalled(
        zeta=state.height,
        zeta_0=state.zeta_0,
        rounding=_rounding(optimizer),
        epochs_still=state.epochs_still,
        patience=_PATIENCE,
    )
    rule = optimizer.rule()
    cycles = state.epochs_alike >= _PATIENCE and rule.may_cycle
    if not (stalled or cycles):
        return
    control.update(stall_reported=1)
    if stalled:
        still = state.epochs_still
        moved = f"and the last {still} epochs did not move the weights" if still else "below what can move the weights"
        what = f"has stalled: lr is {state.height:.3g}, {moved}"
    else:
        what = (
            f"goes round in a circle: in the last {state.epochs_alike} epochs neither lr nor the loss to beat changed"
        )
    warnings.warn(f"{type(optimizer).__name__} {what}. {rule.advice}", RuntimeWarning, stacklevel=4)


def _rounding(optimizer: EpochOptimizer) -> float:
    parameters = optimizer.control.parameters()
    return torch.finfo(parameters[0].dtype).eps if parameters else 0.0
