"""Losses in which samples count more or less than others: by their class, or each by its own weight."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn


class ClassWeighted(nn.Module):
    """Cross entropy in which a sample of class c counts `weight[c]` times, in every batch alike.

    `nn.CrossEntropyLoss(weight=...)` divides by the weights that are in a batch, so that a batch without the rare
    class moves the network as far as one that has it.

    Args:
        weight: one per class; best so that the mean over the training samples is 1.
    """

    weight: Tensor

    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.register_buffer("weight", torch.as_tensor(weight, dtype=torch.get_default_dtype()))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean over the batch."""
        weight = self.weight.to(output.dtype)
        return nn.functional.cross_entropy(output, target, weight=weight, reduction="sum") / len(target)


class SampleWeighted(nn.Module):
    """A loss over samples that each have a weight, which `with_weights` puts beside their targets.

    Args:
        loss: one of torch's, such as `nn.MSELoss()` or `nn.CrossEntropyLoss()`.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        if not hasattr(loss, "reduction"):
            raise ValueError(f"Invalid loss: {loss!r} has no reduction; expected one of torch's, such as nn.MSELoss()")
        each: Any = copy.deepcopy(loss)
        each.reduction = "none"
        self._each = each
        self._takes_labels = isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean over the batch."""
        own, weight = target[:, :-1], target[:, -1]
        each: Tensor = self._each(output, own[:, 0].long() if self._takes_labels else own.reshape(output.shape))
        return (each.reshape(len(each), -1).mean(1) * weight).mean()


def with_weights(target: Any, weight: Any) -> Tensor:
    """The targets of `SampleWeighted`: those of the samples, and in a last column their weights.

    Args:
        target: numbers, or labels of classes.
        weight: one per sample, not negative; they are scaled so that their mean is 1.

    Returns:
        What the data of a training has for targets.

    Raises:
        ValueError: the weights are not such numbers, or all are 0.
    """
    values = torch.as_tensor(target)
    weights = torch.as_tensor(weight, dtype=torch.float64)
    if weights.shape != values.shape[:1]:
        raise ValueError(f"Invalid weights: expected {len(values)}, one per sample, but got {tuple(weights.shape)}")
    if not bool((weights >= 0).all()) or not 0 < float(weights.sum()) < float("inf"):
        raise ValueError("Invalid weights: expected finite numbers >= 0, at least one of them above 0")
    values = values.reshape(len(values), -1)
    kind = values.dtype if values.is_floating_point() else torch.float64
    return torch.cat((values.to(kind), (weights / weights.mean()).to(kind)[:, None]), dim=1)
