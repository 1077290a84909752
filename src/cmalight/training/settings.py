"""What `fit` was asked for, and whether it can be done."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmalight.errors import unknown_name
from cmalight.evaluation.batches import Order
from cmalight.files import check_outputs
from cmalight.training.epochs.engine import EngineName
from cmalight.training.records.callbacks import Callback
from cmalight.training.records.clock import ClockName
from cmalight.training.records.metrics import MetricChoice, make_metrics
from cmalight.training.records.stopping import StopRules


@dataclass(frozen=True)
class FitSettings:
    """What `fit` was asked for, beside the model and the data."""

    rules: StopRules
    metrics: tuple[MetricChoice, ...]
    monitor: str
    measure_train_loss: bool
    restore_best: bool
    checkpoint: str | os.PathLike[str] | None
    checkpoint_seconds: float
    history_file: str | os.PathLike[str] | None
    callbacks: tuple[Any, ...]
    progress: bool
    batch_size: int
    order: Order
    seed: int
    engine: EngineName
    threads: int | None
    clock: ClockName = "wall"

    def check(self, *, has_validation: bool, watched: bool) -> None:
        self._check_files()
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise ValueError(f"Invalid callback: {callback!r} has no on_epoch_end(record)")
        names = tuple(make_metrics(self.metrics))
        if self.metrics and not has_validation:
            raise ValueError("metrics are measured on the validation data: pass validation=(inputs, targets)")
        if self.monitor not in ("loss", *names):
            raise ValueError(unknown_name("figure to monitor", self.monitor, ("loss", *names)))
        if self.rules.patience is not None and not has_validation:
            raise ValueError("patience waits for a better validation: pass validation=(inputs, targets)")
        if self.rules.tolerance is not None and not watched:
            raise ValueError("tolerance is about the direction of an epoch, which only our optimizers know")

    def measures_train_loss(self, *, has_validation: bool) -> bool:
        return self.measure_train_loss or (self.restore_best and not has_validation)

    def _check_files(self) -> None:
        """What would fail at the first save fails now."""
        files = {"checkpoint": self.checkpoint, "history_file": self.history_file}
        check_outputs({name: Path(path) for name, path in files.items() if path is not None}, ())
