"""Epochs of any optimizer, with a proof: keep what lowers f, otherwise take one plain gradient epoch.

The listing is in docs/understand/algorithm.md, the theorem in docs/understand/any-base.md. All values of f are true,
and f(w^k) never rises. The symbols are those of paper.py; eta is η, the step size of the plain epochs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cmalight.rules.baselines import MonotoneRule
from cmalight.rules.decision import Decision, Values
from cmalight.rules.outcome import Outcome
from cmalight.rules.paper import InnerCycle, Known
from cmalight.rules.schedule import LEAST_SCALE

_CMA = MonotoneRule(theta=0.5, tau=1e-2, gamma=1e-2, delta=0.5, max_extrapolations=100)


@dataclass(frozen=True)
class CertifiedMemory:
    """What the rule remembers from one epoch to the next.

    Attributes:
        f: f(w^k), evaluated on all data.
        eta: η.
        scale: Factor of the base's learning rate, in (0, 1].
        batches: K, the number of batches in units of the first; not whole if the last batch is short.
        plain: Whether the next epoch takes plain gradient steps, because one of the base was undone.
        undone: Epochs undone in a row.
    """

    f: float
    eta: float
    scale: float
    batches: float
    plain: bool = False
    undone: int = 0


@dataclass(frozen=True)
class CertifiedRule:
    """Keep an epoch of the base that lowers f enough; otherwise undo it, and let a plain epoch decide about η.

    Attributes:
        eta: η⁰, the first learning rate of the plain epochs.
        plain: CMA's rule, which judges the plain epochs.
        shrink: Factor of the base's learning rate after an epoch that was undone.
        grow: The same after one that was kept, until the user's learning rate is reached.
    """

    eta: float = 0.5
    plain: MonotoneRule = _CMA
    shrink: float = 0.5
    grow: float = 1.2

    def init(self, f_0: float, batches: float) -> CertifiedMemory:
        """Start at f(w⁰); `batches` is K."""
        return CertifiedMemory(f_0, self.eta, 1.0, batches)

    def bound(self, memory: CertifiedMemory) -> float:
        """The highest f at which an epoch of the base is kept: f(w^k) − γη/K."""
        return memory.f - self.plain.gamma * memory.eta / memory.batches

    def decide(self, memory: CertifiedMemory, seen: InnerCycle, ask: Values) -> Decision[CertifiedMemory]:
        """Keep, move or undo an epoch.

        Args:
            memory: What `init` or the last decision gave.
            seen: Where the epoch led, with ζ = η; its f̃ is infinite if something is not finite, and means nothing
                otherwise.
            ask: For values of f along d.
        """
        if memory.plain:
            return self._plain(memory, seen, ask)
        f_end = ask.f_at(seen.zeta) if seen.is_finite else math.inf
        bound = self.bound(memory)
        if f_end <= bound:
            # Without growth a base that once took too long steps would creep for ever, and never be undone again.
            scale = min(1.0, self.grow * memory.scale)
            return Decision(Outcome.KEPT, seen.zeta, replace(memory, f=f_end, scale=scale, undone=0), bound=bound)
        scale = max(LEAST_SCALE, self.shrink * memory.scale)
        outcome = Outcome.UNDONE if math.isfinite(f_end) else Outcome.DIVERGED
        return Decision(outcome, 0.0, replace(memory, scale=scale, plain=True, undone=memory.undone + 1), bound=bound)

    def _plain(self, memory: CertifiedMemory, seen: InnerCycle, ask: Values) -> Decision[CertifiedMemory]:
        """With f(w^k) in the place of f(w⁰), so that nothing that lies higher is kept."""
        found = self.plain.decide(Known(memory.f, memory.f, memory.f), seen, ask)
        undone = 0 if found.outcome.keeps else memory.undone + 1
        after = replace(memory, f=found.memory.phi, eta=memory.eta * found.lr_factor, plain=False, undone=undone)
        return Decision(found.outcome, found.alpha, after, bound=self.bound(memory))
