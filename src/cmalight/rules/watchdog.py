"""The watchdog: keep or undo a window of steps, by the losses where windows end; and the schedule of the step size.

The rule is non-monotone (Grippo, Lampariello, Lucidi 1986): a window may end above the one before it, by as much as the
recent ends differ among themselves. It compares differences of losses only, so that f and a f + b (a > 0) give one run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Memory:
    """What the rule remembers from one window to the next.

    Attributes:
        f_0: Loss at the start.
        lowest: Lowest loss of f_0 and all kept ends.
        ends: Losses at the last kept ends, the newest last; f_0 is the first of them.
        scale: Factor of the step size, in (0, 1].
        window: Number of steps of the next window.
        steps: Steps of all windows so far, undone ones included.
        cooldown: Kept windows that an undone window asks for before the scale rises.
        kept: Kept windows since the scale last changed.
        refused: Windows undone in a row.
    """

    f_0: float
    lowest: float
    ends: tuple[float, ...]
    scale: float
    window: int
    steps: int = 0
    cooldown: int = 0
    kept: int = 0
    refused: int = 0


@dataclass(frozen=True)
class Verdict:
    """The decision on one window.

    Attributes:
        keeps: Whether the window is kept.
        bound: The highest loss at which the window would have been kept.
    """

    keeps: bool
    bound: float


@dataclass(frozen=True)
class Watchdog:
    """Keep a window unless it ends far above the recent ones.

    Attributes:
        memory: Number of kept ends a window is compared with.
        shrink: Factor of the scale after an undone window; its inverse brings the scale back.
        first_window: Number of steps of the first windows.
        last_window: Number of steps windows grow to.
        window_share: A window is this share of the steps so far, between the two.
        warmup: Share of the run over which the step size rises.
        warmup_steps: Steps over which it rises where nobody knows how long the run is.
        decay: Share of the run, at its end, over which the step size falls on a line to zero.
    """

    memory: int = 10
    shrink: float = 0.5
    first_window: int = 32
    last_window: int = 200
    window_share: float = 0.125
    warmup: float = 0.05
    warmup_steps: int = 75
    decay: float = 0.4

    def init(self, f_0: float) -> Memory:
        """Start at a loss.

        Args:
            f_0: Loss at the start, on the sample that judges all windows.

        Raises:
            ValueError: The loss is not finite.
        """
        if not math.isfinite(f_0):
            raise ValueError(f"The loss at the start is {f_0}; expected a finite number. Check the model and the data.")
        return Memory(f_0=f_0, lowest=f_0, ends=(f_0,), scale=1.0, window=self.first_window)

    def decide(self, memory: Memory, f_end: float, steps: int) -> tuple[Verdict, Memory]:
        """Keep or undo a window.

        Args:
            memory: What `init` or the last call gave.
            f_end: Loss where the window ends, on the sample of f_0; NaN and infinities are undone.
            steps: Number of steps the window had.
        """
        bound = self._bound(memory)
        keeps = math.isfinite(f_end) and f_end <= bound
        done = memory.steps + steps
        window = max(self.first_window, min(self.last_window, int(self.window_share * done)))
        memory = replace(memory, steps=done, window=window)
        return Verdict(keeps, bound), self._keep(memory, f_end) if keeps else self._undo(memory)

    def factor(self, progress: float | None, steps: int) -> float:
        """Factor of the schedule for the next step: a rise, a constant, a line to zero.

        Args:
            progress: Share of the run that is done before this step, from 0 to 1; None where nobody knows.
            steps: Steps since the start.
        """
        if progress is None:
            return min(1.0, (steps + 1) / self.warmup_steps)
        return max(_TINY, min(1.0, progress / self.warmup, (1.0 - progress) / self.decay))

    def _bound(self, memory: Memory) -> float:
        """Highest recent end plus the spread of the recent ends; never above the last end or f_0, whichever is higher."""
        highest, lowest = max(memory.ends), min(memory.ends)
        return max(memory.ends[-1], min(highest + (highest - lowest), memory.f_0))

    def _keep(self, memory: Memory, f_end: float) -> Memory:
        memory = replace(
            memory,
            lowest=min(memory.lowest, f_end),
            ends=(*memory.ends, f_end)[-self.memory :],
            kept=memory.kept + 1,
            refused=0,
        )
        if memory.scale < 1.0 and memory.kept >= memory.cooldown:
            return replace(memory, scale=min(1.0, memory.scale / self.shrink), kept=0)
        return memory

    def _undo(self, memory: Memory) -> Memory:
        return replace(
            memory,
            scale=max(_TINY_SCALE, memory.scale * self.shrink),
            cooldown=2 * memory.cooldown + 1,
            kept=0,
            refused=memory.refused + 1,
        )


_TINY = 1e-3  # factor of the first step, and of steps past the end
_TINY_SCALE = 1e-30  # the scale stays a normal number in single precision
