"""The baselines: CMA, which judges by the true objective, and IG, which does not judge at all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cmalight.rules import linesearch, paper
from cmalight.rules.decision import Decision, Values
from cmalight.rules.epochs import InnerCycle, Known, first_known
from cmalight.rules.outcome import Outcome


@dataclass(frozen=True)
class MonotoneRule:
    """CMA: the exits of the paper's listing, decided by f(w̃) against f(w^k)."""

    constants: paper.Constants
    delta: float
    max_extrapolations: int

    def init(self, f_0: float) -> Known:
        """f(w⁰) is the first value to beat."""
        return first_known(f_0)

    def decide(self, known: Known, inner: InnerCycle, ask: Values) -> Decision[Known]:
        """One full evaluation, f(w̃), and those of a search."""
        if not inner.is_finite:
            return paper.diverged(known, self.constants)
        f_end = ask.f_at(inner.zeta)
        f_start = ask.f_start()
        arguments = paper.search_arguments(inner, self.constants, self.delta, self.max_extrapolations)
        known = replace(known, f_current=f_start)
        if f_end <= f_start - self.constants.gamma * inner.zeta / inner.batches:
            return Decision(Outcome.ACCEPTED, inner.zeta, known.then(f_end, f_end))
        if paper.direction_is_small(inner, self.constants):
            decision = paper.after_small_direction(inner, known, self.constants, f_end=f_end)
        else:
            found = linesearch.edfl(ask.f_at, f_start=f_start, f_end=f_end, **arguments)
            decision = paper.after_search(found, inner, known, self.constants, f_end=f_end)
        # CMA compares with f(w^k) itself, so its φ carries that value.
        after = decision.memory
        return replace(decision, memory=replace(after, phi=f_start if after.f_current is None else after.f_current))


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
        """f(w⁰), or NaN where there is no objective."""
        return Known(f_0, f_0, None)

    def decide(self, known: Known, inner: InnerCycle, ask: Values) -> Decision[Known]:
        """φ is the least of f(w⁰) and the epochs' losses; NaN where there is no objective."""
        phi = min(known.phi, inner.f_tilde) if math.isfinite(known.f_0) else math.nan
        factor = 1.0 - self.decay * (inner.zeta if self.relative else 1.0)
        return Decision(Outcome.UNCONTROLLED, inner.zeta, known.then(phi, None), factor)
