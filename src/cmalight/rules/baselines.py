"""The methods to compare with: CMA, which judges by the true objective, COFF, and IG, which does not judge at all.

Line numbers are those of the listing in docs/understand/algorithm.md; the symbols are explained in paper.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cmalight.rules import linesearch
from cmalight.rules.decision import Decision, Values
from cmalight.rules.linesearch import SearchResult
from cmalight.rules.outcome import Outcome
from cmalight.rules.paper import InnerCycle, Known, ListingRule


@dataclass(frozen=True)
class MonotoneRule(ListingRule):
    """CMA: the exits of the paper's listing, decided by f(w̃) against f(w^k)."""

    def decide(self, known: Known, inner: InnerCycle, ask: Values) -> Decision[Known]:
        """One full evaluation, f(w̃), and those of a search."""
        if not inner.is_finite:
            return self.diverged(known)
        f_end = ask.f_at(inner.zeta)
        f_start = ask.f_start()
        known = replace(known, f_current=f_start)
        if f_end <= f_start - self.gamma * inner.zeta / inner.batches:
            return Decision(Outcome.ACCEPTED, inner.zeta, known.then(f_end, f_end))
        if self.direction_is_small(inner):
            decision = self.after_small_direction(inner, known, f_end)
        else:
            found = linesearch.edfl(ask.f_at, f_start=f_start, f_end=f_end, **self.search_settings(inner))
            decision = self.after_search(found, inner, known, f_end)
        # CMA compares with f(w^k) itself, so its φ carries that value.
        after = decision.memory
        return replace(decision, memory=replace(after, phi=f_start if after.f_current is None else after.f_current))


@dataclass(frozen=True)
class CoffRule(ListingRule):
    """COFF_IG, the current method of CMALight's authors: a trusting search, and a learning rate that may grow.

    CMALight's exits, with another first test of the search, other moves after it, and another φ.
    """

    def decide(self, known: Known, inner: InnerCycle, ask: Values) -> Decision[Known]:
        """Lines 6 to 18."""
        if not inner.is_finite:
            return self.diverged(known)
        decision = self._decide(known, inner, ask)
        phi = min(inner.f_tilde, decision.memory.phi, known.phi)  # line 18, in every branch
        return replace(decision, memory=replace(decision.memory, phi=phi))

    def _decide(self, known: Known, inner: InnerCycle, ask: Values) -> Decision[Known]:
        if self.estimate_is_low(inner, known):  # line 6
            return Decision(Outcome.ACCEPTED, inner.zeta, known.then(inner.f_tilde, None))  # line 7
        if self.direction_is_small(inner):  # line 8
            return self.after_small_direction(inner, known)  # line 10
        found = self._search(known, inner, ask)  # line 13
        f_next = found.f_hat if found.alpha > inner.zeta else None
        if not self.gain_is_small(found, inner):  # line 17: ζ^{k+1} = α̃
            after = known.then(found.f_hat, f_next)
            return Decision(Outcome.SEARCH_SUCCEEDED, found.alpha, after, found.alpha / inner.zeta)
        if found.alpha > 0:  # line 15, α = α̃
            return Decision(Outcome.SEARCH_SHORT, found.alpha, known.then(found.f_hat, f_next), self.theta)
        if inner.f_tilde <= known.ceiling:  # line 15, α = ζ^k
            return Decision(Outcome.SEARCH_FAILED_KEPT, inner.zeta, known.then(known.phi, None), self.theta)
        # line 15, α = 0
        return Decision(Outcome.SEARCH_FAILED_REJECTED, 0.0, known.then(known.phi, found.f_start), self.theta)

    def _search(self, known: Known, inner: InnerCycle, ask: Values) -> SearchResult:
        """f̃ stands for f(w^k + ζ d), which is never evaluated."""
        f_start = ask.f_start()
        if not inner.f_tilde <= min(f_start, known.ceiling):  # line 3 of the search
            return SearchResult(0.0, f_start, f_start, None)
        return linesearch.extrapolate(ask.f_at, f_start, inner.f_tilde, **self.search_settings(inner))


@dataclass(frozen=True)
class DecayRule:
    """IG: every epoch stands, and ζ decays.

    Attributes:
        decay: ε.
        relative: False as printed, ζ^{k+1} = (1 − ε) ζ^k; True as in the authors' public code,
            ζ^{k+1} = (1 − ε ζ^k) ζ^k.
    """

    decay: float
    relative: bool = False

    def init(self, f_0: float) -> Known:
        """f(w⁰), or NaN if there is no objective."""
        return Known(f_0, f_0, None)

    def decide(self, known: Known, inner: InnerCycle, ask: Values) -> Decision[Known]:
        """φ is the least of f(w⁰) and the epochs' losses; NaN if there is no objective."""
        phi = min(known.phi, inner.f_tilde) if math.isfinite(known.f_0) else math.nan
        factor = 1.0 - self.decay * (inner.zeta if self.relative else 1.0)
        return Decision(Outcome.UNCONTROLLED, inner.zeta, known.then(phi, None), factor)
