"""Shapes that do not fit, though torch would make them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


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
