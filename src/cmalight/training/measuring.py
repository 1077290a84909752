"""Measuring: losses and metrics at the current weights, in eval mode and without a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.compiled import CannotCompile, Evaluator
from cmalight.errors import invalid, unknown_name
from cmalight.evaluation.counting import refuse_broadcast, sample_count
from cmalight.evaluation.objective import Objective
from cmalight.evaluation.randomness import random_state_kept

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
    if not metrics:
        return Measured(loss)
    return Measured(loss, _evaluated(metrics, torch.cat(outputs), torch.cat(targets)))


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


@dataclass
class Measuring:
    """What a run measures after each epoch: the data that are there."""

    model: nn.Module
    loss_fn: Loss
    training: Iterable[Any] | None
    validation: Iterable[Any] | None
    metrics: Mapping[str, Metric]  # on the validation data
    evaluators: tuple[Evaluator | None, Evaluator | None] = (None, None)  # the engine's, of the two kinds of data

    def __call__(self) -> dict[str, Any]:
        """Measure now, and name the numbers as `EpochRecord` does."""
        found: dict[str, Any] = {}
        if self.training is not None:
            found["train_loss"] = measure(self.model, self.loss_fn, self.training, evaluator=self.evaluators[0]).loss
        if self.validation is not None:
            measured = measure(self.model, self.loss_fn, self.validation, self.metrics, evaluator=self.evaluators[1])
            found |= {"validation_loss": measured.loss, "metrics": measured.metrics}
        return found


def mse(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error over all elements."""
    return (output.reshape(target.shape).double() - target.double()).square().mean()


def mae(output: Tensor, target: Tensor) -> Tensor:
    """Mean absolute error over all elements."""
    return (output.reshape(target.shape).double() - target.double()).abs().mean()


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """Fraction of samples given their class, a label or a one-hot row; one output means two classes, cut at 0."""
    if output.dim() < 2 or output.shape[1] == 1:
        return ((output.reshape(-1) > 0) == (target.reshape(-1) > 0.5)).double().mean()
    labels = target.argmax(1) if target.shape == output.shape else target
    return (output.argmax(1) == labels).double().mean()


METRICS: dict[str, Metric] = {"accuracy": accuracy, "mse": mse, "mae": mae}

BEST_WHEN_SMALL = ("loss", "mse", "mae")
"""What `monitor` may name for which less is better; more of all other metrics is better."""


def make_metrics(chosen: Sequence[str | Metric]) -> dict[str, Metric]:
    """Metrics by name; a function goes by its `__name__`."""
    made: dict[str, Metric] = {}
    for metric in chosen:
        if not (isinstance(metric, str) or callable(metric)):
            raise invalid("metrics", metric, "a name or a function of all outputs and all targets")
        if isinstance(metric, str) and metric not in METRICS:
            known = unknown_name("metric", metric, METRICS)
            raise ValueError(f"{known}; for others pass a function of all outputs and all targets")
        name = metric if isinstance(metric, str) else str(getattr(metric, "__name__", type(metric).__name__))
        if name in made or (callable(metric) and name in ("loss", *METRICS)):
            raise ValueError(f"Two metrics are called {name!r}: rename one; a function goes by its __name__")
        made[name] = METRICS[metric] if isinstance(metric, str) else metric
    return made
