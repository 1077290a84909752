"""The tolerant rule: a control for steps that are better than a gradient step, which knows its budget.

The line numbers in the comments are those of the listing in docs/controlled.md. It judges windows: epochs, or parts of
long ones, by the mean loss f_S of a fixed sample of the data where they begin and where they end. Symbols beside those
of rule.py:

    f_0      f_S(w⁰)
    low      the least f_S at any end that was kept
    bought   f_S when the step size last grew; f_0 before it did
    raised   by which factor ζ grew just before this window, which is then the growth's probation
    wait     for how many windows the next growth that does harm bars another
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cmalight.rules.outcome import Outcome
from cmalight.rules.rule import Decision, Evaluations, InnerCycle, Known, Rule


@dataclass(frozen=True)
class Settings:
    """The constants of the rule.

    Attributes:
        growth: g, by which ζ grows; 1 never lets it.
        price: By which share f_S has to fall since the last growth to pay for the next.
        tolerance: c; what ends above c · low is undone.
        theta: θ, by which ζ shrinks then.
        cap: What ζ does not grow past.
        decay: The share of the budget over which ζ goes to zero, at its end.
        warmup: Over how many steps ζ rises to its height, at the start.
        window: After how many batches a long epoch is judged.
        patience: Without a budget: so many windows without a new low shrink ζ.
    """

    growth: float = 2.0
    price: float = 0.5
    tolerance: float = 3.0
    theta: float = 0.5
    cap: float = 0.1
    decay: float = 0.4
    warmup: int = 100
    window: int = 200
    patience: int = 8


@dataclass(frozen=True)
class Remembered:
    """What the rule remembers."""

    low: float = math.inf
    bought: float = math.inf
    raised: float = 1.0
    wait: int = 1
    due: int = 0
    windows_since_low: int = 0


@dataclass(frozen=True)
class TolerantRule(Rule):
    """Lines 31 to 38 of docs/controlled.md."""

    settings: Settings

    Memory = Remembered
    uses_a_sample = True
    judges_parts = True
    begins_with_a_pass = False

    def fresh(self, f_0: float) -> Remembered:
        """Nothing was bought yet."""
        return Remembered(low=f_0, bought=f_0)

    def factor(self, share: float | None, steps: int) -> float:
        """Line 32: a rise at the start, and a line to zero at the end of the budget."""
        rise = min(1.0, (steps + 1) / self.settings.warmup)
        return rise if share is None else rise * min(1.0, (1.0 - share) / self.settings.decay)

    def window(self, memory: Remembered, batches: int | None) -> int | None:  # noqa: ARG002
        """Line 33: an epoch, or equal parts of a long one."""
        longest = self.settings.window
        if batches is None:
            return longest
        return None if batches <= longest else math.ceil(batches / math.ceil(batches / longest))

    def after_outside_change(self, memory: Remembered, *, zeta: float) -> Remembered:  # noqa: ARG002
        """What somebody else set is not on a growth's probation."""
        return replace(memory, raised=1.0)

    def decide(
        self, inner: InnerCycle, known: Known, memory: Remembered, ask: Evaluations
    ) -> tuple[Decision, Remembered]:
        """Lines 34 to 38."""
        memory = replace(memory, due=memory.due - 1)
        f_after = ask.sample_after() if inner.is_finite else math.inf
        if not f_after <= self.highest(known, memory) or (memory.raised > 1.0 and not f_after <= ask.sample_before()):
            return self.undone(inner, known, memory)
        return self.kept(inner, memory, f_after)

    def highest(self, known: Known, memory: Remembered) -> float:
        """What may be kept: nothing above w⁰, and nothing far above the lowest."""
        return min(self.settings.tolerance * memory.low, known.f_0) if memory.low >= 0.0 else known.f_0

    def undone(self, inner: InnerCycle, known: Known, memory: Remembered) -> tuple[Decision, Remembered]:
        """Lines 34 and 35: back to w^k, in everything."""
        if memory.raised > 1.0:  # line 34
            outcome, factor = Outcome.GROWTH_UNDONE, 1.0 / memory.raised
            memory = replace(memory, raised=1.0, wait=2 * memory.wait, due=2 * memory.wait)
        else:  # line 35
            outcome, factor = Outcome.REFUSED, self.settings.theta
        if not inner.is_finite:
            outcome = Outcome.DIVERGED
        return Decision(outcome, 0.0, factor, known.phi, known.f_current), memory

    def kept(self, inner: InnerCycle, memory: Remembered, f_after: float) -> tuple[Decision, Remembered]:
        """Lines 36 to 38."""
        settings = self.settings
        is_low = f_after < memory.low
        memory = replace(
            memory,
            low=min(memory.low, f_after),
            raised=1.0,
            windows_since_low=0 if is_low else memory.windows_since_low + 1,
        )
        outcome, factor = Outcome.KEPT, 1.0
        if self.pays(inner, memory, f_after):  # line 36
            outcome, factor = Outcome.GROWN, min(settings.growth, settings.cap / inner.zeta)
            memory = replace(memory, raised=factor, bought=f_after)
        elif inner.share is None and memory.windows_since_low >= settings.patience:  # line 38
            outcome, factor = Outcome.STAGNATED, settings.theta
            memory = replace(memory, windows_since_low=0)
        return Decision(outcome, inner.zeta, factor, memory.low, None), memory

    def pays(self, inner: InnerCycle, memory: Remembered, f_after: float) -> bool:
        """Line 36: whether the loss has fallen enough since the last growth, and there is time left to use another."""
        settings = self.settings
        return (
            memory.due <= 0
            and settings.growth > 1.0
            and inner.zeta < settings.cap * (1.0 - 1e-9)
            and f_after <= (1.0 - settings.price) * memory.bought
            and (inner.share is None or inner.share < 1.0 - settings.decay)
        )
