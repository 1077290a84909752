"""The baselines: CMA, which judges by the true objective, and IG, which does not judge at all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cmalight.rules import linesearch, paper
from cmalight.rules.outcome import Outcome
from cmalight.rules.rule import Decision, Evaluations, InnerCycle, Known, NoMemory, Rule


@dataclass(frozen=True)
class MonotoneRule(Rule):
    """CMA: the exits of the paper's listing, decided by f(w̃) against f(w^k).

    Attributes:
        constants: θ, τ, γ.
        delta: δ of the line search.
        max_extrapolations: How often one search may extend its step.
    """

    constants: paper.Constants
    delta: float
    max_extrapolations: int

    def decide(self, inner: InnerCycle, known: Known, memory: NoMemory, ask: Evaluations) -> tuple[Decision, NoMemory]:
        """One full evaluation, f(w̃), and those of a search."""
        if not inner.is_finite:
            return paper.diverged(known, self.constants), memory
        f_end = ask.f_at(inner.zeta)
        f_start = ask.f_start()
        arguments = paper.search_arguments(inner, self.constants, self.delta, self.max_extrapolations)
        known = replace(known, f_current=f_start)
        if f_end <= f_start - self.constants.gamma * inner.zeta / inner.batches:
            return Decision(Outcome.ACCEPTED, inner.zeta, 1.0, phi=f_end, f_next=f_end), memory
        if paper.direction_is_small(inner, self.constants):
            decision = paper.after_small_direction(inner, known, self.constants, f_end=f_end, f_end_is_exact=True)
        else:
            found = linesearch.edfl(ask.f_at, f_start=f_start, f_end=f_end, **arguments)
            decision = paper.after_search(found, inner, known, self.constants, f_end=f_end)
        # CMA compares with f(w^k) itself, so that is what its φ carries.
        return replace(decision, phi=f_start if decision.f_next is None else decision.f_next), memory


@dataclass(frozen=True)
class DecayRule(Rule):
    """IG: every epoch stands, ζ^{k+1} = (1 − ε) ζ^k.

    Attributes:
        decay: ε.
    """

    decay: float

    def decide(self, inner: InnerCycle, known: Known, memory: NoMemory, ask: Evaluations) -> tuple[Decision, NoMemory]:
        """φ is the least of f(w⁰) and the epochs' losses; NaN where nobody gave an objective."""
        phi = min(known.phi, inner.f_tilde) if math.isfinite(known.f_0) else math.nan
        return Decision(Outcome.UNCONTROLLED, inner.zeta, 1.0 - self.decay, phi=phi, f_next=None), memory
