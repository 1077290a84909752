"""The watchdog: the losses of a window of steps raise the alarm, and f settles it.

This is line 6 of CMALight's listing for windows of any optimizer (docs/understand/watchdog.md). The mean of the losses
that a window's steps computed anyway, f̃, is compared with those of the windows before it. If it is too high, and only
then, f is evaluated at the end of the window and at the points to go back to, and the steps that raised it are undone.
Without f, the next window settles the alarm: only a second alarm in a row undoes.

The rule compares differences of losses only, so f and a f + b (a > 0) give one run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median, median_high
from typing import Protocol

from cmalight.rules import schedule
from cmalight.rules.decision import Decision, Values
from cmalight.rules.outcome import Outcome

END = 1.0  # alpha of the end of a window; the point to go back to is 0
_NORMAL = 0.954  # median distance of two normal numbers, in standard deviations
# An undo costs at most this many windows, and at least as many are kept before the learning rate rises again.
_LEAST_COOLDOWN = 3


@dataclass(frozen=True)
class Window:
    """What a window of steps showed.

    Attributes:
        losses: The loss of each step, at the weights before it; the mean over all ranks.
        is_finite: Whether weights, buffers and optimizer state are finite at its end.
        steps: Steps of the run so far, undone ones included.
        progress: Fraction of the run that was done at its last step; None if nobody knows.
    """

    losses: tuple[float, ...]
    is_finite: bool
    steps: int
    progress: float | None = None


@dataclass(frozen=True)
class Memory:
    """What the rule remembers from one window to the next.

    Attributes:
        ends: Mean losses of the last kept windows, newest last; before the first, the first loss of all.
        recent: The last losses of single steps, to see how much they scatter.
        scatter: How much they scattered when a window was kept last.
        scale: Factor of the learning rate, in (0, 1].
        length: Number of steps of the next window.
        cooldown: Number of windows to keep before the scale is raised.
        kept: Windows kept since the scale or the cooldown last changed.
        calm: Windows kept since the last undo.
        is_failing: Whether the last window was undone.
        has_lowered: Whether the failures in a row have lowered the scale already.
        is_alarmed: Whether the last window raised an alarm that this one has to settle.
        probe: The last loss of the probe; None if it is not known.
    """

    length: int
    ends: tuple[float, ...] = ()
    recent: tuple[float, ...] = ()
    scatter: float = 0.0
    scale: float = 1.0
    cooldown: int = 0
    kept: int = 0
    calm: int = 0
    is_failing: bool = False
    has_lowered: bool = False
    is_alarmed: bool = False
    probe: float | None = None


class Settling(Values, Protocol):
    """What the watchdog may ask for."""

    @property
    def has_f(self) -> bool:
        """Whether f can be evaluated at all."""

    def probe(self) -> float:
        """The loss of a few fixed batches at the end of the window; NaN if there is no probe."""


@dataclass(frozen=True)
class Watchdog:
    """Undo a window that made things worse, and lower the learning rate for a while.

    Attributes:
        memory: Number of kept windows that a window is compared with. A window has this part of the steps so far, and
            at least half as many steps.
        longest: Number of steps that windows grow to.
        slack: A window alarms if its mean loss is this many usual changes above the lowest recent mean. Without f,
            which could dismiss the alarm: twice as many, above the last one.
        shrink: Factor of the scale after a second failure; each way back up is a division by it.
        floor: Losses alone never bring the scale below this.
    """

    memory: int = 10
    longest: int = 200
    slack: float = 3.0
    shrink: float = 0.5
    floor: float = 1 / 16

    def init(self) -> Memory:
        """Return the memory before the first window."""
        return Memory(length=self._length(0), calm=self.memory)

    def decide(self, memory: Memory, window: Window, ask: Settling) -> Decision[Memory]:
        """Keep the window, wait for the next one, or undo it.

        Args:
            memory: What `init` or the last decision gave.
            window: What the window showed.
            ask: For f and the probe, if there is an objective.

        Returns:
            The decision; alpha is 1 for the end of the window and 0 for the point to go back to.
        """
        if not window.is_finite:
            return Decision(Outcome.DIVERGED, 0.0, self._slower(memory, window))
        mean = mean_of(window.losses)
        memory = self._seen(memory, window)
        bound = self._bound(memory, len(window.losses), has_f=ask.has_f)
        is_low = mean < math.inf and mean <= bound  # line 6
        if not ask.has_f:
            outcome, after = self._settled_by_losses(memory, window, mean, is_low=is_low)
        else:
            outcome, after = self._settled_by_f(memory, window, mean, ask, is_low=is_low)
        return Decision(outcome, END if outcome.keeps else 0.0, after, bound=bound)

    def _settled_by_f(
        self, memory: Memory, window: Window, mean: float, ask: Settling, *, is_low: bool
    ) -> tuple[Outcome, Memory]:
        """Lines 8 to 18: f here and where the steps began decides.

        On a plateau f rises by next to nothing all the time: a rise below a third of the usual change is no reason to
        undo. If the losses were fine and only the probe rose, the learning rate is the likely cause.
        """
        margin = _usual_change(memory, len(window.losses)) / self.slack
        memory, has_risen = self._probed(memory, window, ask, margin)
        if is_low and not has_risen:
            return Outcome.KEPT, self._kept(memory, mean)
        if ask.f_at(END) <= ask.f_start() + margin:
            return Outcome.DISMISSED, self._kept(memory, mean)
        return Outcome.UNDONE, self._slower(replace(memory, calm=0) if is_low else memory, window)

    def _settled_by_losses(
        self, memory: Memory, window: Window, mean: float, *, is_low: bool
    ) -> tuple[Outcome, Memory]:
        """Only a second alarm in a row undoes."""
        if is_low:
            return Outcome.KEPT, self._kept(memory, mean)
        began_confirmed = memory.is_failing and not memory.is_alarmed
        first = next(filter(math.isfinite, window.losses), math.inf)
        rise = 2.0 * self.slack * max(_change(memory), memory.scatter)
        if began_confirmed and memory.ends and not first <= memory.ends[-1] + rise:
            # The first loss after an undo is that of a confirmed point. It is high, so the data have changed.
            return Outcome.RISEN, self._kept(replace(memory, ends=()), mean)
        if not memory.is_alarmed:
            return Outcome.ALARM, replace(memory, is_alarmed=True)
        if memory.scale <= self.floor:  # so small a learning rate is not the cause
            return Outcome.RISEN, self._kept(replace(memory, ends=()), mean)
        slower = self._slower(memory, window)
        return Outcome.UNDONE, replace(slower, scale=max(self.floor, slower.scale))

    def _bound(self, memory: Memory, steps: int, *, has_f: bool) -> float:
        """The highest mean loss of a window of so many steps that raises no alarm."""
        slack = self.slack if has_f else 2.0 * self.slack
        if not memory.ends:  # nothing finite was seen yet
            return math.inf
        if len(memory.ends) == 1:  # a single loss
            return memory.ends[0] + slack * _scatter(memory)
        rise = slack * _usual_change(memory, steps)
        # A loss that rises a little all the time, as with an annealed weight, is no failure; f could tell.
        return max(memory.ends[-1], min(memory.ends) + rise) if has_f else memory.ends[-1] + rise

    def _seen(self, memory: Memory, window: Window) -> Memory:
        """Remember the losses of the steps, and plan the next window."""
        finite = [loss for loss in window.losses if math.isfinite(loss)]
        recent = (*memory.recent, *finite)[-(self.memory**2) :]
        ends = memory.ends or tuple(finite[:1])
        return replace(memory, recent=recent, ends=ends, length=self._length(window.steps))

    def _probed(self, memory: Memory, window: Window, ask: Settling, margin: float) -> tuple[Memory, bool]:
        """Evaluate the probe; say whether it has risen by more than the margin since the window before.

        Only in the first windows, of at most `memory` steps: steps that are far too long do their damage there, the
        losses hardly show it, and an undo costs little.
        """
        probe = ask.probe() if self._length(window.steps) <= self.memory else math.nan
        if math.isnan(probe):
            return replace(memory, probe=None), False
        return replace(memory, probe=probe), memory.probe is not None and probe > memory.probe + margin

    def _kept(self, memory: Memory, mean: float) -> Memory:
        ends = (*memory.ends, mean)[-self.memory :] if mean < math.inf else memory.ends
        memory = replace(memory, ends=ends, scatter=_scatter(memory), kept=memory.kept + 1, calm=memory.calm + 1)
        memory = replace(memory, is_failing=False, has_lowered=False, is_alarmed=False)
        if memory.kept < memory.cooldown:
            return memory
        if memory.scale < 1.0:
            return replace(memory, scale=min(1.0, memory.scale / self.shrink), kept=0)
        if memory.length < self.longest:
            return memory  # a few short windows are no reason to forget
        return replace(memory, cooldown=memory.cooldown // 2, kept=0)

    def _slower(self, memory: Memory, window: Window) -> Memory:
        """Try again with the same learning rate; if that fails, too, or a failure is not long ago, lower it.

        A bad batch is not the fault of the learning rate, and the second try passes it. Failures in a row extend the
        cooldown once. During the warm-up the peak falls to half the learning rate that failed: half the peak might
        still be too high.
        """
        is_first = not memory.is_failing and memory.calm >= self.memory
        memory = replace(memory, kept=0, calm=0, is_failing=True, is_alarmed=False, probe=None)
        if is_first:
            return memory
        scale, cooldown = memory.scale, memory.cooldown
        if not memory.has_lowered:
            scale *= 1.0 if window.progress is None else schedule.warmed_up(window.progress)
            cooldown = max(_LEAST_COOLDOWN, 2 * cooldown + 1)
        return replace(
            memory, scale=max(schedule.LEAST_SCALE, self.shrink * scale), cooldown=cooldown, has_lowered=True
        )

    def _length(self, steps: int) -> int:
        return max(self.memory // 2, min(self.longest, steps // self.memory))


def _scatter(memory: Memory) -> float:
    """The standard deviation of the loss of a step, by the differences of neighbours: a trend does not count."""
    return median([abs(b - a) for a, b in pairwise(memory.recent)] or [0.0]) / _NORMAL


def _usual_change(memory: Memory, steps: int) -> float:
    """From one mean of so many losses to the next: their typical change, or the error of a mean if that is larger."""
    return max(_change(memory), _scatter(memory) / math.sqrt(steps))


def _change(memory: Memory) -> float:
    """The typical change from one mean to the next."""
    return median_high([abs(b - a) for a, b in pairwise(memory.ends)] or [0.0])


def mean_of(losses: Sequence[float]) -> float:
    """The mean of the finite losses; +inf if none is finite.

    A batch without a single target has the loss NaN and moves nothing. Steps that do harm show in the state.
    """
    finite = [loss for loss in losses if math.isfinite(loss)]
    return sum(finite) / len(finite) if finite else math.inf


def reason(before: Memory, after: Memory) -> str:
    """Why a decision changed the scale, in words; empty if it did not."""
    if after.scale == before.scale:
        return ""
    if after.scale > before.scale:
        return "raised after kept windows"
    again = before.is_failing or before.calm < Watchdog.memory
    return "undone again" if again else "the probe rose, the losses did not"
