"""The tolerant rule: a control for steps that are better than a gradient step, which knows its budget.

The line numbers in the comments are those of the listing in docs/controlled.md. It judges windows: epochs, or parts of
long ones, by the mean loss f_S of a fixed sample of the data where they begin and where they end. Symbols beside those
of rule.py:

    f_0      f_S(w⁰)
    low      the least f_S at any end that was kept
    paid     f_S when the step size last grew, or reached what is usual
    scale    f_S after the first window at that step size: f_0 without what a few steps take off any loss
    usual    the step size that is usual for the base, +inf where nothing is known of it
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cmalight.rules.outcome import Outcome
from cmalight.rules.rule import Decision, Evaluations, InnerCycle, Known, Rule

# By what the step size rises while it is below what is usual, and nothing was refused yet.
START = 10.0
# Beyond that it grows for losses below these shares of f_0 and of `scale`, and each time costs a share of what the last
# one left; up to so many times what is usual.
GATE, HALF, PRICE = 0.2, 0.5, 0.1
CAP = 32.0
# Without a budget: after so many windows without a new low it shrinks, and grows no more.
PATIENCE = 3
# The rise at the start: over so many steps, or this share of the budget where that is shorter.
RISE_STEPS, RISE_SHARE = 32, 0.05
# The first windows are this long, in batches; later ones this share of the batches before them.
FIRST, PART = 32, 0.125


@dataclass(frozen=True)
class Settings:
    """What a user may want to set.

    Attributes:
        usual: The step size that is usual for the base; +inf where nothing is known.
        growth: By which ζ grows; 1 never lets it.
        tolerance: What ends higher above `low` than this share of `scale` is undone.
        theta: By which ζ shrinks then.
        decay: The share of the budget over which ζ goes to zero, at its end.
        window: After how many batches a long epoch is judged, at the latest.
    """

    usual: float = math.inf
    growth: float = 2.0
    tolerance: float = 0.1
    theta: float = 0.5
    decay: float = 0.4
    window: int = 200


@dataclass(frozen=True)
class Remembered:
    """From window to window.

    Attributes:
        low: The least f_S at any end that was kept.
        paid: f_S when ζ last grew, or reached what is usual.
        scale: f_S after the first window there.
        batches_judged: Since w⁰.
        starting: Whether ζ still rises to what is usual.
        windows_since_low: How many were kept without one.
        wait: For how many windows the last refusal bars growth.
        due: How many of them are left.
    """

    low: float = math.inf
    paid: float = math.inf
    scale: float = math.inf
    batches_judged: float = 0.0
    starting: int = 1
    windows_since_low: int = 0
    wait: int = 0
    due: float = 0


@dataclass(frozen=True)
class TolerantRule(Rule):
    """Lines 31 to 40 of docs/controlled.md."""

    settings: Settings

    Memory = Remembered
    uses_a_sample = True
    judges_parts = True
    begins_with_a_pass = False

    def begins_at(self, zeta: float) -> float:
        """Line 31: never above what is usual."""
        return min(zeta, self.settings.usual)

    def fresh(self, f_0: float, zeta: float) -> Remembered:
        """Line 31: nothing was paid yet, and ζ⁰ may be what is usual already."""
        return Remembered(low=f_0, paid=f_0, starting=int(zeta < self.settings.usual))

    def factor(self, share: float | None, steps: int) -> float:
        """Line 32: a rise at the start, and a line to zero at the end of the budget."""
        rise = (steps + 1) / RISE_STEPS
        if share is None:
            return min(1.0, rise)
        return min(1.0, max(rise, share / RISE_SHARE), (1.0 - share) / self.settings.decay)

    def window(self, memory: Remembered, batches: int | None) -> int | None:
        """Line 33: an epoch, or equal parts of a long one, and shorter ones at first."""
        longest = self.settings.window
        whole = longest if batches is None else batches
        part = whole if whole <= longest else math.ceil(whole / math.ceil(whole / longest))
        length = min(part, max(FIRST, round(PART * memory.batches_judged)))
        return None if length == batches else length

    def after_outside_change(self, memory: Remembered, *, zeta: float) -> Remembered:  # noqa: ARG002
        """What somebody else set is raised no more: it would undo what they want."""
        return replace(memory, starting=0, due=math.inf)

    def decide(
        self, inner: InnerCycle, known: Known, memory: Remembered, ask: Evaluations
    ) -> tuple[Decision, Remembered]:
        """Lines 34 to 40."""
        is_first = not memory.batches_judged
        memory = replace(memory, batches_judged=memory.batches_judged + inner.batches, due=memory.due - 1)
        f_after = ask.sample_after() if inner.is_finite else math.inf
        if not f_after <= self.highest(known, memory, ask):  # line 34
            return self.undone(inner, known, memory, is_first=is_first)
        return self.kept(inner, known, memory, ask, f_after)

    def highest(self, known: Known, memory: Remembered, ask: Evaluations) -> float:
        """What may be kept: nothing above w⁰ or far above the lowest, and at the start nothing above w^k."""
        bound = min(memory.low + self.settings.tolerance * abs(memory.scale), known.f_0)
        return min(bound, ask.sample_before()) if memory.starting else bound

    def undone(
        self, inner: InnerCycle, known: Known, memory: Remembered, *, is_first: bool
    ) -> tuple[Decision, Remembered]:
        """Lines 39 and 40: back to w^k, in everything."""
        outcome = Outcome.REFUSED if inner.is_finite else Outcome.DIVERGED
        if memory.starting and not is_first:  # line 39: it has gone up as far as it goes
            memory = replace(memory, starting=0)
            return Decision(outcome, 0.0, 1.0 / START, known.phi, known.f_current), memory
        wait = 2 * memory.wait + 1  # line 40
        factor = 1.0 / START if memory.starting else self.settings.theta
        still_starting = int(memory.starting and self.settings.usual == math.inf)
        memory = replace(memory, wait=wait, due=max(wait, memory.due), starting=still_starting)
        return Decision(outcome, 0.0, factor, known.phi, known.f_current), memory

    def kept(
        self, inner: InnerCycle, known: Known, memory: Remembered, ask: Evaluations, f_after: float
    ) -> tuple[Decision, Remembered]:
        """Lines 35 to 38."""
        usual = self.settings.usual
        since_low = 0 if f_after < memory.low else memory.windows_since_low + 1
        memory = replace(memory, low=min(memory.low, f_after), windows_since_low=since_low)
        factor = 1.0
        if memory.starting:  # line 35
            factor = min(START, usual / inner.zeta)
            memory = replace(memory, paid=f_after, starting=int(factor * inner.zeta < usual))
            return self._decision(inner, memory, factor), memory
        if memory.scale == math.inf:
            memory = replace(memory, scale=f_after)
        if self.may_grow(inner, memory):
            if inner.zeta < usual < math.inf:  # line 36
                factor = min(self.settings.growth, usual / inner.zeta) if f_after <= ask.sample_before() else 1.0
            elif self.pays(known, memory, f_after):  # line 37
                factor = max(1.0, min(self.settings.growth, CAP * usual / inner.zeta))
                memory = replace(memory, paid=f_after)
        if factor == 1.0 and inner.share is None and since_low >= PATIENCE:  # line 38
            factor = self.settings.theta
            memory = replace(memory, windows_since_low=0, due=math.inf)
        return self._decision(inner, memory, factor), memory

    def _decision(self, inner: InnerCycle, memory: Remembered, factor: float) -> Decision:
        outcome = Outcome.KEPT if factor == 1.0 else Outcome.GROWN if factor > 1.0 else Outcome.STAGNATED
        return Decision(outcome, inner.zeta, factor, memory.low, None)

    def may_grow(self, inner: InnerCycle, memory: Remembered) -> bool:
        """Whether nothing bars it, and there is time left to use it."""
        return memory.due <= 0 and (inner.share is None or inner.share < 1.0 - self.settings.decay)

    def pays(self, known: Known, memory: Remembered, f_after: float) -> bool:
        """Line 37: whether the loss has fallen far enough for a step size that is more than usual."""
        return f_after <= min(GATE * known.f_0, HALF * memory.scale, (1.0 - PRICE) * memory.paid)
