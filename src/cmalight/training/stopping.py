"""Why a run ends, one status per rule; Ctrl-C; and the clock that the time limit goes by."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Any, Literal

from cmalight.errors import check_positive, check_whole, invalid, is_number
from cmalight.training.history import EpochRecord

ClockName = Literal["wall", "processor"]


class Status(Enum):
    """The rule that ended a run."""

    MAX_EPOCHS = "max_epochs"
    TIME_LIMIT = "time_limit"
    TARGET_LOSS = "target_loss"
    PATIENCE = "patience"
    CONVERGED = "converged"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"
    CALLBACK = "callback"


class Stop(Exception):
    """Why a run ends: a status, and the sentence that says why. Raised inside an epoch, it breaks the epoch off."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class StopRules:
    """The limits of a run; None switches a rule off."""

    max_epochs: int | None = None
    time_limit: float | None = None
    target_loss: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.max_epochs is None and self.time_limit is None:
            raise ValueError("A run needs an end: give max_epochs, time_limit, or both")
        if self.max_epochs is not None:
            check_whole("max_epochs", self.max_epochs)
        if self.time_limit is not None:
            check_positive("time_limit", self.time_limit)
        if self.target_loss is not None and not is_number(self.target_loss):
            raise invalid("target_loss", self.target_loss, "a number")
        if self.patience is not None:
            check_whole("patience", self.patience, least=1)

    def fraction_done(self, epochs: float, seconds: float) -> float:
        """The fraction of the run that is done, by the limit that will end it first."""
        fractions = [(epochs, self.max_epochs), (seconds, self.time_limit)]
        return max(min(1.0, done / limit) if limit else 1.0 for done, limit in fractions if limit is not None)

    def out_of_time(self, seconds: float) -> Stop | None:
        """Asked before every batch."""
        if self.time_limit is not None and seconds >= self.time_limit:
            return Stop(Status.TIME_LIMIT, f"time limit of {self.time_limit:g} s reached")
        return None

    def before_epoch(self, epoch: int, seconds: float) -> Stop | None:
        """Whether another epoch may begin."""
        if self.max_epochs is not None and epoch >= self.max_epochs:
            return Stop(Status.MAX_EPOCHS, f"{self.max_epochs} epochs done")
        return self.out_of_time(seconds)

    def after_epoch(self, record: EpochRecord, epochs_since_best: int) -> Stop | None:
        """The first rule that applies to the epoch just done."""
        loss = record.batch_loss if record.train_loss is None else record.train_loss
        if self.target_loss is not None and loss <= self.target_loss:
            return Stop(Status.TARGET_LOSS, f"training loss {loss:.6g} reached the target {self.target_loss:g}")
        if record.outcome == "uncontrolled" and not math.isfinite(record.batch_loss):
            found = "NaN" if math.isnan(record.batch_loss) else "infinite"
            return Stop(
                Status.DIVERGED,
                f"the loss of epoch {record.epoch} is {found}, and this optimizer undoes no steps: check the data for "
                "NaN, lower lr, or take optimizer='auto'",
            )
        if self.patience is not None and epochs_since_best >= self.patience:
            return Stop(Status.PATIENCE, f"no better validation for {epochs_since_best} epochs")
        return None


class Interrupts:
    """Turns the first Ctrl-C into a request that is honoured at the next batch; a second one interrupts at once."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def processor_seconds() -> float:
    """The processor time of this process, all its threads, and the child processes it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


class TrainingClock:
    """Runs from `start()` to `stop()`, but not inside `with clock.paused():`.

    `kind` is "wall", or "processor" for the time that this process has the processor; `before` is the time before the
    clock was started last.
    """

    def __init__(self, kind: ClockName = "wall") -> None:
        self._now = processor_seconds if kind == "processor" else time.perf_counter
        self.before = 0.0
        self._running_since: float | None = None

    def seconds(self) -> float:
        """Training time so far."""
        if self._running_since is None:
            return self.before
        return self.before + self._now() - self._running_since

    def start(self) -> None:
        """Run from now on."""
        self._running_since = self._now()

    def stop(self) -> None:
        """Stand still from now on."""
        self.before, self._running_since = self.seconds(), None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stands still for as long as the block runs."""
        self.stop()
        try:
            yield
        finally:
            self.start()
