"""CMALight's own rule, lines 6 to 22 of docs/understand/algorithm.md, with the light or the certified search.

The line numbers in the comments are those of the listing; the symbols are explained in epochs.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypedDict

from cmalight.rules import linesearch
from cmalight.rules.decision import Decision, Values
from cmalight.rules.epochs import InnerCycle, Known, first_known
from cmalight.rules.outcome import Outcome


@dataclass(frozen=True)
class Constants:
    """θ, τ, γ of the listing."""

    theta: float
    tau: float
    gamma: float


class SearchArguments(TypedDict):
    """What every line search takes beside f."""

    zeta: float
    slope: float
    delta: float
    max_extrapolations: int


class Search(Protocol):
    """What a line search reports (see linesearch.SearchResult)."""

    @property
    def alpha(self) -> float:
        """α̃, 0 where no sufficient decrease was found."""

    @property
    def f_hat(self) -> float:
        """f̂ = f(w^k + α̃ d)."""

    @property
    def f_start(self) -> float:
        """f(w^k)."""

    @property
    def f_step(self) -> float | None:
        """f(w^k + ζ d), where it was evaluated."""

    @property
    def ended_by_guard(self) -> bool:
        """Whether the guard on extrapolations ended the search."""


@dataclass(frozen=True)
class PaperRule:
    """Lines 6 to 22.

    Attributes:
        constants: θ, τ, γ.
        delta: δ of the line search.
        max_extrapolations: How often one search may extend its step.
        certified: Which of the two searches; the certified one also confirms what it keeps for f̃ alone (line 21).
    """

    constants: Constants
    delta: float
    max_extrapolations: int
    certified: bool

    def init(self, f_0: float) -> Known:
        """Line 3."""
        return first_known(f_0)

    def decide(self, known: Known, inner: InnerCycle, ask: Values) -> Decision[Known]:
        """Lines 6 to 22."""

        def search() -> linesearch.SearchResult:
            nonlocal known
            f_start = ask.f_start()
            known = replace(known, f_current=f_start)  # line 22 goes back to w^k, too
            arguments = search_arguments(inner, self.constants, self.delta, self.max_extrapolations)
            if self.certified:
                return linesearch.edfl_certified(ask.f_at, f_start=f_start, **arguments)
            return linesearch.edfl_light(ask.f_at, f_start=f_start, f_tilde=inner.f_tilde, **arguments)

        decision = cmalight(inner, known, self.constants, certified=self.certified, search=search)
        return confirmed(decision, inner, known, self.constants, ask, certified=self.certified)


def search_arguments(inner: InnerCycle, constants: Constants, delta: float, max_extrapolations: int) -> SearchArguments:
    """What every line search is told of the epoch."""
    return {
        "zeta": inner.zeta,
        "slope": constants.gamma * inner.direction_norm * inner.direction_norm / inner.batches,
        "delta": delta,
        "max_extrapolations": max_extrapolations,
    }


def cmalight(
    inner: InnerCycle, known: Known, constants: Constants, *, certified: bool, search: Callable[[], Search]
) -> Decision[Known]:
    """Lines 6 to 18; `search` runs line 13 and is called only when the listing gets there."""
    if not inner.is_finite:
        return diverged(known, constants)
    if watchdog_accepts(inner, known, constants):  # line 6
        return Decision(Outcome.ACCEPTED, inner.zeta, known.then(inner.f_tilde, None))  # line 7
    if direction_is_small(inner, constants):  # line 8
        return after_small_direction(inner, known, constants)
    found = search()  # line 13
    if certified:
        return after_certified_search(found, inner, known, constants)
    return after_search(found, inner, known, constants)


def watchdog_accepts(inner: InnerCycle, known: Known, constants: Constants) -> bool:
    """Line 6: f̃ ≤ min{φ^k − γ ζ^k, f(w⁰)}."""
    return inner.f_tilde <= min(known.phi - constants.gamma * inner.zeta / inner.batches, known.ceiling)


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
    inner: InnerCycle, known: Known, constants: Constants, *, f_end: float | None = None
) -> Decision[Known]:
    """Lines 10 and 11: shrink ζ, and keep w̃ if it is not above f(w⁰), by f(w̃) = `f_end` or, without it, by f̃."""
    keeps = inner.f_tilde <= known.ceiling if f_end is None else f_end <= known.f_0
    if keeps:  # line 10, α = ζ^k; line 11, φ stays
        return Decision(Outcome.SMALL_DIRECTION_KEPT, inner.zeta, known.then(known.phi, f_end), constants.theta)
    return Decision(Outcome.SMALL_DIRECTION_REJECTED, 0.0, known, constants.theta)  # line 10, α = 0; line 11, φ stays


def after_certified_search(found: Search, inner: InnerCycle, known: Known, constants: Constants) -> Decision[Known]:
    """Lines 14 to 18 if α̃ > 0 is a certified decrease, which the level-set test must not undo."""
    if not found.alpha > 0:
        return after_search(found, inner, known, constants)
    after = known.then(min(found.f_hat, inner.f_tilde, known.phi), found.f_hat)  # line 18
    if gain_is_small(found, inner, constants):  # line 14
        return Decision(Outcome.SEARCH_SHORT, found.alpha, after, constants.theta)  # line 15, α = α̃
    return Decision(Outcome.SEARCH_SUCCEEDED, found.alpha, after)  # line 17, α = α̃


def after_search(
    found: Search, inner: InnerCycle, known: Known, constants: Constants, *, f_end: float | None = None
) -> Decision[Known]:
    """Lines 14 to 18; line 15 tests w̃ by f(w̃) = `f_end` or, without it, by f̃."""
    end_is_low = inner.f_tilde <= known.ceiling if f_end is None else f_end <= known.f_0
    phi = min(found.f_hat, inner.f_tilde if f_end is None else f_end, known.phi)  # line 18
    below_start = found.f_hat <= known.f_0
    if gain_is_small(found, inner, constants):  # line 14
        if found.alpha > 0 and below_start:  # line 15, α = α̃
            return Decision(Outcome.SEARCH_SHORT, found.alpha, known.then(phi, found.f_hat), constants.theta)
        if found.alpha == 0 and end_is_low:  # line 15, α = ζ^k
            return Decision(Outcome.SEARCH_FAILED_KEPT, inner.zeta, known.then(phi, found.f_step), constants.theta)
        # line 15, α = 0
        return Decision(Outcome.SEARCH_FAILED_REJECTED, 0.0, known.then(phi, found.f_start), constants.theta)
    if below_start:  # line 17, α = α̃
        return Decision(Outcome.SEARCH_SUCCEEDED, found.alpha, known.then(phi, found.f_hat))
    # line 17, α = 0: ζ shrinks, or a fixed order would repeat the same epoch forever
    return Decision(Outcome.SEARCH_REJECTED, 0.0, known.then(phi, found.f_start), constants.theta)


def confirmed(
    decision: Decision[Known], inner: InnerCycle, known: Known, constants: Constants, ask: Values, *, certified: bool
) -> Decision[Known]:
    """Lines 21 and 22: a point that was kept because of f̃ alone must not lie above w⁰.

    f̃ sees no batch after the last step. The certified search therefore evaluates f there. So does the light one if the
    epoch is a single batch: then f̃ = f(w^k), which says nothing about w̃.
    """
    kept_by_estimate = decision.outcome in _KEPT_BY_ESTIMATE and decision.alpha == inner.zeta
    if not kept_by_estimate or not (certified or inner.batches <= 1.0):
        return decision
    f_end = decision.memory.f_current
    if f_end is None:
        f_end = ask.f_at(inner.zeta)
    if f_end <= known.f_0:  # line 21
        return replace(decision, memory=replace(decision.memory, f_current=f_end))
    return Decision(Outcome.UNCONFIRMED, 0.0, known, constants.theta)  # line 22


_KEPT_BY_ESTIMATE = (Outcome.ACCEPTED, Outcome.SMALL_DIRECTION_KEPT, Outcome.SEARCH_FAILED_KEPT)


def diverged(known: Known, constants: Constants) -> Decision[Known]:
    """An epoch that is not finite: back to w^k with a smaller step, φ as it was."""
    return Decision(Outcome.DIVERGED, 0.0, known, constants.theta)
