"""Training time, without the time spent on measuring."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

ClockName = Literal["wall", "processor"]


def processor_seconds() -> float:
    """The processor time of this process, all its threads, and the child processes it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


class TrainingClock:
    """Runs from the moment it is made, but not inside `with clock.paused():`, and not after `stop()`.

    Args:
        seconds: Training time before this clock starts, from a checkpoint.
        kind: "wall", or "processor" for the time that this process has the processor.
    """

    def __init__(self, seconds: float = 0.0, *, kind: ClockName = "wall") -> None:
        self._now = processor_seconds if kind == "processor" else time.perf_counter
        self._before = seconds
        self._running_since: float | None = self._now()

    def seconds(self) -> float:
        """Training time so far."""
        if self._running_since is None:
            return self._before
        return self._before + self._now() - self._running_since

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stands still for as long as the block runs."""
        self.stop()
        try:
            yield
        finally:
            self._running_since = self._now()

    def stop(self) -> None:
        """Stands still from now on."""
        self._before, self._running_since = self.seconds(), None
