"""A plain gradient step, by torch's own functional SGD: subclassing SGD would fire hooks twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer as torch_optimizer
from torch.optim.sgd import sgd

# Refuses parameters that a fused step cannot move; not in every version of torch.
_check_fused = getattr(torch_optimizer, "_device_dtype_check_for_fused", lambda _: None)


@torch.no_grad()
def gradient_step(
    params: Iterable[Tensor],
    lr: Any,
    *,
    weight_decay: float = 0.0,
    foreach: bool | None = None,
    fused: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """Take w ← w − lr (∇f(w) + weight_decay w) for all parameters that have a gradient.

    Args:
        params: Of one parameter group.
        lr: The learning rate.
        weight_decay: As in torch.optim.SGD.
        foreach: As in torch.optim.SGD.
        fused: As in torch.optim.SGD.
        grad_scale: Of GradScaler, for a fused step.
        found_inf: Of GradScaler, for a fused step.
    """
    moving = [p for p in params if p.grad is not None and p.requires_grad]
    if fused:
        for p in moving:
            _check_fused(p)
    sgd(
        moving,
        [p.grad for p in moving],  # type: ignore[misc]
        [None] * len(moving),
        has_sparse_grad=any(p.grad.is_sparse for p in moving),  # type: ignore[union-attr]
        foreach=foreach,
        fused=fused,
        grad_scale=grad_scale,
        found_inf=found_inf,
        weight_decay=weight_decay,
        momentum=0.0,
        lr=lr,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )
