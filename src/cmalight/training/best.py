"""The best weights seen, and how long ago that was."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from cmalight.training.history import EpochRecord


class Best:
    """Watches one figure of the history; keeps a copy of the weights where they are to be restored."""

    def __init__(self, *, monitor: str, keep_weights: bool) -> None:
        self.monitor = monitor
        self.value = math.inf
        self.epoch: int | None = None
        self._keep_weights = keep_weights
        self._state: dict[str, torch.Tensor] | None = None

    def see(self, record: EpochRecord, model: nn.Module) -> None:
        value = self._figure(record)
        if value is not None and value < self.value:
            self.value, self.epoch = value, record.epoch
            if self._keep_weights:
                self._state = {name: tensor.detach().clone() for name, tensor in _all_state(model).items()}

    def epochs_since(self, epoch: int) -> int:
        return epoch - self.epoch if self.epoch is not None else epoch + 1

    @torch.no_grad()
    def restore(self, model: nn.Module) -> None:
        if self._state is not None:
            put_state(model, self._state)

    def _figure(self, record: EpochRecord) -> float | None:
        """The smaller the better: what is best when large is turned round."""
        if self.monitor == "loss":
            return record.train_loss if record.validation_loss is None else record.validation_loss
        value = record.metrics[self.monitor]
        return value if self.monitor == "mse" else -value

    def to_plain(self) -> dict[str, Any]:
        return {"value": self.value, "epoch": self.epoch, "state": self._state}

    def set_plain(self, plain: dict[str, Any]) -> None:
        self.value, self.epoch, self._state = plain["value"], plain["epoch"], plain["state"]


def _all_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and all buffers, those that `state_dict` leaves out included."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def get_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """What `put_state` puts back; not a copy."""
    return {name: tensor.detach() for name, tensor in _all_state(model).items()}


@torch.no_grad()
def put_state(model: nn.Module, state: dict[str, torch.Tensor]) -> None:
    own = _all_state(model)
    if own.keys() != state.keys() or any(own[name].shape != state[name].shape for name in own):
        raise ValueError("the saved weights belong to another model: names or shapes differ")
    for name, tensor in own.items():
        tensor.copy_(state[name])
