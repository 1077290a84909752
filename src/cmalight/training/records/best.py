"""The best weights seen, and how long ago that was."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from cmalight.training.checkpoints.model_state import ModelState
from cmalight.training.records.history import EpochRecord
from cmalight.training.records.metrics import is_best_when_small


class Best:
    """Watches one figure of the history; keeps a copy of the weights where they are to be restored."""

    def __init__(self, *, monitor: str, keep_weights: bool) -> None:
        self.monitor = monitor
        self.value = math.inf
        self.epoch: int | None = None
        self._keep_weights = keep_weights
        self._state: ModelState | None = None

    def see(self, record: EpochRecord, model: nn.Module) -> None:
        value = self._figure(record)
        if value is not None and value < self.value:
            self.value, self.epoch = value, record.epoch
            if self._keep_weights:
                self._state = ModelState.of(model).copied()

    def epochs_since(self, epoch: int) -> int:
        return epoch - self.epoch if self.epoch is not None else epoch + 1

    def restore(self, model: nn.Module) -> None:
        if self._state is not None:
            self._state.put(model)

    def _figure(self, record: EpochRecord) -> float | None:
        """The smaller the better: what is best when large is turned round."""
        if self.monitor == "loss":
            return record.train_loss if record.validation_loss is None else record.validation_loss
        value = record.metrics[self.monitor]
        return value if is_best_when_small(self.monitor) else -value

    def to_plain(self) -> dict[str, Any]:
        state = None if self._state is None else self._state.to_plain()
        return {"value": self.value, "epoch": self.epoch, "state": state}

    def set_plain(self, plain: dict[str, Any]) -> None:
        self.value, self.epoch = plain["value"], plain["epoch"]
        self._state = None if plain["state"] is None else ModelState.from_plain(plain["state"])
