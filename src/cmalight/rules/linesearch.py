"""The derivative-free line searches on plain floats and a callable f(alpha) = f(w^k + alpha d).

The line numbers in the comments are those of EDFL_Light in docs/understand/algorithm.md. Symbols:

    f_start   f(w^k)
    f_tilde   f̃, the epoch's estimate of f(w^k + ζ d)
    slope     γ ‖d‖² / K: the decrease per unit of alpha that counts as sufficient, in mean units
    delta     δ: a trial goes from alpha to alpha / δ

A value that is not finite must come in as +inf; NaN fails every test all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

Objective1D = Callable[[float], float]


class Settings(TypedDict):
    """What every search is told of the epoch and of the listing's constants."""

    zeta: float
    slope: float
    delta: float
    max_extrapolations: int


@dataclass(frozen=True)
class SearchResult:
    """What a line search found."""

    alpha: float  # α̃; 0 if no sufficient decrease was found
    f_hat: float  # f̂ = f(w^k + α̃ d)
    f_start: float
    f_step: float | None  # f(w^k + ζ d) if it was evaluated
    ended_by_guard: bool = False


def edfl_light(f: Objective1D, *, f_start: float, f_tilde: float, **settings: Unpack[Settings]) -> SearchResult:
    """The search as printed: its first test believes the estimate f̃."""
    found = _edfl(f, f_start, f_tilde, None, test_at_trial=False, **settings)
    if found.alpha != settings["zeta"]:
        return found
    f_step = f(found.alpha)  # line 10, f̂ has still to be evaluated
    return replace(found, f_hat=f_step, f_step=f_step)


def edfl_certified(f: Objective1D, *, f_start: float, **settings: Unpack[Settings]) -> SearchResult:
    """The search whose first test evaluates f(w^k + ζ d) instead of believing f̃."""
    f_step = f(settings["zeta"])
    return _edfl(f, f_start, f_step, f_step, test_at_trial=False, **settings)


def edfl(f: Objective1D, *, f_start: float, f_end: float, **settings: Unpack[Settings]) -> SearchResult:
    """CMA's search: f(w̃) = `f_end` is known, and a trial has to decrease in proportion to its own length."""
    return _edfl(f, f_start, f_end, f_end, test_at_trial=True, **settings)


def _edfl(
    f: Objective1D,
    f_start: float,
    f_zeta: float,
    f_step: float | None,
    *,
    test_at_trial: bool,
    **settings: Unpack[Settings],
) -> SearchResult:
    if not f_zeta <= f_start - settings["slope"] * settings["zeta"]:  # line 3
        return SearchResult(0.0, f_start, f_start, f_step)
    return replace(extrapolate(f, f_start, f_zeta, test_at_trial=test_at_trial, **settings), f_step=f_step)


def extrapolate(
    f: Objective1D,
    f_start: float,
    f_zeta: float,
    *,
    zeta: float,
    slope: float,
    delta: float,
    max_extrapolations: int,
    test_at_trial: bool = False,
) -> SearchResult:
    """Lines 2 and 6 to 10, from a value or an estimate of f(w^k + ζ d); the guard may end the loop."""
    alpha, f_j = zeta, f_zeta  # line 2
    for _ in range(max_extrapolations):
        trial = alpha / delta
        f_trial = f(trial)
        sufficient = f_start - slope * (trial if test_at_trial else alpha)
        if not f_trial <= min(sufficient, f_j):  # line 6
            return SearchResult(alpha, f_j, f_start, None)  # line 10
        alpha, f_j = trial, f_trial  # line 7
    return SearchResult(alpha, f_j, f_start, None, ended_by_guard=True)
