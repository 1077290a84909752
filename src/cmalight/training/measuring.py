"""Losses and metrics at the current weights, in eval mode and without a trace; after each epoch; the best epoch."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cmalight.compiled import CannotCompile, Evaluator
from cmalight.errors import invalid, unknown_name
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


def named_metrics(given: Any, monitor: str, patience: int | None, *, has_validation: bool) -> dict[str, Metric]:
    """Each metric by its `__name__`; raises ValueError if that, or what `monitor` and `patience` go by, cannot be."""
    if not isinstance(given, Sequence) or not all(map(callable, given)):
        raise invalid("metrics", given, "a list of functions of all outputs and all targets")
    names = [str(getattr(metric, "__name__", type(metric).__name__)) for metric in given]
    if len({"loss", *names}) <= len(names):
        raise ValueError(f"Metrics need different names, none of them 'loss', but are called {names}: rename one")
    if not has_validation and (names or patience is not None):
        raise ValueError("metrics and patience go by the validation data: pass validation=(inputs, targets)")
    if monitor not in ("loss", *names):
        raise ValueError(unknown_name("number to monitor", monitor, ("loss", *names)))
    return dict(zip(names, given, strict=True))


def native(objective: Objective, data: Any, mode: Literal["train", "eval"]) -> Evaluator | None:
    """The kernel's evaluation of an objective's model and loss on some data; None if it does not know them."""
    with contextlib.suppress(Exception):  # the eager evaluation needs no reason
        return Evaluator(objective.model, objective.loss_fn, data, mode=mode)
    return None


class Measuring:
    """What is measured after each epoch; and the best epoch by it, with its weights if they are to be restored.

    The best epoch has the lowest loss, on the validation data if there are any, or the highest value of the metric
    `monitor`.
    """

    def __init__(
        self,
        objective: Objective,
        validation: Any,
        metrics: Mapping[str, Metric],
        monitor: str,
        *,
        measures_training: bool,
        keeps_weights: bool,
        compiles: bool,
    ) -> None:
        self.best: int | None = None
        self._objective, self._metrics, self._monitor = objective, metrics, monitor
        self._training, self._validation = objective.data if measures_training else None, validation
        self._keeps_weights, self._compiles = keeps_weights, compiles
        self._evaluators: dict[int, Evaluator | None] = {}  # by the identity of the data
        self._value = math.inf  # of the best epoch: the smaller the better
        self._state: dict[str, Any] | None = None

    def numbers(self) -> dict[str, Any]:
        """Measure the model as it is now: what a record says of it, by field of `EpochRecord`."""
        said: dict[str, Any] = {}
        if self._training is not None:
            said["train_loss"] = self._measured(self._training, {}).loss
        if self._validation is not None:
            measured = self._measured(self._validation, self._metrics)
            said |= {"validation_loss": measured.loss, "metrics": measured.metrics}
        return said

    def _measured(self, data: Any, metrics: Mapping[str, Metric]) -> Measured:
        objective, known = self._objective, self._evaluators
        loss_fn: Any = objective.loss_fn
        if id(data) not in known:
            known[id(data)] = native(objective, data, "eval") if self._compiles else None
        return measure(objective.model, loss_fn, data, metrics, evaluator=known[id(data)])

    def see(self, record: EpochRecord) -> None:
        """Compare an epoch that is just done with the best one."""
        if self._monitor == "loss":
            value = record.train_loss if record.validation_loss is None else record.validation_loss
        else:
            value = -record.metrics[self._monitor]
        if value is not None and value < self._value:
            self._value, self.best = value, record.epoch
            if self._keeps_weights:
                self._state = pack_modules(self._objective.modules)

    def epochs_since_best(self, epoch: int) -> int:
        """Epochs without a better number up to and including that one."""
        return epoch - self.best if self.best is not None else epoch + 1

    def restore_best(self) -> None:
        """Put the best weights back, if they were kept."""
        if self._state is not None:
            unpack_modules(self._objective.modules, self._state)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"value": self._value, "epoch": self.best, "state": self._state}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """What `state_dict` gave."""
        self._value, self.best, self._state = saved["value"], saved["epoch"], saved["state"]
