"""Training time, without the time spent on measuring."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class TrainingClock:
    """Runs from the moment it is made, but not inside `with clock.measuring():`, and not after `stop()`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._before = seconds
        self._running_since: float | None = time.perf_counter()

    def seconds(self) -> float:
        if self._running_since is None:
            return self._before
        return self._before + time.perf_counter() - self._running_since

    @contextmanager
    def measuring(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self._running_since = time.perf_counter()

    def stop(self) -> None:
        self._before, self._running_since = self.seconds(), None
