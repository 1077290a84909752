"""What the optimizers ask of their arguments, in the words of torch's own errors."""

from __future__ import annotations

import math
import numbers
from typing import Any

from torch import Tensor


def refuse_maximize() -> None:
    raise ValueError(
        "maximize=True is not supported: sufficient decrease needs a loss that is bounded below; negate the loss"
    )


def check_lr(lr: Any, *, zero_allowed: bool = False) -> None:
    if isinstance(lr, Tensor):
        raise ValueError("lr as a Tensor is not supported, because the control sets it anew; pass float(lr)")
    if not isinstance(lr, numbers.Real) or not (0.0 < float(lr) < math.inf or (zero_allowed and lr == 0.0)):
        raise ValueError(f"Invalid lr value: {lr!r}; expected a positive number")


def check_positive(name: str, value: Any) -> None:
    if not isinstance(value, numbers.Real) or not 0.0 < float(value) < math.inf:
        raise ValueError(f"Invalid {name} value: {value!r}; expected a positive number")


def check_whole(name: str, value: Any, *, least: int = 0) -> None:
    if not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"Invalid {name} value: {value!r}; expected a whole number >= {least}")


def check_not_negative(name: str, value: Any) -> None:
    if not isinstance(value, numbers.Real) or not 0.0 <= float(value) < math.inf:
        raise ValueError(f"Invalid {name} value: {value!r}; expected a number >= 0")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        expected = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise ValueError(f"Invalid {name} value: {value!r}; expected {expected}")
    return str(value)


def check_fraction(name: str, value: Any) -> None:
    if not isinstance(value, numbers.Real) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"Invalid {name} value: {value!r}; expected a number between 0 and 1, both excluded")


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
