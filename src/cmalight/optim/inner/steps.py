"""What a step is, where it is judged and what it remembers: all that the bracket asks of an inner optimizer."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, _device_dtype_check_for_fused
from torch.optim.sgd import sgd

from cmalight.optim.inner.inner_state import InnerState


class Steps(Protocol):
    """The steps of an inner cycle."""

    def take(self, scale: float) -> None:
        """One step on the gradients as they are, `scale` times as long as `lr` says where that makes sense."""

    def weight_decay_of(self, group: dict[str, Any]) -> float:
        """The factor whose half weighs ‖w‖² in the objective."""

    def remembered(self) -> InnerState | None:
        """A copy of what the steps remember; None where they remember nothing."""

    def to_training_point(self) -> None:
        """Before the steps of an epoch."""

    def to_judged_point(self) -> None:
        """After the steps of an epoch, and before any evaluation."""


class Stepping(Protocol):
    """An optimizer as its control sees it.

    Attributes:
        param_groups: As torch has them; the first one holds what the control remembers.
        steps: What a step is.
        owns_lr: Whether `lr` is the control's.
    """

    param_groups: list[dict[str, Any]]
    steps: Steps
    owns_lr: ClassVar[bool]


class GradientSteps:
    """Plain gradient steps, which are judged where they train and remember nothing.

    Args:
        optimizer: Whose groups are stepped; `grad_scale` and `found_inf` of GradScaler are attributes of it.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._fused_checked = False

    @torch.no_grad()
    def take(self, scale: float) -> None:
        """A plain gradient step by torch's own functional SGD: subclassing SGD would fire hooks twice."""
        optimizer = self._optimizer
        for group in optimizer.param_groups:
            if not group["lr"]:
                continue
            params: list[Tensor] = []
            grads: list[Tensor] = []
            has_sparse_grad = self._collect(group, params, grads)
            sgd(
                params,
                grads,
                [],
                has_sparse_grad=has_sparse_grad,
                foreach=group.get("foreach"),
                fused=group.get("fused"),
                grad_scale=getattr(optimizer, "grad_scale", None),
                found_inf=getattr(optimizer, "found_inf", None),
                weight_decay=self.weight_decay_of(group),
                momentum=0.0,
                lr=group["lr"] * scale,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
        self._fused_checked = True

    def _collect(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> bool:
        has_sparse_grad = False
        for p in group["params"]:
            if p.grad is None or not p.requires_grad:
                continue
            if group.get("fused") and not self._fused_checked:
                _device_dtype_check_for_fused(p)
            params.append(p)
            grads.append(p.grad)
            has_sparse_grad = has_sparse_grad or p.grad.is_sparse
        return has_sparse_grad

    def weight_decay_of(self, group: dict[str, Any]) -> float:
        """As torch has it: the gradient of (weight_decay/2) ‖w‖²."""
        return float(group["weight_decay"])

    def remembered(self) -> InnerState | None:
        """Nothing."""
        return None

    def to_training_point(self) -> None:
        """They are judged where they train."""

    def to_judged_point(self) -> None:
        """They are judged where they train."""


def trainable(group: dict[str, Any]) -> list[Tensor]:
    """The parameters of a group that are trained."""
    return [p for p in group["params"] if p.requires_grad]
