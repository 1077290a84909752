"""What the optimizers ask of their arguments, in the words of torch's own errors."""

from __future__ import annotations

import math
import numbers
from typing import Any

from torch import Tensor

from cmalight.errors import check_fraction, check_positive, check_whole
from cmalight.rules.paper import Constants


def refuse_maximize() -> None:
    raise ValueError(
        "maximize=True is not supported: sufficient decrease needs a loss that is bounded below; negate the loss"
    )


def check_lr(lr: Any, *, zero_allowed: bool = False) -> None:
    if isinstance(lr, Tensor):
        raise ValueError("lr as a Tensor is not supported, because the control sets it anew; pass float(lr)")
    if not isinstance(lr, numbers.Real) or not (0.0 < float(lr) < math.inf or (zero_allowed and lr == 0.0)):
        raise ValueError(f"Invalid lr value: {lr!r}; expected a positive number")


def checked_constants(
    theta: float, tau: float, gamma: float, delta: float, max_extrapolations: int
) -> dict[str, float | int]:
    """Line 1 of the listing: θ, γ, δ in (0, 1), τ > 0."""
    check_fraction("theta", theta)
    check_positive("tau", tau)
    check_fraction("gamma", gamma)
    check_fraction("delta", delta)
    check_whole("max_extrapolations", max_extrapolations)
    return {
        "theta": theta,
        "tau": tau,
        "gamma": gamma,
        "delta": delta,
        "max_extrapolations": int(max_extrapolations),
    }


def of_the_listing(settings: dict[str, Any]) -> dict[str, Any]:
    """What `checked_constants` put into a group, as the rules of the paper take it."""
    constants = Constants(settings["theta"], settings["tau"], settings["gamma"])
    return {"constants": constants, **{name: settings[name] for name in ("delta", "max_extrapolations")}}
