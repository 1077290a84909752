"""What a run shows while it runs: a bar on a terminal, one line per epoch in a CI log, else nothing."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, TextIO

from cmalight.errors import duration
from cmalight.training.records.history import EpochRecord
from cmalight.training.solvers.run_budget import share_done

_REFRESH_SECONDS = 0.2
_BAR_WIDTH, _LEFT_WIDTH = 16, 12


class RunDisplay:
    """Told of the run's course; shows nothing."""

    def note(self, text: str) -> None: ...
    def within_epoch(self, epochs_done: float, seconds: float) -> None: ...
    def epoch_done(self, record: EpochRecord) -> None: ...
    def close(self, reason: str) -> None: ...


def make_display(progress: bool, *, max_epochs: int | None, time_limit: float | None) -> RunDisplay:
    """The display that fits where standard error goes."""
    if not progress:
        return RunDisplay()
    if sys.stderr.isatty():
        try:
            return Bar(max_epochs=max_epochs, time_limit=time_limit)
        except ImportError:
            return EpochLines(sys.stderr)
    return EpochLines(sys.stderr) if os.environ.get("CI") else RunDisplay()


class EpochLines(RunDisplay):
    """One line per epoch."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def note(self, text: str) -> None:
        self._stream.write(f"{text}\n")

    def epoch_done(self, record: EpochRecord) -> None:
        self._stream.write(f"epoch {record.epoch + 1}  {describe(record)}\n")
        self._stream.flush()

    def close(self, reason: str) -> None:
        self._stream.write(f"stopped: {reason}\n")
        self._stream.flush()


class Bar(RunDisplay):
    """A rich progress bar with the last epoch's figures and the time left."""

    def __init__(self, *, max_epochs: int | None, time_limit: float | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self._max_epochs = max_epochs
        self._time_limit = time_limit
        self._next_refresh = 0.0
        self._last: EpochRecord | None = None
        self._console = Console(stderr=True)
        columns: list[Any] = [
            TextColumn("[bold]epoch {task.fields[epoch]}", table_column=Column(no_wrap=True, min_width=11)),
            BarColumn(bar_width=_BAR_WIDTH, table_column=Column(min_width=8)),
            TextColumn("[cyan]{task.fields[left]}", table_column=Column(no_wrap=True, min_width=_LEFT_WIDTH)),
            TextColumn("{task.fields[figures]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        ]
        self._bar = Progress(*columns, console=self._console, auto_refresh=False, transient=True, expand=True)
        self._task = self._bar.add_task("", total=1.0, epoch="1", figures="", left="")
        self._bar.start()

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def within_epoch(self, epochs_done: float, seconds: float) -> None:
        now = time.perf_counter()
        if now >= self._next_refresh:
            self._next_refresh = now + _REFRESH_SECONDS
            self._show(epochs_done, seconds)

    def epoch_done(self, record: EpochRecord) -> None:
        self._last = record
        self.within_epoch(record.epoch + 1, record.seconds)

    def close(self, reason: str) -> None:
        self._bar.stop()
        figures = "" if self._last is None else f"epoch {self._last.epoch + 1}  {describe(self._last)}\n"
        self._console.print(f"{figures}stopped: {reason}", markup=False, highlight=False)

    def _show(self, epochs_done: float, seconds: float) -> None:
        share = share_done(epochs_done, seconds, max_epochs=self._max_epochs, time_limit=self._time_limit)
        epoch = f"{int(epochs_done) + 1}" + ("" if self._max_epochs is None else f"/{self._max_epochs}")
        others = max(11, len(f"epoch {epoch}")) + _BAR_WIDTH + _LEFT_WIDTH + 3  # with a blank after each
        left = seconds * (1 - share) / share if share > 0 else 0.0
        self._bar.update(
            self._task,
            completed=share,
            epoch=epoch,
            figures="" if self._last is None else describe(self._last, self._console.width - others),
            left=f"{duration(left)} left" if share > 0 else "",
        )
        self._bar.refresh()


def describe(record: EpochRecord, room: int | None = None) -> str:
    """The figures of an epoch in one line.

    Args:
        record: the epoch.
        room: so many characters at most; what does not fit is left out whole, the least important first.
    """
    parts = [f"loss {record.f_tilde:.5g}"]
    if record.validation_loss is not None:
        parts.append(f"validation {record.validation_loss:.5g}")
    parts += [f"{name} {value:.4g}" for name, value in record.metrics.items()]
    parts += [f"lr {record.lr:.3g}", record.outcome]
    if record.train_loss is not None:
        parts.append(f"true {record.train_loss:.5g}")
    parts += [f"evaluations {record.evaluations}", f"{record.seconds:.1f} s"]
    while room is not None and len(parts) > 1 and len("  ".join(parts)) > room:
        parts.pop()
    return "  ".join(parts)
