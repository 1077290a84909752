"""Losses and metrics for the history: taken beside the training, which does not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.counting import sample_count
from cmalight.evaluation.merging import merged
from cmalight.evaluation.undisturbed import undisturbed
from cmalight.training.feed import to_device
from cmalight.training.metrics import MetricChoice, make_metrics


@torch.no_grad()
def measure(
    model: nn.Module,
    loss_fn: Callable[[Any, Any], Tensor],
    loader: Iterable[Any],
    chosen: Sequence[MetricChoice],
    device: torch.device,
) -> tuple[float, dict[str, float]]:
    """Mean loss and metrics over `loader` in eval mode."""
    metrics = make_metrics(chosen)
    total, samples = 0.0, 0.0
    with undisturbed(model, loader, loss_fn):
        model.eval()
        for inputs, target in merged(loader, model) if isinstance(loader, TensorBatches) else loader:
            target = to_device(target, device)
            output = model(to_device(inputs, device))
            count = sample_count(loss_fn, target) or 0.0
            total += float(loss_fn(output, target)) * count
            samples += count
            for metric in metrics.values():
                metric.update(output, target)
    if not samples:
        raise ValueError("The validation data gave no batch; it must give at least one, on every pass")
    return total / samples, {name: metric.value() for name, metric in metrics.items()}
