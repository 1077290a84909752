"""Where a run is: its steps, its losses, its time; what stops it inside an epoch; and its callbacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from cmalight.evaluation.norms import accumulation_dtype
from cmalight.training.history import Display, EpochRecord
from cmalight.training.stopping import ClockName, Interrupts, Status, Stop, StopRules, TrainingClock

if TYPE_CHECKING:
    from cmalight.training.steps import PlainSteps

# Ctrl-C and the time limit are honoured within about this time in compiled epochs.
_CHUNK_SECONDS = 0.05


@runtime_checkable
class Callback(Protocol):
    """Called after every epoch. `close()`, if it exists, is called at the end of the run."""

    def on_epoch_end(self, record: EpochRecord) -> bool | None:
        """Called after each epoch.

        Args:
            record: The numbers of the epoch.

        Returns:
            True to stop the run.
        """


@dataclass(frozen=True)
class Position:
    """Where a run is after a step. Everything counts from the start of the run, epochs before a resume included.

    Attributes:
        steps: Steps, including undone ones.
        epochs: Passes over the training data, with the part of the running one that is done.
        seconds: Training time, without measuring.
        batch_loss: Mean loss of the batches since the last position, each at the weights before its step.
        lr: Learning rate of the last step.
        evaluations: Full passes over the training data that the optimizer made.
        evaluated_rows: Rows that the optimizer evaluated.
    """

    steps: int
    epochs: float
    seconds: float
    batch_loss: float
    lr: float
    evaluations: int
    evaluated_rows: int


@runtime_checkable
class StepCallback(Callback, Protocol):
    """A callback that is also called after the steps that it asks for, in either engine."""

    def next_step(self) -> int | None:
        """Asked at the start of the run and after each `on_step`.

        Returns:
            The number of the step, from 1, after which to call `on_step`; one that has passed already means the next
            step. None: never again.
        """

    def on_step(self, position: Position) -> bool | None:
        """Called after the step, and after the judgement that it completes, with the training clock paused.

        The model is where the optimizer has it now, within an epoch of CMALight, too. Measure it by
        `cmalight.training.measure`, which leaves no trace.

        Args:
            position: Where the run is.

        Returns:
            True to stop the run.
        """


@contextmanager
def closing(callbacks: Sequence[Callback]) -> Iterator[None]:
    """At the end of the block all callbacks are closed, in their order; if one raises, the others are closed first."""
    with ExitStack() as stack:
        for callback in reversed(callbacks):
            stack.callback(getattr(callback, "close", lambda: None))
        yield


class Tracker:
    """Counts the steps of a run: `steps` of all epochs, undone ones included, and `batch` of the running epoch.

    `batches_per_epoch` is None if nobody knows. Callbacks that are `StepCallback` are called after the steps that they
    ask for.
    """

    def __init__(
        self,
        rules: StopRules,
        clock: ClockName,
        batches_per_epoch: int | None,
        callbacks: Sequence[Callback],
        display: Display,
    ) -> None:
        self.rules, self.clock, self.display = rules, TrainingClock(clock), display
        self.interrupts = Interrupts()
        self.epochs = self.steps = self.batch = 0
        self._batches_per_epoch = batches_per_epoch
        self._callbacks = [one for one in callbacks if isinstance(one, StepCallback)]
        self._due: list[int | None] = []
        self._work_before = (0, 0)  # evaluations and rows to add to those that the objective counts
        self._asked = 0  # how often the optimizer has asked for its progress since the last batch or chunk
        self._epoch_loss, self._position_loss = MeanLoss(), MeanLoss()

    def resume(self, seconds: float, epochs: int, steps: int, work: tuple[int, int]) -> None:
        """Go on from a checkpoint; before `begin`."""
        self.clock.before, self.epochs, self.steps, self._work_before = seconds, epochs, steps, work

    def begin(self, steps: PlainSteps) -> None:
        """The run of these steps starts: so does the clock, and callbacks say what they wait for."""
        self._kind, before, counted = steps, self._work_before, steps.counts()
        self._work_before = before[0] - counted[0], before[1] - counted[1]  # another run may have counted
        self._due = [callback.next_step() for callback in self._callbacks]
        self.clock.start()

    def begin_epoch(self) -> None:
        """The first batch comes next."""
        self.batch, self._epoch_loss = 0, MeanLoss()

    def end_epoch(self) -> Stop | None:
        """The epoch is done and judged; the stop that a callback of its last step asked for."""
        self.epochs, self.batch = self.epochs + 1, 0
        return self._call_callbacks()

    def batch_loss(self) -> float:
        """The mean loss of the batches of the epoch; ValueError if there was none."""
        if not self._epoch_loss.samples:
            raise ValueError("The data gave no batch; it must give at least one on every pass")
        return self._epoch_loss.mean()

    def work(self) -> tuple[int, int]:
        """Evaluations and evaluated rows of the run."""
        evaluations, rows = self._kind.counts()
        return self._work_before[0] + evaluations, self._work_before[1] + rows

    def interrupted(self) -> Stop | None:
        """The stop that Ctrl-C asked for, if it was pressed."""
        return Stop(Status.INTERRUPTED, "interrupted by Ctrl-C") if self.interrupts.requested else None

    def stop_if_asked(self) -> None:
        """Asked before each batch, also of an evaluation; raises Stop if the time is over, or after a Ctrl-C."""
        if (stop := self.rules.out_of_time(self.clock.seconds()) or self.interrupted()) is not None:
            raise stop

    def before(self) -> None:
        """Called before a batch, or a chunk of them; raises as `stop_if_asked`."""
        self._asked = 0
        self.stop_if_asked()
        self.display.position(self._passes(), self.clock.seconds())

    def after(self, losses: Tensor, counts: Sequence[float]) -> None:
        """Called after an eager step, with its loss and its samples, or a chunk of compiled ones; may raise Stop."""
        self.steps, self.batch = self.steps + len(counts), self.batch + len(counts)
        self._epoch_loss.add(losses, counts)
        if not self._due:
            return
        self._position_loss.add(losses, counts)
        # The callbacks of an epoch's last step see the weights that its judgement leads to.
        if self.batch != self._batches_per_epoch and (stop := self._call_callbacks()) is not None:
            raise stop

    def in_chunks(self, sizes: Sequence[float], take: Callable[[slice], Tensor]) -> Tensor:
        """Take the steps of an epoch, on batches of these sizes, by `take`, which gives their losses; and all losses.

        A chunk of steps takes a moment, and ends at a step that a callback asks for.
        """
        losses: list[Tensor] = []
        first, wanted = 0, 1
        while first < len(sizes):
            self.before()
            dues = (max(1, due - self.steps) for due in self._due if due is not None)
            count = min(wanted, len(sizes) - first, *dues)
            chunk, started = slice(first, first + count), self.clock.seconds()
            losses.append(take(chunk))
            self.after(losses[-1], sizes[chunk])
            first += count
            if self.clock.seconds() - started > _CHUNK_SECONDS / 2:
                wanted = max(1, count // 2)
            elif count == wanted:
                wanted *= 2
        return torch.cat(losses)

    def fraction(self, ahead: float) -> float:
        """The fraction of the run that is done `ahead` batches from now."""
        return self.rules.fraction_done(self._passes(ahead), self.clock.seconds())

    def budget(self) -> dict[str, Any]:
        """How an optimizer with a schedule is told the length of the run: arguments of its constructor."""
        rules = self.rules
        if rules.time_limit is None and rules.max_epochs is not None and self._batches_per_epoch is not None:
            return {"total_steps": max(1, rules.max_epochs * self._batches_per_epoch)}
        return {"progress": self._progress}

    def _progress(self) -> float:
        """The fraction in the middle of the next step; asked once per step, also ahead for the steps of a chunk."""
        self._asked += 1
        return self.fraction(self._asked - 0.5)

    def _passes(self, ahead: float = 0.0) -> float:
        return self.epochs + ((self.batch + ahead) / self._batches_per_epoch if self._batches_per_epoch else 0.0)

    def position(self) -> Position:
        """Where the run is now."""
        evaluations, rows = self.work()
        return Position(
            steps=self.steps,
            epochs=self._passes(),
            seconds=self.clock.seconds(),
            batch_loss=self._position_loss.mean(),
            lr=self._kind.lr,
            evaluations=evaluations,
            evaluated_rows=rows,
        )

    def _call_callbacks(self) -> Stop | None:
        called = [place for place, due in enumerate(self._due) if due is not None and due <= self.steps]
        if not called:
            return None
        with self.clock.paused(), self._kind.measuring_point():
            position = self.position()
            self._position_loss = MeanLoss()
            asked = [self._callbacks[place].on_step(position) for place in called]
            for place in called:
                self._due[place] = self._callbacks[place].next_step()
        return Stop(Status.CALLBACK, "a callback asked for it") if any(asked) else None


class MeanLoss:
    """A mean loss per sample. A single loss is added on its device, without waiting for it."""

    def __init__(self) -> None:
        self._total: Tensor | float = 0.0
        self.samples = 0.0

    def add(self, losses: Tensor, counts: Sequence[float]) -> None:
        """Add the mean losses of batches of `counts` samples, one after the other: how they are cut does not matter."""
        if losses.dim():
            for loss, count in zip(losses.tolist(), counts, strict=True):
                self._total = self._total + loss * count
        else:
            self._total = self._total + losses.detach().to(accumulation_dtype(losses.device)) * counts[0]
        self.samples += sum(counts)

    def mean(self) -> float:
        """The mean loss per sample; NaN if nothing was added."""
        return float(self._total) / self.samples if self.samples else math.nan
