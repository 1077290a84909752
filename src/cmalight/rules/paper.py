"""CMALight, CMA and IG as decisions on plain floats: what an epoch's figures lead to.

The line numbers in the comments are those of the listing in docs/algorithm.md. Symbols:

    zeta            ζ^k, the step size of the epoch: the largest `lr` of the parameter groups
    f_tilde         f̃, the mean of the losses the epoch saw, each at the weights of its moment
    direction_norm  ‖d‖ with d = (w̃ − w^k)/ζ, in the paper's sum units
    batches         K = N/n̄, the (fractional) number of batches
    f_0             f(w⁰)
    phi             φ^k, the value an epoch has to beat
    alpha           α, how far to go along d: w^{k+1} = w^k + α d

Function values are means per sample, so a decrease the paper states for the sum f is divided by K.
Every test is written so that NaN fails it; callers turn a non-finite function value into +inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol


class Outcome(Enum):
    """How an epoch ended: one member per exit of the listing."""

    ACCEPTED = (7, "accepted: the loss fell enough")
    SMALL_DIRECTION_KEPT = (10, "direction small: point kept, step size shrunk")
    SMALL_DIRECTION_REJECTED = (10, "direction small: epoch undone, step size shrunk")
    SEARCH_SHORT = (15, "line search found a small gain: moved, step size shrunk")
    SEARCH_FAILED_KEPT = (15, "line search found no gain: point kept, step size shrunk")
    SEARCH_FAILED_REJECTED = (15, "line search found no gain: epoch undone, step size shrunk")
    REJECTED_EARLY = (15, "rejected before its end: epoch undone, step size shrunk")
    SEARCH_SUCCEEDED = (17, "line search found a better point: moved")
    SEARCH_REJECTED = (17, "line search ended above the starting loss: epoch undone, step size shrunk")
    DIVERGED = (5, "not finite: epoch undone, step size shrunk")
    NO_STEP = (5, "no step was taken: nothing to judge")
    UNCONTROLLED = (5, "taken as it came, step size decayed")
    # The tolerant watchdog's (docs/controlled.md).
    NEW_BEST = (35, "accepted: lowest loss so far, step size grown")
    STAGNATED = (36, "accepted: no lower loss for some epochs, step size shrunk")
    TOLERATED = (37, "accepted: not the lowest loss, but close to it")
    CERTIFIED = (39, "accepted: the true loss fell, though the epoch's own did not")
    GROWTH_UNDONE = (42, "larger step size did harm: epoch undone, step size as before")
    REFUSED = (43, "loss too high: epoch undone, step size shrunk")

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} (line {self.line})"


@dataclass(frozen=True)
class Constants:
    """θ, τ, γ of the listing."""

    theta: float
    tau: float
    gamma: float


@dataclass(frozen=True)
class InnerCycle:
    """What the epoch of line 5 gave."""

    zeta: float
    f_tilde: float
    direction_norm: float
    batches: float

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.f_tilde) and math.isfinite(self.direction_norm)


@dataclass(frozen=True)
class Known:
    """What was known before the epoch; `f_current` is f(w^k) where it is known exactly."""

    f_0: float
    phi: float
    f_current: float | None


class Search(Protocol):
    """What a line search reports (see linesearch.SearchResult)."""

    @property
    def alpha(self) -> float: ...
    @property
    def f_hat(self) -> float: ...
    @property
    def f_start(self) -> float: ...
    @property
    def f_step(self) -> float | None: ...
    @property
    def ended_by_guard(self) -> bool: ...


@dataclass(frozen=True)
class Decision:
    """Where to go: w^{k+1} = w^k + α d, ζ^{k+1} = zeta_factor ζ^k, φ^{k+1} = phi."""

    outcome: Outcome
    alpha: float
    zeta_factor: float
    phi: float
    f_next: float | None  # f(w^{k+1}) where it is known exactly


def cmalight(
    inner: InnerCycle, known: Known, constants: Constants, *, certified: bool, search: Callable[[], Search]
) -> Decision:
    """Lines 6 to 18; `search` runs line 13 and is called only when the listing gets there."""
    if not inner.is_finite:
        return diverged(known, constants)
    if watchdog_accepts(inner, known, constants):  # line 6
        return Decision(Outcome.ACCEPTED, inner.zeta, 1.0, phi=inner.f_tilde, f_next=None)  # line 7
    if direction_is_small(inner, constants):  # line 8
        return after_small_direction(inner, known, constants, f_end=inner.f_tilde, f_end_is_exact=False)
    found = search()  # line 13
    if certified:
        return after_certified_search(found, inner, known, constants)
    return after_light_search(found, inner, known, constants)


def cma(
    inner: InnerCycle,
    known: Known,
    constants: Constants,
    *,
    f_start: float,
    f_end: float,
    search: Callable[[], Search],
) -> Decision:
    """The monotone baseline: the same exits, decided by the true f(w̃) = `f_end` against f(w^k) = `f_start`."""
    if f_end <= f_start - constants.gamma * inner.zeta / inner.batches:
        return Decision(Outcome.ACCEPTED, inner.zeta, 1.0, phi=f_end, f_next=f_end)
    if direction_is_small(inner, constants):
        decision = after_small_direction(inner, known, constants, f_end=f_end, f_end_is_exact=True)
    else:
        decision = _after_search(search(), inner, known, constants, f_end=f_end)
    # CMA compares with f(w^k) itself, so that is what its φ carries.
    return replace(decision, phi=f_start if decision.f_next is None else decision.f_next)


def ig(inner: InnerCycle, known: Known, *, decay: float) -> Decision:
    """The plain incremental gradient method: every epoch stands, ζ^{k+1} = (1 − ε) ζ^k."""
    phi = min(known.phi, inner.f_tilde)
    return Decision(Outcome.UNCONTROLLED, inner.zeta, 1.0 - decay, phi=phi, f_next=None)


def watchdog_accepts(inner: InnerCycle, known: Known, constants: Constants) -> bool:
    """Line 6: f̃ ≤ min{φ^k − γ ζ^k, f(w⁰)}."""
    return inner.f_tilde <= min(known.phi - constants.gamma * inner.zeta / inner.batches, known.f_0)


def direction_is_small(inner: InnerCycle, constants: Constants) -> bool:
    """Line 8: ‖d‖ ≤ τ ζ^k."""
    return inner.direction_norm <= constants.tau * inner.zeta


def gain_is_small(found: Search, inner: InnerCycle, constants: Constants) -> bool:
    """Line 14: α̃ ‖d‖² ≤ τ ζ^k; a search that only the guard ended does not count as small."""
    if found.ended_by_guard:
        return False
    # α̃ = 0 is asked for by itself because 0 · ‖d‖² is NaN where ‖d‖² overflows.
    return found.alpha == 0 or found.alpha * inner.direction_norm * inner.direction_norm <= constants.tau * inner.zeta


def after_small_direction(
    inner: InnerCycle, known: Known, constants: Constants, *, f_end: float, f_end_is_exact: bool
) -> Decision:
    """Lines 10 and 11: shrink ζ, and keep w̃ if it is not above f(w⁰)."""
    if f_end <= known.f_0:  # line 10, α = ζ^k; line 11, φ stays
        f_next = f_end if f_end_is_exact else None
        return Decision(Outcome.SMALL_DIRECTION_KEPT, inner.zeta, constants.theta, known.phi, f_next)
    # line 10, α = 0; line 11, φ stays
    return Decision(Outcome.SMALL_DIRECTION_REJECTED, 0.0, constants.theta, known.phi, known.f_current)


def after_light_search(found: Search, inner: InnerCycle, known: Known, constants: Constants) -> Decision:
    """Lines 14 to 18."""
    return _after_search(found, inner, known, constants, f_end=inner.f_tilde)


def after_certified_search(found: Search, inner: InnerCycle, known: Known, constants: Constants) -> Decision:
    """Lines 14 to 18 where α̃ > 0 is a certified decrease, which the level-set test must not undo."""
    if not found.alpha > 0:
        return _after_search(found, inner, known, constants, f_end=inner.f_tilde)
    phi = phi_after_search(found, inner.f_tilde, known)
    if gain_is_small(found, inner, constants):  # line 14
        return Decision(Outcome.SEARCH_SHORT, found.alpha, constants.theta, phi, found.f_hat)  # line 15, α = α̃
    return Decision(Outcome.SEARCH_SUCCEEDED, found.alpha, 1.0, phi, found.f_hat)  # line 17, α = α̃


def phi_after_search(found: Search, f_end: float, known: Known) -> float:
    """Line 18: φ^{k+1} = min{f̂, f̃, φ^k}."""
    return min(found.f_hat, f_end, known.phi)


def _after_search(found: Search, inner: InnerCycle, known: Known, constants: Constants, *, f_end: float) -> Decision:
    phi = phi_after_search(found, f_end, known)  # line 18
    below_start = found.f_hat <= known.f_0
    if gain_is_small(found, inner, constants):  # line 14
        if found.alpha > 0 and below_start:  # line 15, α = α̃
            return Decision(Outcome.SEARCH_SHORT, found.alpha, constants.theta, phi, found.f_hat)
        if found.alpha == 0 and f_end <= known.f_0:  # line 15, α = ζ^k
            return Decision(Outcome.SEARCH_FAILED_KEPT, inner.zeta, constants.theta, phi, found.f_step)
        # line 15, α = 0
        return Decision(Outcome.SEARCH_FAILED_REJECTED, 0.0, constants.theta, phi, found.f_start)
    if below_start:  # line 17, α = α̃
        return Decision(Outcome.SEARCH_SUCCEEDED, found.alpha, 1.0, phi, found.f_hat)
    # line 17, α = 0: ζ shrinks, or a fixed order would repeat the same epoch forever
    return Decision(Outcome.SEARCH_REJECTED, 0.0, constants.theta, phi, found.f_start)


def diverged(known: Known, constants: Constants) -> Decision:
    """An epoch that is not finite: back to w^k with a smaller step, φ as it was."""
    return Decision(Outcome.DIVERGED, 0.0, constants.theta, known.phi, known.f_current)


def no_step(known: Known) -> Decision:
    """An epoch in which every step was skipped (GradScaler does that): nothing is concluded from it."""
    return Decision(Outcome.NO_STEP, 0.0, 1.0, known.phi, known.f_current)


def rejected_early(f_current: float, known: Known, constants: Constants) -> Decision:
    """Line 15 with α̃ = 0 and f̃ > f(w⁰), known before the epoch is over; then line 18 gives min{f(w^k), φ^k}."""
    return Decision(Outcome.REJECTED_EARLY, 0.0, constants.theta, min(f_current, known.phi), f_current)


def has_stalled(*, zeta: float, zeta_0: float, rounding: float, epochs_still: int, patience: int) -> bool:
    """Whether ζ has shrunk below rounding, or the weights have not moved for `patience` epochs."""
    return zeta < rounding * min(zeta_0, 1.0) or epochs_still >= patience
