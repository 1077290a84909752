"""How many samples stand behind a batch and its mean loss, and shapes that torch would silently broadcast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


def batch_size(batch: Any) -> float | None:
    """The length of the first tensor in a batch, where there is one."""
    if isinstance(batch, Tensor):
        return float(len(batch)) if batch.dim() else None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((size for part in parts if (size := batch_size(part)) is not None), None)


def sample_count(loss_fn: Any, target: Any) -> float | None:
    """The denominator of the mean that `loss_fn` takes over `target`, in samples; None where it is not known."""
    by_class = isinstance(loss_fn, nn.CrossEntropyLoss | nn.NLLLoss) and isinstance(target, Tensor)
    if not by_class or target.is_floating_point() or target.dim() == 0:
        return batch_size(target)
    counted = target[target != loss_fn.ignore_index]
    weight = float(counted.numel()) if loss_fn.weight is None else float(loss_fn.weight[counted].sum())
    return weight * len(target) / int(target.numel())


def refuse_broadcast(output: Any, target: Any, loss_fn: Any) -> None:
    """Outputs (n, 1) against targets (n,) become (n, n) in torch's own losses, and a mean over that is meaningless."""
    if not (isinstance(output, Tensor) and isinstance(target, Tensor) and output.dim() == 2 and target.dim() == 1):
        return
    elementwise = isinstance(loss_fn, nn.modules.loss._Loss) and not isinstance(
        loss_fn, nn.CrossEntropyLoss | nn.NLLLoss | nn.MultiMarginLoss
    )
    if elementwise and output.shape[1] == 1 and len(target) > 1:
        raise ValueError(
            f"The model gives outputs {tuple(output.shape)} for targets {tuple(target.shape)}, which "
            f"{type(loss_fn).__name__} would broadcast against each other: give the targets a second dimension, "
            "target.unsqueeze(1)"
        )
