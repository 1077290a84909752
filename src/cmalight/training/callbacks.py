"""Callbacks: objects that a run calls after each epoch, and after the steps that they ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cmalight.errors import needed
from cmalight.training.history import EpochRecord


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


@runtime_checkable
class Closable(Protocol):
    """A callback that wants to know the end of the run."""

    def close(self) -> None:
        """Called once, however the run ends."""


@contextmanager
def closing(callbacks: Sequence[Callback]) -> Iterator[None]:
    """At the end of the block all callbacks are closed, in their order; if one raises, the others are closed first."""
    with ExitStack() as stack:
        for callback in reversed(callbacks):
            if isinstance(callback, Closable):
                stack.callback(callback.close)
        yield


class TensorBoard:
    """Writes losses, learning rate, outcome and metrics as scalars for TensorBoard.

    Args:
        folder: Folder of the log.

    Raises:
        ImportError: TensorBoard is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        with needed("TensorBoard needs its writer", "tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer: Any = SummaryWriter(os.fspath(Path(folder).absolute()))

    def on_epoch_end(self, record: EpochRecord) -> None:
        """Write the numbers of an epoch.

        Args:
            record: The numbers.
        """
        scalars = {
            "loss/batch": record.batch_loss,
            "loss/train": record.train_loss,
            "loss/validation": record.validation_loss,
            "control/lr": record.lr,
            "control/alpha": record.alpha,
            "control/evaluations": record.evaluations,
            f"outcome/{record.outcome}": 1.0,
            **{f"metric/{name}": value for name, value in record.metrics.items()},
        }
        for name, value in scalars.items():
            if value is not None:
                self._writer.add_scalar(name, value, record.epoch)

    def close(self) -> None:
        """Finish the log."""
        self._writer.close()
