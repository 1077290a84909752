"""A fixed small part of the data: its mean loss tells where steps have led, at a fraction of a full pass."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from cmalight.evaluation.randomness import RandomSource
from cmalight.evaluation.rank_parts import sizes_of

# All of the data where it is not more than this and small batches can be made into large ones.
WHOLE = 2048
# Else this many rows where they can be evaluated in large batches, and this share of an epoch's where not, from two to
# four batches: so a forward pass over them costs some 2 % of the steps of a window of a hundred batches.
_MERGED_ROWS = 512
# Rows times weights that are evaluated in no time, so that large batches are worth it: for larger models they are not.
_CHEAP = 1 << 26
_SHARE = 0.06
_FEWEST_BATCHES, _MOST_BATCHES = 2, 4
_SEED = 0x5A3917


class Passes(Protocol):
    """What a sample needs of an objective.

    Attributes:
        before_batch: May raise, to break off a pass.
    """

    before_batch: Callable[[], object] | None

    def mean_over(self, batches: Sequence[Any]) -> float:
        """The mean loss per sample of these batches."""


class Sample:
    """Calling it gives the mean loss of the same few batches, with the same random numbers, every time.

    Attributes:
        is_whole: Whether the few are all there are, so that it is the objective itself.
    """

    def __init__(self, objective: Passes, batches: Sequence[Any], is_whole: bool) -> None:
        self.is_whole = is_whole
        self._objective = objective
        self._batches = batches

    def __call__(self) -> float:
        """Not broken off where the time is over: what was done last has to be judged, or it is lost."""
        limit, self._objective.before_batch = self._objective.before_batch, None
        try:
            return self._objective.mean_over(self._batches)
        finally:
            self._objective.before_batch = limit


def chosen_batches(loader: Iterable[Any], *, may_merge: bool, weights: int = 1) -> tuple[list[Any], bool]:
    """The batches of a sample of what `loader` gives, and whether that is all of it.

    Args:
        loader: May be iterated, where its rows cannot be had otherwise.
        may_merge: Whether small batches can be made into large ones.
        weights: How many the model has.

    Rows are drawn at random, from a seed of their own, where single rows can be had: data may be sorted. Where batches
    have to be taken as they come, the first ones are.
    """
    sizes = sizes_of(loader)
    if sizes is None:
        return _first(loader, _MOST_BATCHES), False
    rows = int(sum(sizes))
    wanted = rows_wanted(sizes, may_merge=may_merge, weights=weights)
    if wanted is None:
        return list(loader), True
    if hasattr(loader, "for_evaluation"):  # TensorBatches
        in_memory: Any = loader
        return _rows_of(in_memory.tensors, _drawn(rows, wanted), in_memory.batch_size), wanted == rows
    if _is_plain(loader):
        return _items_of(loader, _drawn(rows, wanted)), False
    if isinstance(loader, list | tuple):
        count = max(1, min(len(loader), round(len(loader) * wanted / rows)))
        return [loader[number] for number in _drawn(len(loader), count)], count == len(loader)
    return _first(loader, max(1, round(len(sizes) * wanted / rows))), False


def rows_wanted(sizes: Sequence[float], *, may_merge: bool, weights: int) -> int | None:
    """How many rows a sample has of batches of these sizes; None for all there are, in their own order."""
    rows = int(sum(sizes))
    cheap = _CHEAP // max(1, weights) if may_merge else 0
    if rows <= min(WHOLE, cheap):
        return None
    batches = max(_FEWEST_BATCHES, min(_MOST_BATCHES, round(_SHARE * len(sizes))))
    return min(rows, max(min(_MERGED_ROWS, cheap), int(batches * sizes[0])))


def seed_all(generators: Iterable[RandomSource]) -> None:
    """So that dropout masks, and whatever else is drawn, are the same in every evaluation of a sample."""
    for source in generators:
        source.seed(_SEED)


def _first(loader: Iterable[Any], count: int) -> list[Any]:
    iterator = iter(loader)
    return list(itertools.islice(iterator, count))


def _drawn(population: int, count: int) -> list[int]:
    generator = torch.Generator().manual_seed(_SEED)
    return torch.randperm(population, generator=generator)[:count].sort().values.tolist()


def _rows_of(tensors: Sequence[torch.Tensor], rows: list[int], size: int) -> list[Any]:
    chosen = torch.tensor(rows, device=tensors[0].device)
    parts = (torch.split(t.index_select(0, chosen.to(t.device)), size) for t in tensors)
    return list(zip(*parts, strict=True))


def _is_plain(loader: Iterable[Any]) -> bool:
    """Whether every item of the data set is one of the loader's samples, and can be had by its number."""
    return (
        isinstance(loader, DataLoader)
        and not isinstance(loader.dataset, IterableDataset)
        and type(loader.batch_sampler) is BatchSampler
        and type(loader.sampler) in (RandomSampler, SequentialSampler)
    )


def _items_of(loader: Any, numbers: list[int]) -> list[Any]:
    size = loader.batch_size
    cut = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return [loader.collate_fn([loader.dataset[number] for number in part]) for part in cut]
