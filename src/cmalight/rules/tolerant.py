"""The tolerant rule: a control for steps that are better than a gradient step, which knows its budget.

The line numbers in the comments are those of docs/understand/controlled.md. It judges windows: epochs, or parts of
long ones, by the mean loss f_S of a fixed sample of the data where they begin and where they end. Symbols beside those
of rule.py:

    f_0      f_S(w⁰)
    low      the least f_S at any end that was kept, from the 32nd batch on; before it, the last one
    scale    f_S after the first windows: f_0 without what a few steps take off any loss
    usual    the step size that is usual for the base, +inf as long as nothing is known of it
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cmalight.rules.outcome import Outcome
from cmalight.rules.rule import Decision, Evaluations, InnerCycle, Known, Rule

# By what the step size rises while it is below what is usual, and nothing was refused yet; and falls where the first
# windows are refused.
START = 10.0
# Beyond what is usual it grows with new lows below these shares of f_0 and of `scale`; up to so many times what is
# usual.
GATE, LEVEL = 0.2, 0.7
CAP = 20.0
# And only from a window that began no higher than so many times the low before it: where losses swing further than
# that, a new low is luck, and longer steps swing more.
STEADY = 1.3
# Until a point below LEVEL f_0 was found, this share of f_0 above it may be kept: where w⁰ rests on a plateau already,
# whatever moves ends a little above it.
SLACK = 0.05
# Without a budget: after so many windows without a new low it shrinks, rests for some windows, and never falls below
# usual √(EARLY/B): however long a plateau is, steps that could leave it stay possible.
PATIENCE, REST, EARLY = 3, 8, 256.0
# With one: after so many it falls towards what is usual, and grows no further than that again.
PATIENCE_ABOVE = 20
# The rise at the start: over so many steps, or this share of the budget where that is shorter.
RISE_STEPS, RISE_SHARE = 32, 0.05
# The first windows are this long, in batches; later ones this share of the batches before them. Epochs that are shorter
# than the first windows are judged together, unless losses are this many times f_0.
FIRST, PART = 32, 0.125
FAR = 10.0
# Windows of fewer batches may end higher, as many times as they are shorter; and what the first batches of a run pass
# through is no low.
FEW, SETTLED = 32, 32


@dataclass(frozen=True)
class Settings:
    """What a user may want to set.

    Attributes:
        usual: The step size that is usual for the base; +inf where nothing is known.
        growth: By which ζ grows; 1 never raises it.
        tolerance: What ends higher above `low` than this share of `scale` is undone; more in windows of few batches.
        theta: By which ζ shrinks then.
        decay: The share of the budget over which ζ goes to zero, at its end.
        window: After how many batches a long epoch is judged, at the latest.
    """

    usual: float = math.inf
    growth: float = 2.0
    tolerance: float = 0.15
    theta: float = 0.5
    decay: float = 0.4
    window: int = 200


@dataclass(frozen=True)
class Remembered:
    """From window to window.

    Attributes:
        low: The least f_S at any end that was kept, once there were some batches.
        scale: f_S after the first windows.
        usual_lr: The step size that is usual, as far as it is known by now.
        batches_judged: Since w⁰.
        starting: Whether ζ still rises to what is usual.
        windows_since_low: How many were kept without one.
        wait: For how many windows the last refusal bars a rise.
        due: How many of them are left.
        cap: What ζ may grow to.
    """

    low: float = math.inf
    scale: float = math.inf
    usual_lr: float = math.inf
    batches_judged: float = 0.0
    starting: int = 1
    windows_since_low: int = 0
    wait: int = 0
    due: float = 0
    cap: float = math.inf


@dataclass(frozen=True)
class TolerantRule(Rule):
    """Lines 31 to 40 of docs/understand/controlled.md."""

    settings: Settings

    Memory = Remembered
    uses_a_sample = True
    judges_parts = True
    begins_with_a_pass = False

    def begins_at(self, zeta: float) -> float:
        """Line 31: never above what is usual."""
        return min(zeta, self.settings.usual)

    def fresh(self, f_0: float, zeta: float) -> Remembered:
        """Line 31: ζ⁰ may be what is usual already; where nothing may raise it, it is."""
        usual = self.settings.usual
        if self.settings.growth == 1.0:
            return Remembered(low=f_0, usual_lr=zeta if usual == math.inf else usual, starting=0)
        return Remembered(low=f_0, usual_lr=usual, starting=int(zeta < usual))

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
        length = min(part, self._length(memory))
        return None if length == batches else length

    def _length(self, memory: Remembered) -> int:
        """Line 33: of a window, were it not for the epochs."""
        return max(FIRST, round(PART * memory.batches_judged))

    def waits(
        self, known: Known, memory: Remembered, *, batches: float, of_epoch: float, f_tilde: float, share: float | None
    ) -> bool:
        """Line 33: as many short epochs as come nearest to the length of a window, if there are more to come."""
        if memory.starting or share is None or share >= 1.0 or of_epoch >= FIRST:
            return False
        if not f_tilde <= known.f_0 + (FAR - 1.0) * abs(known.f_0):
            return False
        return batches + 0.5 * of_epoch < min(self.settings.window, self._length(memory))

    def after_outside_change(self, memory: Remembered, *, zeta: float) -> Remembered:
        """What somebody else set is raised no more: it would undo what they want."""
        usual = zeta if memory.usual_lr == math.inf else memory.usual_lr
        return replace(memory, usual_lr=usual, starting=0, due=math.inf)

    def decide(
        self, inner: InnerCycle, known: Known, memory: Remembered, ask: Evaluations
    ) -> tuple[Decision, Remembered]:
        """Lines 34 to 40."""
        memory = replace(memory, batches_judged=memory.batches_judged + inner.batches, due=memory.due - 1)
        f_after = ask.sample_after() if inner.is_finite else math.inf
        if self.is_low(inner, known, memory, ask, f_after):
            return self.kept(inner, known, memory, ask, f_after)
        return self.undone(inner, known, memory)

    def is_low(self, inner: InnerCycle, known: Known, memory: Remembered, ask: Evaluations, f_after: float) -> bool:
        """Line 34: nothing above w⁰, and at the start nothing above w^k; then nothing above w^k and far above `low`."""
        if not f_after <= known.f_0 and not self.is_near(inner, known, memory, ask, f_after):
            return False
        if memory.starting:
            return f_after <= ask.sample_before()
        tolerated = self.settings.tolerance * abs(memory.scale) * max(1.0, FEW / max(1.0, inner.batches))
        return f_after <= memory.low + tolerated or f_after <= ask.sample_before()

    def is_near(self, inner: InnerCycle, known: Known, memory: Remembered, ask: Evaluations, f_after: float) -> bool:
        """Line 34, above w⁰: a little, as long as nothing is gained that it could take back; at the end no higher.

        Steps with all the data at once have no noise that could be the reason.
        """
        if not (memory.low > LEVEL * known.f_0 and inner.batches > 1.0):
            return False
        if self._is_late(inner):
            return f_after <= ask.sample_before()
        return f_after <= known.f_0 + SLACK * abs(known.f_0)

    def _is_late(self, inner: InnerCycle) -> bool:
        return inner.share is not None and inner.share >= 1.0 - self.settings.decay

    def undone(self, inner: InnerCycle, known: Known, memory: Remembered) -> tuple[Decision, Remembered]:
        """Lines 39 and 40: back to w^k, in everything."""
        is_early = memory.starting or memory.scale == math.inf
        factor = 1.0 / START if is_early else self.settings.theta  # line 39
        usual = factor * inner.zeta if is_early and memory.usual_lr == math.inf else memory.usual_lr
        wait = 2 * memory.wait + 1  # line 40
        memory = replace(memory, usual_lr=usual, starting=0, wait=wait, due=max(wait, memory.due))
        outcome = Outcome.REFUSED if inner.is_finite else Outcome.DIVERGED
        return Decision(outcome, 0.0, factor, known.phi, known.f_current), memory

    def kept(
        self, inner: InnerCycle, known: Known, memory: Remembered, ask: Evaluations, f_after: float
    ) -> tuple[Decision, Remembered]:
        """Lines 35 to 38."""
        low_before, since_low = memory.low, 0 if f_after < memory.low else memory.windows_since_low + 1
        memory = replace(memory, low=min(memory.low, f_after), windows_since_low=since_low)
        usual = memory.usual_lr
        if memory.starting and f_after < ask.sample_before():  # line 35
            factor = min(START, usual / inner.zeta)
            return self._moved(inner, replace(memory, starting=int(START * inner.zeta < usual)), factor)
        if memory.starting:  # nothing moves, so nothing says how far to rise
            usual = inner.zeta if usual == math.inf else usual
            memory = replace(memory, starting=0, usual_lr=usual)
        if memory.batches_judged < SETTLED:
            memory = replace(memory, low=f_after)  # a few steps pass through lower points than they can stay at
        elif memory.scale == math.inf or memory.batches_judged <= 2 * FIRST:
            memory = replace(memory, scale=f_after)
        if inner.share is None and since_low >= PATIENCE:  # line 38
            least = usual * math.sqrt(EARLY / memory.batches_judged)
            memory = replace(memory, windows_since_low=0, due=max(REST, memory.due))
            return self._moved(inner, memory, min(1.0, max(self.settings.theta, least / inner.zeta)))
        if memory.due > 0 or self._is_late(inner):
            return self._moved(inner, memory, 1.0)
        if since_low >= PATIENCE_ABOVE and inner.zeta > usual * (1.0 + 1e-9):  # line 38, up to rounding
            factor = max(self.settings.theta, usual / inner.zeta)
            memory = replace(memory, windows_since_low=0, cap=factor * inner.zeta)
            return self._moved(inner, memory, factor)
        if inner.zeta < usual < math.inf and f_after <= ask.sample_before():  # line 36
            return self._moved(inner, memory, min(self.settings.growth, usual / inner.zeta))
        is_far_down = since_low == 0 and 0.0 < f_after <= min(GATE * known.f_0, LEVEL * memory.scale)
        if is_far_down and ask.sample_before() <= STEADY * low_before:  # line 37
            most = min(CAP * usual, memory.cap)
            return self._moved(inner, memory, max(1.0, min(self.settings.growth, most / inner.zeta)))
        return self._moved(inner, memory, 1.0)

    def _moved(self, inner: InnerCycle, memory: Remembered, factor: float) -> tuple[Decision, Remembered]:
        outcome = Outcome.KEPT if factor == 1.0 else Outcome.GROWN if factor > 1.0 else Outcome.STAGNATED
        return Decision(outcome, inner.zeta, factor, memory.low, None), memory
