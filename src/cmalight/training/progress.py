"""What a run shows on standard error: a bar on a terminal, one line per epoch elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from cmalight.errors import duration
from cmalight.training.history import EpochRecord
from cmalight.training.stopping import StopRules

_REFRESH_SECONDS = 0.2
_BAR_WIDTH = 16


class Display:
    """Shows how far a run is on a stream, if there is one."""

    def __init__(self, rules: StopRules, stream: TextIO | None) -> None:
        self._rules = rules
        self._stream = stream
        self._is_terminal = stream is not None and stream.isatty()
        self._next_refresh = 0.0
        self._last: EpochRecord | None = None

    def note(self, text: str) -> None:
        """Show a line of text."""
        if self._stream is not None:
            self._stream.write(f"{self._cleared()}{text}\n")
            self._stream.flush()

    def position(self, epochs: float, seconds: float) -> None:
        """Move the bar; `epochs` counts the part of the running epoch that is done."""
        if not self._is_terminal or self._stream is None or time.perf_counter() < self._next_refresh:
            return
        self._next_refresh = time.perf_counter() + _REFRESH_SECONDS
        self._stream.write(self._cleared() + self._bar(epochs, seconds))
        self._stream.flush()

    def epoch_done(self, record: EpochRecord) -> None:
        """Show the numbers of an epoch."""
        self._last = record
        if self._is_terminal:
            self.position(record.epoch + 1, record.seconds)
        else:
            self.note(f"epoch {record.epoch + 1}  {describe(record)}")

    def close(self, reason: str) -> None:
        """Show how the run ended."""
        if self._is_terminal and self._last is not None:
            self.note(f"epoch {self._last.epoch + 1}  {describe(self._last)}")
        self.note(f"stopped: {reason}")

    def _bar(self, epochs: float, seconds: float) -> str:
        fraction = self._rules.fraction_done(epochs, seconds)
        last = self._rules.max_epochs
        filled = round(fraction * _BAR_WIDTH)
        parts = [
            f"epoch {min(int(epochs) + 1, last or sys.maxsize)}" + ("" if last is None else f"/{last}"),
            "#" * filled + "-" * (_BAR_WIDTH - filled),
            f"{duration(seconds * (1 - fraction) / fraction)} left" if fraction > 0 else "",
        ]
        room = shutil.get_terminal_size().columns - 1
        text = "  ".join(part for part in parts if part)
        if self._last is not None:
            text += f"  {describe(self._last, room - len(text) - 2)}"
        return text[:room]

    def _cleared(self) -> str:
        return "\r\x1b[K" if self._is_terminal else ""


def make_display(progress: bool, rules: StopRules) -> Display:
    """A display on standard error, or one that shows nothing."""
    return Display(rules, sys.stderr if progress else None)


def describe(record: EpochRecord, room: int = sys.maxsize) -> str:
    """The numbers of an epoch in at most `room` characters; the least important are left out, each as a whole."""
    parts = [f"loss {record.batch_loss:.5g}"]
    if record.validation_loss is not None:
        parts.append(f"validation {record.validation_loss:.5g}")
    parts += [f"{name} {value:.4g}" for name, value in record.metrics.items()]
    parts += [f"lr {record.lr:.3g}", record.outcome]
    if record.train_loss is not None:
        parts.append(f"true {record.train_loss:.5g}")
    parts += [f"evaluations {record.evaluations}", f"{record.seconds:.1f} s"]
    while len(parts) > 1 and len("  ".join(parts)) > room:
        parts.pop()
    return "  ".join(parts)
