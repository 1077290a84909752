"""CMALight's own rule, lines 3 to 22 of docs/understand/algorithm.md, and what the rules for whole epochs share.

The line numbers in the comments are those of the listing. Symbols, here and in the other rules:

    zeta            ζ^k, the learning rate of the epoch: the largest `lr` of the parameter groups
    f_tilde         f̃, the mean of the losses of the epoch's batches, each at the weights before its step
    direction_norm  ‖d‖ with d = (w̃ − w^k)/ζ, in the paper's sum units
    batches         K = N/n̄, the (fractional) number of batches
    f_0             f(w⁰)
    phi             φ^k, the value an epoch has to beat
    alpha           α, how far to go along d: w^{k+1} = w^k + α d

Function values are means per sample, so a decrease that the paper states for the sum f is divided by K.
Every test is written so that NaN fails it; callers turn a non-finite function value into +inf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

from cmalight.rules import linesearch
from cmalight.rules.decision import Decision, Values
from cmalight.rules.linesearch import SearchResult
from cmalight.rules.outcome import Outcome

# Relative error of a mean of losses in single precision.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class InnerCycle:
    """What the steps of line 5 gave."""

    zeta: float
    f_tilde: float
    direction_norm: float
    batches: float

    @property
    def is_finite(self) -> bool:
        """Whether both the loss and the movement are finite."""
        return math.isfinite(self.f_tilde) and math.isfinite(self.direction_norm)


@dataclass(frozen=True)
class Known:
    """What is remembered between epochs; `f_current` is f(w^k) if it is known exactly."""

    f_0: float
    phi: float
    f_current: float | None

    @property
    def ceiling(self) -> float:
        """f(w⁰) for a comparison with f̃: the two are summed in different ways, so that their last bits mean nothing."""
        return self.f_0 + _ROUNDING * abs(self.f_0)

    def then(self, phi: float, f_current: float | None) -> Known:
        """What is known after an epoch: φ^{k+1}, and f(w^{k+1}) if it is known."""
        return Known(self.f_0, phi, f_current)


class EpochRule(Protocol):
    """A way to judge epochs on plain floats."""

    def init(self, f_0: float) -> Known:
        """What is known at w⁰."""

    def decide(self, known: Known, inner: InnerCycle, ask: Values) -> Decision[Known]:
        """What the steps of an epoch lead to."""


class NoStep:
    """For an epoch in which every step was skipped, as GradScaler does: nothing is concluded from it."""

    def decide(self, known: Known, inner: InnerCycle, ask: Values) -> Decision[Known]:
        """Nothing changes."""
        return Decision(Outcome.NO_STEP, 0.0, known)


@dataclass(frozen=True)
class ListingRule:
    """The tests and the exits of the listing, from which the rules of CMALight, CMA and COFF are put together.

    Attributes:
        theta: θ, the factor by which ζ shrinks.
        tau: τ, below which a direction or a gain counts as small.
        gamma: γ, the fraction of the predicted decrease that counts as sufficient.
        delta: δ of the line search.
        max_extrapolations: How often one search may extend its step.
    """

    theta: float
    tau: float
    gamma: float
    delta: float
    max_extrapolations: int

    def init(self, f_0: float) -> Known:
        """Line 3: φ⁰ = f(w⁰)."""
        return Known(f_0, f_0, f_0)

    def estimate_is_low(self, inner: InnerCycle, known: Known) -> bool:
        """Line 6: f̃ ≤ min{φ^k − γ ζ^k, f(w⁰)}."""
        return inner.f_tilde <= min(known.phi - self.gamma * inner.zeta / inner.batches, known.ceiling)

    def direction_is_small(self, inner: InnerCycle) -> bool:
        """Line 8: ‖d‖ ≤ τ ζ^k."""
        return inner.direction_norm <= self.tau * inner.zeta

    def gain_is_small(self, found: SearchResult, inner: InnerCycle) -> bool:
        """Line 14: α̃ ‖d‖² ≤ τ ζ^k; a search that only the guard ended does not count as small."""
        if found.ended_by_guard:
            return False
        # α̃ = 0 is asked for by itself because 0 · ‖d‖² is NaN if ‖d‖² overflows.
        return found.alpha == 0 or found.alpha * inner.direction_norm * inner.direction_norm <= self.tau * inner.zeta

    def search_settings(self, inner: InnerCycle) -> linesearch.Settings:
        """What every line search is told."""
        slope = self.gamma * inner.direction_norm * inner.direction_norm / inner.batches
        return {
            "zeta": inner.zeta,
            "slope": slope,
            "delta": self.delta,
            "max_extrapolations": self.max_extrapolations,
        }

    def diverged(self, known: Known) -> Decision[Known]:
        """An epoch that is not finite: back to w^k with a smaller step, φ as it was."""
        return Decision(Outcome.DIVERGED, 0.0, known, self.theta)

    def after_small_direction(self, inner: InnerCycle, known: Known, f_end: float | None = None) -> Decision[Known]:
        """Lines 10 and 11: shrink ζ, and keep w̃ if it is not above f(w⁰), by f(w̃) = `f_end` or, without it, by f̃."""
        keeps = inner.f_tilde <= known.ceiling if f_end is None else f_end <= known.f_0
        if keeps:  # line 10, α = ζ^k; line 11, φ stays
            return Decision(Outcome.SMALL_DIRECTION_KEPT, inner.zeta, known.then(known.phi, f_end), self.theta)
        return Decision(Outcome.SMALL_DIRECTION_REJECTED, 0.0, known, self.theta)  # line 10, α = 0; line 11, φ stays

    def after_search(
        self,
        found: SearchResult,
        inner: InnerCycle,
        known: Known,
        f_end: float | None = None,
        *,
        certified: bool = False,
    ) -> Decision[Known]:
        """Lines 14 to 18; line 15 tests w̃ by f(w̃) = `f_end` or, without it, by f̃.

        If α̃ > 0 is a certified decrease, the test against f(w⁰) must not undo it.
        """
        end_is_low = inner.f_tilde <= known.ceiling if f_end is None else f_end <= known.f_0
        phi = min(found.f_hat, inner.f_tilde if f_end is None else f_end, known.phi)  # line 18
        is_low = certified or found.f_hat <= known.f_0
        if self.gain_is_small(found, inner):  # line 14
            if found.alpha > 0 and is_low:  # line 15, α = α̃
                return Decision(Outcome.SEARCH_SHORT, found.alpha, known.then(phi, found.f_hat), self.theta)
            if found.alpha == 0 and end_is_low:  # line 15, α = ζ^k
                return Decision(Outcome.SEARCH_FAILED_KEPT, inner.zeta, known.then(phi, found.f_step), self.theta)
            # line 15, α = 0
            return Decision(Outcome.SEARCH_FAILED_REJECTED, 0.0, known.then(phi, found.f_start), self.theta)
        if is_low:  # line 17, α = α̃
            return Decision(Outcome.SEARCH_SUCCEEDED, found.alpha, known.then(phi, found.f_hat))
        # line 17, α = 0: ζ shrinks, or a fixed order would repeat the same epoch forever
        return Decision(Outcome.SEARCH_REJECTED, 0.0, known.then(phi, found.f_start), self.theta)


@dataclass(frozen=True)
class PaperRule(ListingRule):
    """Lines 6 to 22.

    Attributes:
        certified: Which of the two searches; the certified one also confirms what it keeps for f̃ alone (line 21).
    """

    certified: bool

    def decide(self, known: Known, inner: InnerCycle, ask: Values) -> Decision[Known]:
        """Lines 6 to 22."""
        if not inner.is_finite:
            return self.diverged(known)
        if self.estimate_is_low(inner, known):  # line 6
            decision = Decision(Outcome.ACCEPTED, inner.zeta, known.then(inner.f_tilde, None))  # line 7
        elif self.direction_is_small(inner):  # line 8
            decision = self.after_small_direction(inner, known)
        else:
            found = self.search(inner, ask)  # line 13
            known = replace(known, f_current=found.f_start)  # line 22 goes back to w^k, too
            decision = self.after_search(found, inner, known, certified=self.certified)
        return self._confirmed(decision, inner, known, ask)

    def search(self, inner: InnerCycle, ask: Values) -> SearchResult:
        """Line 13."""
        f_start, settings = ask.f_start(), self.search_settings(inner)
        if self.certified:
            return linesearch.edfl_certified(ask.f_at, f_start=f_start, **settings)
        return linesearch.edfl_light(ask.f_at, f_start=f_start, f_tilde=inner.f_tilde, **settings)

    def _confirmed(self, decision: Decision[Known], inner: InnerCycle, known: Known, ask: Values) -> Decision[Known]:
        """Lines 21 and 22: a point that was kept because of f̃ alone must not lie above w⁰.

        f̃ sees no batch after the last step. The certified search therefore evaluates f there. So does the light one if
        the epoch is a single batch: then f̃ = f(w^k), which says nothing about w̃.
        """
        kept_by_estimate = decision.outcome in _KEPT_BY_ESTIMATE and decision.alpha == inner.zeta
        if not kept_by_estimate or not (self.certified or inner.batches <= 1.0):
            return decision
        f_end = decision.memory.f_current
        if f_end is None:
            f_end = ask.f_at(inner.zeta)
        if f_end <= known.f_0:  # line 21
            return replace(decision, memory=replace(decision.memory, f_current=f_end))
        return Decision(Outcome.UNCONFIRMED, 0.0, known, self.theta)  # line 22


_KEPT_BY_ESTIMATE = (Outcome.ACCEPTED, Outcome.SMALL_DIRECTION_KEPT, Outcome.SEARCH_FAILED_KEPT)
