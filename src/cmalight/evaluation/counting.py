"""How many samples stand behind a batch and its mean loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils.data import IterableDataset

from cmalight.evaluation.batches import TensorBatches


def batch_size(batch: Any) -> float | None:
    """The length of the first tensor in a batch, where there is one."""
    if isinstance(batch, list | tuple) and batch and isinstance(batch[0], Tensor) and batch[0].dim():
        return float(batch[0].shape[0])
    if isinstance(batch, Tensor):
        return float(len(batch)) if batch.dim() else None
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        return next((size for part in batch if (size := batch_size(part)) is not None), None)
    return None


def length_of(loader: Any) -> int | None:
    """The batches of one pass; None where that is not known, or a guess, as for an IterableDataset."""
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return None
    try:
        return len(loader) or None
    except TypeError:
        return None


def sample_count(loss_fn: Any, target: Any) -> float | None:
    """The denominator of the mean that `loss_fn` takes over `target`, in samples; None where it is not known."""
    if not isinstance(loss_fn, nn.CrossEntropyLoss | nn.NLLLoss) or not isinstance(target, Tensor):
        return batch_size(target)
    if target.is_floating_point() or target.dim() == 0:
        return batch_size(target)
    counted = target[target != loss_fn.ignore_index]
    weight = float(counted.numel()) if loss_fn.weight is None else float(loss_fn.weight[counted].sum())
    return weight * len(target) / int(target.numel())


def counter(loss_fn: Any, feed: Iterable[Any]) -> Callable[[Any, Any], float]:
    """How many samples stand behind the mean loss of a batch; looks at every target only where that can matter."""
    if isinstance(loss_fn, nn.CrossEntropyLoss | nn.NLLLoss) and not _counts_every_target_alike(loss_fn, feed):
        return lambda target, inputs: sample_count(loss_fn, target) or _length(target, inputs)
    return _length


def counts_are_lengths(loss_fn: Any, feed: Iterable[Any]) -> bool:
    """Whether the samples behind the mean loss of a batch are those in the batch."""
    return counter(loss_fn, feed) is _length


def _counts_every_target_alike(loss_fn: nn.CrossEntropyLoss | nn.NLLLoss, feed: Iterable[Any]) -> bool:
    if loss_fn.weight is not None or not isinstance(feed, TensorBatches):
        return False
    return not bool((feed.tensors[1] == loss_fn.ignore_index).any())


def _length(target: Any, inputs: Any) -> float:
    count = batch_size(target) or batch_size(inputs)
    if count is None:
        raise ValueError("A batch has no tensor with a first dimension, so its size is not known")
    return count
