"""Runs that do not get on: noticed, and said once."""

from __future__ import annotations

import warnings

import torch

from cmalight.optim.control.control import Control
from cmalight.rules.paper import has_stalled
from cmalight.rules.rule import Rule

# So many epochs in a row without a move are a stall; without any change of φ and ζ, a cycle.
_PATIENCE = 30


def has_converged(control: Control) -> bool:
    """Whether the step size is so far below rounding that nothing will move any more."""
    state = control.state
    rounding = _rounding(control)
    return bool(state.epochs) and state.height < rounding * rounding * min(state.zeta_0, 1.0)


def warn_if_stalled(control: Control, rule: Rule) -> None:
    """Once in a run: where weights or step size stand still, or the light search goes round in a circle."""
    state = control.state
    if state.stall_reported:
        return
    stalled = has_stalled(
        zeta=state.height,
        zeta_0=state.zeta_0,
        rounding=_rounding(control),
        epochs_still=state.epochs_still,
        patience=_PATIENCE,
    )
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
    warnings.warn(f"{control.name} {what}. {rule.advice}", RuntimeWarning, stacklevel=4)


def _rounding(control: Control) -> float:
    parameters = control.parameters()
    return torch.finfo(parameters[0].dtype).eps if parameters else 0.0
