"""How many batches go into one native call: long enough to cost nothing, short enough to be stopped."""

from __future__ import annotations

import math

# A call costs well below a millisecond, and who presses Ctrl-C waits for no longer than this.
_SECONDS = 0.1
_FIRST = 16


class Pace:
    """Learns how long a batch takes."""

    def __init__(self) -> None:
        self._seconds_a_batch = math.nan

    def saw(self, batches: int, seconds: float) -> None:
        self._seconds_a_batch = seconds / batches

    def batches(self, seconds_left: float = math.inf) -> int:
        """For the next call; at least 1."""
        if math.isnan(self._seconds_a_batch):
            return _FIRST
        return max(1, int(min(_SECONDS, seconds_left) / max(self._seconds_a_batch, 1e-9)))
