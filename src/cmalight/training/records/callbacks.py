"""What a user may have called in a run."""

from __future__ import annotations

import os
from typing import Any, Protocol, runtime_checkable

from cmalight.errors import needed
from cmalight.training.records.history import EpochRecord


@runtime_checkable
class Callback(Protocol):
    """Told of every epoch; returning True asks the run to stop. `close` is called at the end, where there is one."""

    def on_epoch_end(self, record: EpochRecord) -> bool | None:
        """After each epoch.

        Args:
            record: its figures.

        Returns:
            True to ask for a stop.
        """


class TensorBoard:
    """Writes loss, lr, outcome and evaluations as scalars for TensorBoard.

    Args:
        folder: of the log.

    Raises:
        ImportError: if its writer is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        with needed("TensorBoard needs its writer", "tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer: Any = SummaryWriter(os.fspath(folder))

    def on_epoch_end(self, record: EpochRecord) -> None:
        """Write the figures of an epoch.

        Args:
            record: that has them.
        """
        scalars = {
            "loss/f_tilde": record.f_tilde,
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
