"""A loss over samples that each have a weight."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn


class SampleWeighted(nn.Module):
    """The weighted mean of a loss; `with_weights` puts the weights beside the targets.

    Args:
        loss: A loss of torch, such as `nn.MSELoss()` or `nn.CrossEntropyLoss()`.
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
        wanted, weight = target[:, :-1], target[:, -1]
        each: Tensor = self._each(output, wanted[:, 0].long() if self._takes_labels else wanted.reshape(output.shape))
        return (each.reshape(len(each), -1).mean(1) * weight).mean()


def with_weights(target: Any, weight: Any) -> Tensor:
    """Targets for `SampleWeighted`: those of the samples, with the weights as a last column.

    Args:
        target: Numbers, or labels of classes.
        weight: One number >= 0 per sample; they are scaled so that their mean is 1.

    Returns:
        Targets for `fit`.

    Raises:
        ValueError: The weights are not such numbers, or all are 0.
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
