"""The watchdog: keep or undo a window of steps by the loss at its end; and the schedule of the learning rate.

The rule is non-monotone, as in Grippo, Lampariello and Lucidi (1986): a window may end higher than it began. Their
bound is the highest of the last ends. Here it is the lowest of them plus a few times the typical change from one end to
the next, because one early high end would allow a collapse for as long as the rule remembers it. The rule compares
differences of losses only, so f and a f + b (a > 0) give one run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median_high

_LEAST_SCALE = 1e-30  # keeps the scale a normal number in single precision


@dataclass(frozen=True)
class Memory:
    """What the rule remembers from one window to the next.

    Attributes:
        f_0: Loss at the start.
        error: How far f_0 may be from the loss over all data.
        lowest: Lowest loss among f_0 and all kept ends.
        ends: Losses at the last kept ends, newest last; f_0 is the first of them.
        scale: Factor of the learning rate, in (0, 1].
        window: Number of steps of the next window.
        steps: Steps of all windows so far, including undone ones.
        noise: The error measured again when windows become long; None before.
        cooldown: Number of windows to keep before the scale is raised.
        kept: Windows kept since the scale or the cooldown last changed.
        refused: Windows undone in a row.
        is_failing: Whether the last window was undone or lowered the scale.
    """

    f_0: float
    error: float
    lowest: float
    ends: tuple[float, ...]
    scale: float
    window: int
    steps: int = 0
    noise: float | None = None
    cooldown: int = 0
    kept: int = 0
    refused: int = 0
    is_failing: bool = False


@dataclass(frozen=True)
class Verdict:
    """The decision on one window.

    Attributes:
        keeps: Whether the window is kept.
        bound: The highest loss at which a window is kept.
    """

    keeps: bool
    bound: float


@dataclass(frozen=True)
class Watchdog:
    """Undo a window that rises further than ends usually move, and lower the learning rate for a while.

    Attributes:
        memory: Number of kept ends that a window is compared with, at least 2. A window is this part of the steps so
            far.
        slack: A window may end this many median changes (from one of these ends to the next) above the lowest of them,
            and may give back 1/slack of the gain since the start. A window planned for fewer than `memory` steps that
            gives back more than 1/slack² is steep: it is kept, but lowers the scale.
        shrink: Factor of the scale after an undone or steep window; each way back up is a division by it.
        first_window: Number of steps of the first windows.
        last_window: Number of steps that windows grow to.
        warmup: Share of the run, at its start, over which the learning rate warms up.
        decay: Share of the run, at its end, over which the learning rate decays linearly to zero.
        floor: Least factor of the schedule: of the first step, and of steps past the end.
    """

    memory: int = 10
    slack: float = 4.0
    shrink: float = 0.5
    first_window: int = 1
    last_window: int = 200
    warmup: float = 0.05
    decay: float = 0.4
    floor: float = 1e-3

    def init(self, f_0: float, error: float = 0.0) -> Memory:
        """Start at a loss.

        Args:
            f_0: Loss at the start, on the sample that judges all windows.
            error: How far f_0 may be from the loss over all data; 0 if it is not known.

        Returns:
            The memory for the first window.

        Raises:
            ValueError: If f_0 is not finite, or the error is not a finite number of at least 0.
        """
        if not math.isfinite(f_0):
            raise ValueError(f"The loss at the start is {f_0}; expected a finite number. Check the model and the data.")
        if not 0.0 <= error < math.inf:
            raise ValueError(f"Invalid error value: {error}; expected a finite number of at least 0")
        return Memory(f_0=f_0, error=error, lowest=f_0, ends=(f_0,), scale=1.0, window=self.first_window)

    def decide(self, memory: Memory, f_end: float, steps: int, progress: float | None = None) -> tuple[Verdict, Memory]:
        """Keep or undo a window.

        Args:
            memory: The memory from `init` or from the last window.
            f_end: Loss where the window ends, on the sample of f_0. NaN and infinity are undone.
            steps: Number of steps in the window.
            progress: Share of the run at its last step; None without a warm-up. A failure during the warm-up lowers
                the peak to half the learning rate that failed: half the peak might still be too high.

        Returns:
            The verdict, and the memory for the next window.
        """
        bound, steep = self._bounds(memory)
        keeps = math.isfinite(f_end) and f_end <= bound
        done = memory.steps + steps
        window = max(self.first_window, min(self.last_window, done // self.memory))
        is_steep = f_end > max(steep, memory.ends[-1])
        memory = replace(memory, steps=done, window=window)
        if not keeps:
            return Verdict(keeps, bound), self._slower(replace(memory, refused=memory.refused + 1), progress)
        ends = (*memory.ends, f_end)[-self.memory :]
        memory = replace(memory, lowest=min(memory.lowest, f_end), ends=ends, refused=0)
        return Verdict(keeps, bound), self._slower(memory, progress) if is_steep else self._faster(memory)

    def factor(self, progress: float | None, steps: int) -> float:
        """Factor of the schedule for the next step: warm-up, constant, linear decay.

        Args:
            progress: Share of the run done before this step, from 0 to 1. None if it is not known: then the learning
                rate warms up over half of `last_window` steps and stays constant.
            steps: Steps since the start.

        Returns:
            A factor from `floor` to 1.
        """
        if progress is None:
            return min(1.0, max(self.floor, 2.0 * steps / self.last_window))
        return max(self.floor, min(self.risen(progress), (1.0 - progress) / self.decay))

    def risen(self, progress: float) -> float:
        """The share of the peak learning rate that the warm-up has reached.

        Args:
            progress: Share of the run done before this step, from 0 to 1.

        Returns:
            A share from `floor` to 1; 1 after the warm-up.
        """
        return min(1.0, max(self.floor, progress / self.warmup))

    def _bounds(self, memory: Memory) -> tuple[float, float]:
        """The highest loss at which a window is kept, and the loss above which a window that rises is steep.

        Steps that are far too long do their damage in the first windows, and the loss hardly shows it: so a short
        window may be kept and lower the scale. Undoing it would not help: it restores the momentum, which leads upwards
        again.
        """
        last, top = memory.ends[-1], memory.f_0 + memory.error
        if memory.lowest >= memory.f_0 - memory.error:
            return max(last, top), math.inf  # nothing is gained yet, so the ends say nothing about what is normal
        gain = top - memory.lowest
        noise = memory.error if memory.noise is None else memory.noise
        change = median_high(abs(end - start) for start, end in pairwise(memory.ends))
        # Ends may differ by less than the sample can tell: on a plateau, and where it lacks the few rows that matter.
        recent = min(memory.ends) + max(noise, self.slack * change)
        # The recent ends may creep up from window to window; the lowest loss since the start does not.
        room = max(self.slack * max(memory.error, noise), gain / self.slack)
        steep = memory.lowest + gain / self.slack**2 if memory.window < self.memory else math.inf
        return max(last, min(top, recent, memory.lowest + room)), steep

    def _faster(self, memory: Memory) -> Memory:
        """A window was kept."""
        memory = replace(memory, kept=memory.kept + 1, is_failing=False)
        if memory.kept < memory.cooldown:
            return memory
        if memory.scale < 1.0:
            return replace(memory, scale=min(1.0, memory.scale / self.shrink), kept=0)
        if memory.window < self.last_window:
            return memory  # a few short windows are no reason to forget
        return replace(memory, cooldown=memory.cooldown // 2, kept=0)

    def _slower(self, memory: Memory, progress: float | None) -> Memory:
        """A window was undone or is steep. Several in a row are one failure; the first alone extends the cooldown."""
        if not memory.is_failing:
            tried = 1.0 if progress is None else self.risen(progress)
            memory = replace(memory, scale=tried * memory.scale, cooldown=2 * memory.cooldown + 1)
        return replace(memory, scale=max(_LEAST_SCALE, self.shrink * memory.scale), kept=0, is_failing=True)
