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
from dataclasses import dataclass

Objective1D = Callable[[float], float]


@dataclass(frozen=True)
class SearchResult:
    """What a line search found."""

    alpha: float  # α̃; 0 where no sufficient decrease was found
    f_hat: float  # f̂ = f(w^k + α̃ d)
    f_start: float
    f_step: float | None  # f(w^k + ζ d) where it was evaluated
    ended_by_guard: bool = False


def edfl_light(
    f: Objective1D,
    *,
    f_start: float,
    f_tilde: float,
    zeta: float,
    slope: float,
    delta: float,
    max_extrapolations: int,
) -> SearchResult:
    """The search as printed: its first test believes the estimate f̃."""
    if not f_tilde <= f_start - slope * zeta:  # line 3
        return SearchResult(0.0, f_start, f_start, None)
    alpha, f_hat, guard = extrapolate(f, f_start, slope, zeta, f_tilde, delta, max_extrapolations, test_at_trial=False)
    if alpha > zeta:  # line 10, f̂ is the last accepted value
        return SearchResult(alpha, f_hat, f_start, None, guard)
    f_step = f(zeta)  # line 10, f̂ has still to be evaluated
    return SearchResult(zeta, f_step, f_start, f_step, guard)


def edfl_certified(
    f: Objective1D, *, f_start: float, zeta: float, slope: float, delta: float, max_extrapolations: int
) -> SearchResult:
    """The search whose first test evaluates f(w^k + ζ d) instead of believing f̃."""
    return _edfl_exact(f, f_start, f(zeta), zeta, slope, delta, max_extrapolations, test_at_trial=False)


def edfl(
    f: Objective1D,
    *,
    f_start: float,
    f_end: float,
    zeta: float,
    slope: float,
    delta: float,
    max_extrapolations: int,
) -> SearchResult:
    """CMA's search: f(w̃) = `f_end` is known, and a trial has to decrease in proportion to its own length."""
    return _edfl_exact(f, f_start, f_end, zeta, slope, delta, max_extrapolations, test_at_trial=True)


def _edfl_exact(
    f: Objective1D,
    f_start: float,
    f_step: float,
    zeta: float,
    slope: float,
    delta: float,
    max_extrapolations: int,
    *,
    test_at_trial: bool,
) -> SearchResult:
    if not f_step <= f_start - slope * zeta:  # line 3
        return SearchResult(0.0, f_start, f_start, f_step)
    alpha, f_hat, guard = extrapolate(
        f, f_start, slope, zeta, f_step, delta, max_extrapolations, test_at_trial=test_at_trial
    )
    return SearchResult(alpha, f_hat, f_start, f_step, guard)  # line 10


def extrapolate(
    f: Objective1D,
    f_start: float,
    slope: float,
    zeta: float,
    f_zeta: float,
    delta: float,
    max_extrapolations: int,
    *,
    test_at_trial: bool,
) -> tuple[float, float, bool]:
    """Lines 2 and 6 to 9: the last accepted alpha, its value, and whether the guard ended the loop."""
    alpha, f_j = zeta, f_zeta  # line 2
    for _ in range(max_extrapolations):
        trial = alpha / delta
        f_trial = f(trial)
        sufficient = f_start - slope * (trial if test_at_trial else alpha)
        if not f_trial <= min(sufficient, f_j):  # line 6
            return alpha, f_j, False
        alpha, f_j = trial, f_trial  # line 7
    return alpha, f_j, True
