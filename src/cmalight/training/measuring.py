"""Losses and metrics beside the training, which does not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.evaluation.counting import sample_count
from cmalight.evaluation.randomness import random_state_kept
from cmalight.evaluation.state import modules_kept
from cmalight.training.data import OwnedPairs, device_of
from cmalight.training.metrics import Metric, evaluate_metrics


@torch.no_grad()
def validate(
    model: nn.Module, loss_fn: Callable[[Any, Any], Tensor], batches: Iterable[Any], metrics: dict[str, Metric]
) -> tuple[float, dict[str, float]]:
    """Mean loss and metrics in eval mode, without a trace.

    Raises:
        ValueError: There is no batch.
    """
    total, samples = 0.0, 0.0
    outputs: list[Tensor] = []
    targets: list[Tensor] = []
    with random_state_kept(model), modules_kept(*modules_of(model, loss_fn)):
        model.eval()
        for inputs, target in OwnedPairs(batches, device_of(model)):
            output = model(inputs)
            count = sample_count(loss_fn, target) or 0.0
            total += float(loss_fn(output, target)) * count
            samples += count
            if metrics:
                outputs.append(output)
                targets.append(target)
    if not samples:
        raise ValueError("The validation data gave no batch; it must give at least one on every pass")
    return total / samples, evaluate_metrics(metrics, outputs, targets)


def modules_of(model: nn.Module, loss_fn: Any) -> list[nn.Module]:
    """The model and, where it is a module, the loss."""
    return [one for one in (model, loss_fn) if isinstance(one, nn.Module)]
