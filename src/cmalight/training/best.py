"""The best weights seen, and how long ago that was."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from cmalight.evaluation.state import ModuleState
from cmalight.training.history import EpochRecord
from cmalight.training.measuring import BEST_WHEN_SMALL


class Best:
    """Watches "loss" or a metric of the history, and keeps a copy of the modules if they are to be restored."""

    def __init__(self, monitor: str, modules: list[nn.Module], *, keeps_weights: bool) -> None:
        self.epoch: int | None = None  # number of the best epoch
        self._monitor, self._modules, self._keeps_weights = monitor, modules, keeps_weights
        self._value = math.inf
        self._state: dict[str, Any] | None = None

    def see(self, record: EpochRecord) -> None:
        """Compare an epoch that is just done with the best one."""
        value = self._number(record)
        if value is not None and value < self._value:
            self._value, self.epoch = value, record.epoch
            if self._keeps_weights:
                self._state = pack_modules(self._modules)

    def epochs_since(self, epoch: int) -> int:
        """Epochs without a better number up to and including that one."""
        return epoch - self.epoch if self.epoch is not None else epoch + 1

    def restore(self) -> None:
        """Put the best weights back, if they were kept."""
        if self._state is not None:
            unpack_modules(self._modules, self._state)

    def _number(self, record: EpochRecord) -> float | None:
        """The smaller the better: what is best when large is turned round."""
        if self._monitor == "loss":
            return record.train_loss if record.validation_loss is None else record.validation_loss
        value = record.metrics[self._monitor]
        return value if self._monitor in BEST_WHEN_SMALL else -value

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"value": self._value, "epoch": self.epoch, "state": self._state}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """What `state_dict` gave."""
        self._value, self.epoch, self._state = saved["value"], saved["epoch"], saved["state"]


def modules_of(model: nn.Module, loss_fn: Any) -> list[nn.Module]:
    """The model and, if it is a module, the loss."""
    return [one for one in (model, loss_fn) if isinstance(one, nn.Module)]


def pack_modules(modules: list[nn.Module]) -> dict[str, Any]:
    """A copy of all parameters, buffers and extra state, as tensors and plain values."""
    parameters = [{name: p.detach().clone() for name, p in module.named_parameters()} for module in modules]
    return {"parameters": parameters, "modules": ModuleState(*modules).state_dict()}


@torch.no_grad()
def unpack_modules(modules: list[nn.Module], saved: dict[str, Any]) -> None:
    """Put back what `pack_modules` gave for modules of the same build.

    Raises:
        ValueError: The parameters have other names or shapes; nothing is changed then.
    """
    here = [dict(module.named_parameters()) for module in modules]
    shapes, found = (
        [{n: tuple(p.shape) for n, p in one.items()} for one in side] for side in (here, saved["parameters"])
    )
    if shapes != found:
        raise ValueError("the saved weights belong to another model")
    for one, values in zip(here, saved["parameters"], strict=True):
        for name, parameter in one.items():
            parameter.copy_(values[name])
    state = ModuleState(*modules)
    state.load_state_dict(saved["modules"])
    state.restore()
