"""Small batches made into large ones, for passes that need no gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset, default_collate

Pair = tuple[Tensor, Tensor]

# A merged batch, and what a layer makes of it, holds about this many numbers: they stay in a core's cache.
_NUMBERS = 1 << 18
_SAMPLES = 1 << 11


def merged(loader: Iterable[Any], model: nn.Module) -> Iterator[Any]:
    """The batches of `loader`, joined where they are pairs of tensors that fit together."""
    tensors = whole_tensors(loader)
    if tensors is not None:
        yield from _slices(tensors, samples_in_one(tensors[0], model))
        return
    waiting: list[Pair] = []
    room = 0
    for batch in loader:
        if not is_pair_of_tensors(batch):
            yield from _joined(waiting)
            waiting = []
            yield batch
            continue
        if waiting and not (len(batch[0]) <= room and fits(waiting[0], batch)):
            yield from _joined(waiting)
            waiting = []
        if not waiting:
            room = samples_in_one(batch[0], model)
        waiting.append(batch)
        room -= len(batch[0])
    yield from _joined(waiting)


def is_pair_of_tensors(batch: Any) -> TypeGuard[Pair]:
    return (
        isinstance(batch, list | tuple)
        and len(batch) == 2
        and all(isinstance(part, Tensor) and part.dim() > 0 for part in batch)
        and len(batch[0]) == len(batch[1])
    )


def looks_across_the_batch(model: nn.Module) -> bool:
    """Whether a BatchNorm layer would take its statistics from the batch."""
    return any(
        isinstance(m, nn.modules.batchnorm._BatchNorm) and (m.training or m.running_mean is None)
        for m in model.modules()
    )


def _joined(waiting: list[Pair]) -> Iterator[Pair]:
    if len(waiting) == 1:
        yield waiting[0]
    elif waiting:
        yield torch.cat([b[0] for b in waiting]), torch.cat([b[1] for b in waiting])


def fits(first: Pair, other: Pair) -> bool:
    """Whether they can be joined."""
    return all(a.shape[1:] == b.shape[1:] for a, b in zip(first, other, strict=True))


def samples_in_one(inputs: Tensor, model: nn.Module) -> int:
    widest_layer = max((max(p.shape, default=1) for p in model.parameters()), default=1)
    return max(1, min(_SAMPLES, _NUMBERS // max(1, widest_layer, inputs[0].numel())))


def _slices(tensors: Pair, size: int) -> Iterator[Pair]:
    inputs, target = tensors
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size], target[start : start + size]


def whole_tensors(loader: Iterable[Any]) -> Pair | None:
    """The tensors behind TensorBatches or a DataLoader(TensorDataset) that visits every sample once; else None."""
    in_memory: Any = loader
    if hasattr(loader, "for_evaluation") and is_pair_of_tensors(in_memory.tensors):
        return in_memory.tensors[0], in_memory.tensors[1]
    if not isinstance(loader, DataLoader) or type(loader.dataset) is not TensorDataset:
        return None
    if loader.collate_fn is not default_collate or loader.drop_last or type(loader.batch_sampler) is not BatchSampler:
        return None
    sampler = loader.sampler
    visits_all_once = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(loader.dataset)
    )
    tensors = loader.dataset.tensors
    if not visits_all_once or not is_pair_of_tensors(tensors) or len(tensors[0]) == 0:
        return None
    return tensors[0], tensors[1]
