"""The white list of losses, by exact type and option."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.compiled.interface import CannotCompile, LossKind

_KINDS: dict[type[nn.Module], LossKind] = {
    nn.MSELoss: LossKind.MSE,
    nn.L1Loss: LossKind.L1,
    nn.BCEWithLogitsLoss: LossKind.BCE,
    nn.CrossEntropyLoss: LossKind.CROSS_ENTROPY,
}


@dataclass(frozen=True)
class LossSpec:
    """A loss of the kernel.

    Attributes:
        kind: Which one.
        size: Numbers per sample that go in.
        weight: Weight of each of them, or of each class.
        positive_weight: `pos_weight` of each of them.
        ignored: The label that does not count.
        smoothing: Of the labels.
    """

    kind: LossKind
    size: int
    weight: Tensor | None = None
    positive_weight: Tensor | None = None
    ignored: int = 0
    smoothing: float = 0.0


def lower_loss(loss_fn: Any, shape: tuple[int, ...], dtype: torch.dtype, targets: Tensor) -> LossSpec:
    """The loss of outputs of a shape against targets.

    Args:
        loss_fn: A loss module.
        shape: Of the model's output for one sample.
        dtype: Of the model's output.
        targets: The targets of all samples.

    Returns:
        The loss, with its weights as they are now.

    Raises:
        CannotCompile: It is not on the white list.
    """
    kind = _KINDS.get(type(loss_fn))
    name = getattr(type(loss_fn), "__name__", repr(loss_fn))
    if kind is None:
        raise CannotCompile(f"the loss {name} is not one of {', '.join(one.__name__ for one in _KINDS)}")
    if loss_fn._forward_hooks or loss_fn._forward_pre_hooks or loss_fn._backward_hooks or loss_fn._backward_pre_hooks:
        raise CannotCompile(f"{name} has hooks")
    if "forward" in loss_fn.__dict__:
        raise CannotCompile(f"{name} has a forward of its own")
    if loss_fn.reduction != "mean":
        raise CannotCompile(f"{name} has reduction={loss_fn.reduction!r}; expected 'mean'")
    if kind is LossKind.CROSS_ENTROPY:
        if len(shape) != 1 or targets.dim() != 1 or targets.dtype != torch.int64:
            raise CannotCompile("CrossEntropyLoss is compiled for one row of logits and one int64 label per sample")
        if loss_fn.weight is not None and tuple(loss_fn.weight.shape) != shape:
            raise CannotCompile(f"CrossEntropyLoss has {len(loss_fn.weight)} weights for {shape[0]} classes")
        return LossSpec(
            kind,
            shape[0],
            weight=_expanded(loss_fn.weight, shape, dtype),
            ignored=int(loss_fn.ignore_index),
            smoothing=float(loss_fn.label_smoothing),
        )
    if targets.dtype != dtype or tuple(targets.shape[1:]) != shape:
        raise CannotCompile(
            f"targets ({targets.dtype}, {tuple(targets.shape[1:])}) do not match the model's outputs ({dtype}, {shape})"
        )
    size = math.prod(shape)
    if kind is not LossKind.BCE:
        return LossSpec(kind, size)
    weight, positive = (_expanded(one, shape, dtype) for one in (loss_fn.weight, loss_fn.pos_weight))
    return LossSpec(kind, size, weight=weight, positive_weight=positive)


def _expanded(weight: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
    """One weight per number of a sample."""
    if weight is None:
        return None
    if type(weight) is not Tensor or weight.dtype != dtype or weight.device.type != "cpu" or weight.requires_grad:
        raise CannotCompile(f"a weight of the loss is not a plain {dtype} tensor on the CPU")
    if weight.dim() > len(shape) or any(a not in (1, b) for a, b in zip(weight.shape[::-1], shape[::-1], strict=False)):
        raise CannotCompile(f"a weight of the loss has the shape {tuple(weight.shape)}, samples have {shape}")
    return weight.expand(shape).contiguous()
