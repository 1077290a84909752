"""The tolerant rule: a control for steps that are better than a gradient step, which knows its budget.

The line numbers in the comments are those of the listing in docs/controlled.md. It judges windows: epochs, or parts of
long ones, by the mean loss f_S of a fixed sample of the data where they begin and where they end. Symbols beside those
of rule.py:

    f_0      f_S(w⁰)
    low      the least f_S at any end that was kept
    paid     f_S when the step size last grew; f_0 before it did
    usual    the step size that is usual for the base, +inf where nothing is known of it
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cmalight.rules.outcome import Outcome
from cmalight.rules.rule import Decision, Evaluations, InnerCycle, Known, Rule

# By what the step size rises while it is below what is usual, and nothing was refused yet.
START = 10.0
# A growth is for losses below this share of the first, and costs this share of what the last one left.
GATE, PRICE = 0.2, 0.1
# A window right after a growth ends at most at so many times the loss it began with.
PROBATION = 1.5
# The step size does not grow past so many times what is usual.
CAP = 16.0
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
        tolerance: What ends higher above the lowest loss than this share of the first is undone.
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
        paid: f_S when ζ last grew.
        batches_judged: Since w⁰.
        starting: Whether ζ still rises to what is usual.
        raised: Whether ζ grew just before this window.
        wait: For how many windows the last refusal bars growth.
        due: How many of them are left.
    """

    low: float = math.inf
    paid: float = math.inf
    batches_judged: float = 0.0
    starting: int = 1
    raised: int = 0
    wait: int = 0
    due: int = 0


@dataclass(frozen=True)
class TolerantRule(Rule):
    """Lines 31 to 39 of docs/controlled.md."""

    settings: Settings

    Memory = Remembered
    uses_a_sample = True
    judges_parts = True
    begins_with_a_pass = False

    def begins_at(self, zeta: float) -> float:
        """Line 31: never above what is usual."""
        return min(zeta, self.settings.usual)

    def fresh(self, f_0: float) -> Remembered:
        """Nothing was paid yet."""
        return Remembered(low=f_0, paid=f_0)

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
        """What somebody else set stays as it is, until a loss pays for more."""
        return replace(memory, starting=0, raised=0)

    def decide(
        self, inner: InnerCycle, known: Known, memory: Remembered, ask: Evaluations
    ) -> tuple[Decision, Remembered]:
        """Lines 34 to 39."""
        is_first = not memory.batches_judged
        memory = replace(memory, batches_judged=memory.batches_judged + inner.batches, due=memory.due - 1)
        f_after = ask.sample_after() if inner.is_finite else math.inf
        if not f_after <= self.highest(known, memory, ask):  # line 34
            return self.undone(inner, known, memory, is_first=is_first)
        f_before = ask.sample_before()
        return self.kept(inner, known, replace(memory, raised=0), f_before=f_before, f_after=f_after)

    def highest(self, known: Known, memory: Remembered, ask: Evaluations) -> float:
        """What may be kept: nothing above w⁰, and nothing far above the lowest, or above where it began."""
        bound = min(memory.low + self.settings.tolerance * abs(known.f_0), known.f_0)
        if memory.starting:
            return min(bound, ask.sample_before())
        if memory.raised and (f_before := ask.sample_before()) > 0.0:
            return min(bound, PROBATION * f_before)
        return bound

    def undone(
        self, inner: InnerCycle, known: Known, memory: Remembered, *, is_first: bool
    ) -> tuple[Decision, Remembered]:
        """Lines 38 and 39: back to w^k, in everything."""
        outcome = Outcome.REFUSED if inner.is_finite else Outcome.DIVERGED
        if memory.starting and not is_first:  # line 38: as far up as it goes
            memory = replace(memory, starting=0)
            return Decision(outcome, 0.0, 1.0 / START, known.phi, known.f_current), memory
        wait = 2 * memory.wait + 1  # line 39
        factor = 1.0 / START if memory.starting else self.settings.theta
        goes_on_starting = int(memory.starting and self.settings.usual == math.inf)
        memory = replace(memory, wait=wait, due=wait, raised=0, starting=goes_on_starting)
        return Decision(outcome, 0.0, factor, known.phi, known.f_current), memory

    def kept(
        self, inner: InnerCycle, known: Known, memory: Remembered, *, f_before: float, f_after: float
    ) -> tuple[Decision, Remembered]:
        """Lines 35 to 37."""
        memory = replace(memory, low=min(memory.low, f_after))
        outcome, factor, settings = Outcome.KEPT, 1.0, self.settings
        if memory.starting:  # line 35
            factor = min(START, settings.usual / inner.zeta)
            memory = replace(memory, paid=f_after, starting=int(factor * inner.zeta < settings.usual))
        elif self.may_grow(inner, memory):
            if inner.zeta < settings.usual < math.inf:  # line 36
                factor = min(settings.growth, settings.usual / inner.zeta) if f_after <= f_before else 1.0
            elif f_after <= GATE * known.f_0 and f_after <= (1.0 - PRICE) * memory.paid:  # line 37
                factor = min(settings.growth, CAP * settings.usual / inner.zeta)
                memory = replace(memory, paid=f_after, raised=1)
        if factor > 1.0:
            outcome = Outcome.GROWN
        return Decision(outcome, inner.zeta, factor, memory.low, None), memory

    def may_grow(self, inner: InnerCycle, memory: Remembered) -> bool:
        """Whether no refusal bars it, and there is time left to use it."""
        return memory.due <= 0 and (inner.share is None or inner.share < 1.0 - self.settings.decay)
