"""COFF_IG, the current method of CMALight's authors: a trusting search, and a learning rate that may grow.

Line numbers are those of the listing in docs/understand/algorithm.md; the symbols are explained in epochs.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cmalight.rules import linesearch, paper
from cmalight.rules.epochs import Decision, Evaluations, InnerCycle, Known, first_known
from cmalight.rules.outcome import Outcome


@dataclass(frozen=True)
class CoffRule:
    """CMALight's exits, with another first test of the search, other moves after it, and another φ."""

    constants: paper.Constants
    delta: float
    max_extrapolations: int

    def init(self, f_0: float) -> Known:
        """Line 3."""
        return first_known(f_0)

    def decide(self, known: Known, inner: InnerCycle, ask: Evaluations) -> Decision:
        """Lines 6 to 18."""
        if not inner.is_finite:
            return paper.diverged(known, self.constants)
        decision = self._decide(known, inner, ask)
        return replace(decision, phi=min(inner.f_tilde, decision.phi, known.phi))  # line 18, in every branch

    def _decide(self, known: Known, inner: InnerCycle, ask: Evaluations) -> Decision:
        if paper.watchdog_accepts(inner, known, self.constants):  # line 6
            return Decision(Outcome.ACCEPTED, inner.zeta, 1.0, inner.f_tilde, None)  # line 7
        if paper.direction_is_small(inner, self.constants):  # line 8
            return paper.after_small_direction(  # line 10
                inner, known, self.constants, f_end=inner.f_tilde, f_end_is_exact=False
            )
        found = self._search(known, inner, ask)  # line 13
        f_next = found.f_hat if found.alpha > inner.zeta else None
        if not paper.gain_is_small(found, inner, self.constants):  # line 17: ζ^{k+1} = α̃
            return Decision(Outcome.SEARCH_SUCCEEDED, found.alpha, found.alpha / inner.zeta, found.f_hat, f_next)
        theta = self.constants.theta
        if found.alpha > 0:  # line 15, α = α̃
            return Decision(Outcome.SEARCH_SHORT, found.alpha, theta, found.f_hat, f_next)
        if inner.f_tilde <= known.f_0:  # line 15, α = ζ^k
            return Decision(Outcome.SEARCH_FAILED_KEPT, inner.zeta, theta, known.phi, None)
        # line 15, α = 0
        return Decision(Outcome.SEARCH_FAILED_REJECTED, 0.0, theta, known.phi, found.f_start)

    def _search(self, known: Known, inner: InnerCycle, ask: Evaluations) -> linesearch.SearchResult:
        """f̃ stands for f(w^k + ζ d), which is never evaluated."""
        f_start = ask.f_start()
        if not inner.f_tilde <= min(f_start, known.f_0):  # line 3 of the search
            return linesearch.SearchResult(0.0, f_start, f_start, None)
        arguments = paper.search_arguments(inner, self.constants, self.delta, self.max_extrapolations)
        alpha, f_hat, guard = linesearch.extrapolate(
            ask.f_at, f_start=f_start, f_zeta=inner.f_tilde, **arguments, test_at_trial=False
        )
        return linesearch.SearchResult(alpha, f_hat, f_start, None, guard)
