"""The white list of losses, by exact type and option."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.compiled.interface import CannotCompile, Job, LossKind
from cmalight.compiled.layers import Stack, refuse_changed

_KINDS: dict[type[nn.Module], LossKind] = {
    nn.MSELoss: LossKind.MSE,
    nn.L1Loss: LossKind.L1,
    nn.BCEWithLogitsLoss: LossKind.BCE,
    nn.CrossEntropyLoss: LossKind.CROSS_ENTROPY,
}


def lower_loss(loss_fn: Any, stack: Stack, targets: Tensor, job: Job) -> list[Tensor]:
    """Put the loss of a stack's outputs against targets into the job; CannotCompile if it is not on the white list.

    Returns:
        The weights whose addresses are in the job, and which have to live as long as it.
    """
    name, shape = type(loss_fn).__name__, stack.shape
    kind = _KINDS.get(type(loss_fn))
    if kind is None:
        raise CannotCompile(f"the loss {name} is not one of {', '.join(one.__name__ for one in _KINDS)}")
    refuse_changed(loss_fn)
    if loss_fn.reduction != "mean":
        raise CannotCompile(f"{name} has reduction={loss_fn.reduction!r}; expected 'mean'")
    job.loss, job.target_size = kind, math.prod(shape)
    if kind is LossKind.CROSS_ENTROPY:
        if len(shape) != 1 or targets.dim() != 1 or targets.dtype != torch.int64:
            raise CannotCompile("CrossEntropyLoss is compiled for one row of logits and one int64 label per sample")
        job.ignored, job.smoothing = loss_fn.ignore_index, loss_fn.label_smoothing
    elif targets.dtype != stack.dtype or tuple(targets.shape[1:]) != shape:
        given, wanted = (targets.dtype, tuple(targets.shape[1:])), (stack.dtype, shape)
        raise CannotCompile(f"targets {given} do not match the model's outputs {wanted}")
    kept = []
    for field, option in (("loss_weight", "weight"), ("positive_weight", "pos_weight")):
        weight = getattr(loss_fn, option, None)
        if weight is not None:
            kept.append(_expanded(weight, stack))
            setattr(job, field, kept[-1].data_ptr())
    return kept


def _expanded(weight: Tensor, stack: Stack) -> Tensor:
    """One weight per number of a sample."""
    if type(weight) is not Tensor or weight.dtype != stack.dtype or weight.device.type != "cpu" or weight.requires_grad:
        raise CannotCompile(f"a weight of the loss is not a plain {stack.dtype} tensor on the CPU")
    if tuple(weight.shape) not in ((), stack.shape):
        raise CannotCompile(f"a weight of the loss has the shape {tuple(weight.shape)}, samples have {stack.shape}")
    return weight.expand(stack.shape).contiguous()
