"""Epochs of any optimizer, with a proof: keep what lowers f, otherwise take one plain gradient epoch.

The listing is in docs/understand/algorithm.md, the theorem in docs/understand/theory.md. All values of f are true ones,
and f(w^k) never rises. The symbols are those of epochs.py; eta is η, the step size of the plain epochs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cmalight.rules.baselines import MonotoneRule
from cmalight.rules.epochs import Decision, InnerCycle, Known, Values
from cmalight.rules.outcome import Outcome
from cmalight.rules.paper import Constants
from cmalight.rules.watchdog import Watchdog

_SCHEDULE = Watchdog()
_LEAST_SCALE = 1e-30  # keeps the scale a normal number in single precision


@dataclass(frozen=True)
class CertifiedMemory:
    """What the rule remembers from one window to the next.

    Attributes:
        f: f(w^k), evaluated on all data.
        eta: η.
        scale: Factor of the base's learning rate, in (0, 1].
        epoch: Steps of an epoch.
        batches: K, the number of batches in units of the first; not whole where the last batch is short.
        window: Steps of the next window.
        due: Whether a base epoch was undone since the last plain one.
    """

    f: float
    eta: float
    scale: float
    epoch: int
    batches: float
    window: int
    due: bool = False

    @property
    def plain(self) -> bool:
        """Whether the steps of the next window are plain gradient steps; only a whole epoch of them says anything."""
        return self.due and self.window == self.epoch


@dataclass(frozen=True)
class CertifiedRule:
    """Keep an epoch of the base that lowers f enough; otherwise undo it, and let a plain epoch decide about η.

    Attributes:
        eta: η⁰, the first learning rate of the plain epochs.
        theta: θ, the factor by which η shrinks.
        tau: τ, below which a direction or a gain of a plain epoch counts as small.
        gamma: γ, the share of the predicted decrease that counts as sufficient.
        delta: δ; the line search of a plain epoch tries alpha/δ after alpha.
        max_extrapolations: How often one line search may extend its step.
        shrink: Factor of the base's learning rate after an epoch that was undone.
        grow: The same after one that was kept, until the user's learning rate is reached.
    """

    eta: float = 0.5
    theta: float = 0.5
    tau: float = 1e-2
    gamma: float = 1e-2
    delta: float = 0.5
    max_extrapolations: int = 100
    shrink: float = 0.5
    grow: float = 1.2

    def init(self, f_0: float, *, epoch: int, batches: float, position: int = 0) -> CertifiedMemory:
        """Start at f(w⁰).

        Args:
            f_0: f(w⁰).
            epoch: Steps of an epoch.
            batches: K.
            position: Steps of the epoch that are over.

        Raises:
            ValueError: If f(w⁰) is not finite.
        """
        if not math.isfinite(f_0):
            raise ValueError(f"The objective is {f_0} at the start: check data, loss and initial weights")
        return CertifiedMemory(f_0, self.eta, 1.0, epoch, batches, window=epoch - position % epoch)

    def bound(self, memory: CertifiedMemory) -> float:
        """The highest f at which an epoch of the base is kept: f(w^k) − γη/K."""
        return memory.f - self.gamma * memory.eta / memory.batches

    def factor(self, progress: float | None, steps: int) -> float:
        """The watchdog's schedule for the next step of the base; plain steps take η.

        Args:
            progress: As in `Watchdog.factor`.
            steps: As in `Watchdog.factor`.
        """
        return _SCHEDULE.factor(progress, steps)

    def decide(
        self, memory: CertifiedMemory, end: InnerCycle, ask: Values, steps: int
    ) -> tuple[Decision, CertifiedMemory]:
        """Keep, move or undo a window.

        Args:
            memory: What `init` or the last call gave.
            end: Where the window led, with ζ = η; its f̃ is infinite where something is not finite, and means nothing
                otherwise.
            ask: For values of f along d.
            steps: Steps of the window; fewer than `memory.window` where it was closed early.
        """
        if memory.plain and steps == memory.epoch:
            decision = self._plain(memory, end, ask)
            after = replace(memory, eta=memory.eta * decision.zeta_factor, due=False)
        else:
            decision = self._base(memory, end, ask)
            factor = 1.0 if memory.plain else decision.zeta_factor
            scale = min(1.0, max(_LEAST_SCALE, factor * memory.scale))
            after = replace(memory, scale=scale, due=not decision.outcome.keeps)
        return decision, replace(after, f=decision.phi, window=memory.window - steps or memory.epoch)

    def _base(self, memory: CertifiedMemory, end: InnerCycle, ask: Values) -> Decision:
        f_end = ask.f_at(end.zeta) if end.is_finite else math.inf
        if f_end <= self.bound(memory):
            # Without growth a base that once took too long steps would creep for ever, and never be undone again.
            return Decision(Outcome.KEPT, end.zeta, self.grow, f_end, f_end)
        outcome = Outcome.UNDONE if math.isfinite(f_end) else Outcome.DIVERGED
        return Decision(outcome, 0.0, self.shrink, memory.f, memory.f)

    def _plain(self, memory: CertifiedMemory, end: InnerCycle, ask: Values) -> Decision:
        """CMA's rule, with f(w^k) in the place of f(w⁰): nothing that lies higher is kept."""
        constants = Constants(self.theta, self.tau, self.gamma)
        rule = MonotoneRule(constants, self.delta, self.max_extrapolations)
        return rule.decide(Known(memory.f, memory.f, memory.f), end, ask)
