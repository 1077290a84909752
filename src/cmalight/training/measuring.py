"""Measuring: losses and metrics at the current weights, in eval mode and without a trace; and the best epoch."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.compiled import CannotCompile, Evaluator
from cmalight.errors import invalid
from cmalight.evaluation.counting import refuse_broadcast, sample_count
from cmalight.evaluation.objective import Objective
from cmalight.evaluation.randomness import random_state_kept
from cmalight.training.checkpoint import pack_modules, unpack_modules
from cmalight.training.history import EpochRecord

Metric = Callable[[Tensor, Tensor], Any]
Loss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Measured:
    """Numbers at some weights.

    Attributes:
        loss: Mean loss per sample.
        metrics: Metrics by name.
    """

    loss: float
    metrics: Mapping[str, float] = field(default_factory=dict)


def measure(
    model: nn.Module,
    loss_fn: Loss,
    batches: Any,
    metrics: Mapping[str, Metric] | None = None,
    *,
    evaluator: Evaluator | None = None,
) -> Measured:
    """Measure a model in eval mode. Weights, buffers, modes, data and random state stay as they are.

    Args:
        model: The model.
        loss_fn: `loss_fn(model(inputs), targets)` gives the mean loss of a batch.
        batches: Gives pairs (inputs, targets) on every pass.
        metrics: Functions of all outputs and all targets, by name.
        evaluator: An engine's evaluation of these batches, a `TensorBatches`, in eval mode; the eager one takes over
            if it cannot go on.

    Returns:
        The mean loss per sample, and the metrics.

    Raises:
        ValueError: The data have no samples, or are not pairs.
    """
    if evaluator is not None:
        with contextlib.suppress(CannotCompile):
            evaluator.refresh()
            if not metrics:
                return Measured(evaluator.loss())
            loss, output = evaluator.measure()
            return Measured(loss, _evaluated(metrics, output, batches.tensors[1].clone()))
    outputs: list[Tensor] = []
    targets: list[Tensor] = []

    def forward(network: nn.Module, batch: Any) -> tuple[Tensor, Any]:
        inputs, target = batch
        output = network(inputs)
        refuse_broadcast(output, target, loss_fn)
        outputs.append(output.cpu())
        targets.append(target.cpu())
        return loss_fn(output, target), sample_count(loss_fn, target)

    collecting = forward if metrics else None
    loss = Objective(model, loss_fn, batches, forward=collecting, mode="eval", process_group=False)()
    return Measured(loss, _evaluated(metrics, torch.cat(outputs), torch.cat(targets)) if metrics else {})


@torch.no_grad()
def _evaluated(metrics: Mapping[str, Metric], output: Tensor, target: Tensor) -> dict[str, float]:
    measured = {}
    with random_state_kept():
        for name, metric in metrics.items():
            try:
                measured[name] = float(metric(output, target))
            except Exception as error:
                raise ValueError(f"The metric {name} did not make a number of (outputs, targets): {error}") from error
    return measured


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """Fraction of samples given their class, a metric for `fit(metrics=)`.

    Args:
        output: One column per class; a single one means two classes, cut at 0.
        target: Labels or one-hot rows.

    Returns:
        The fraction.
    """
    if output.dim() < 2 or output.shape[1] == 1:
        return ((output.reshape(-1) > 0) == (target.reshape(-1) > 0.5)).double().mean()
    labels = target.argmax(1) if target.shape == output.shape else target
    return (output.argmax(1) == labels).double().mean()


def metrics_by_name(metrics: Any) -> dict[str, Metric]:
    """Each function by its `__name__`."""
    if not isinstance(metrics, Sequence) or not all(map(callable, metrics)):
        raise invalid("metrics", metrics, "a list of functions of all outputs and all targets")
    names = [str(getattr(metric, "__name__", type(metric).__name__)) for metric in metrics]
    if len({"loss", *names}) <= len(names):
        raise ValueError(f"Metrics need different names, none of them 'loss', but are called {names}: rename one")
    return dict(zip(names, metrics, strict=True))


class Best:
    """The epoch with the lowest loss, or the highest value of a metric, and its weights if they are to be restored."""

    def __init__(self, monitor: str, modules: Sequence[nn.Module], *, keeps_weights: bool) -> None:
        self.epoch: int | None = None
        self._monitor, self._modules, self._keeps_weights = monitor, modules, keeps_weights
        self._value = math.inf  # the smaller the better
        self._state: dict[str, Any] | None = None

    def see(self, record: EpochRecord) -> None:
        """Compare an epoch that is just done with the best one."""
        if self._monitor == "loss":
            value = record.train_loss if record.validation_loss is None else record.validation_loss
        else:
            value = -record.metrics[self._monitor]
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

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"value": self._value, "epoch": self.epoch, "state": self._state}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """What `state_dict` gave."""
        self._value, self.epoch, self._state = saved["value"], saved["epoch"], saved["state"]
