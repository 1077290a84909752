"""Callbacks: objects that a run calls after each epoch."""

from __future__ import annotations

import os
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
            record: The figures of the epoch.

        Returns:
            True to stop the run.
        """


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
        """Write the figures of an epoch.

        Args:
            record: The figures.
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
