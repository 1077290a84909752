"""A fixed small part of the data: its mean loss tells where steps have led, at a fraction of a full pass."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from cmalight.evaluation.larger_batches import fits, is_pair_of_tensors, whole_tensors
from cmalight.evaluation.randomness import RandomSource
from cmalight.evaluation.rank_parts import sizes_of
from cmalight.parallel.ranks import Ranks

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
# Of a column with a value whose squared deviation is so many times the variance, the so many farthest rows lie outside:
# no normal distribution has such values, and a sample of a few hundred rows hardly ever sees them.
_OUTSIDE, _OF_COLUMN = 128.0, 4
# Of all these the farthest, and at most this share of the sample's rows.
_SHARE_OUTSIDE = 0.125
# Numbers of a table; larger ones are not looked through.
_LOOKED_THROUGH = 1 << 26
_IN_CACHE, _AT_ONCE = 1 << 17, 1 << 21
_REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Passes(Protocol):
    """What a sample needs of an objective.

    Attributes:
        before_batch: May raise, to break off a pass.
    """

    before_batch: Callable[[], object] | None

    def mean_over(self, batches: Sequence[Any]) -> float:
        """The mean loss per sample of these batches."""


@dataclass(frozen=True)
class Chosen:
    """What a sample is made of.

    Attributes:
        batches: Of rows that stand for all the others.
        is_whole: Whether they are all the data.
        outlying: Batches of rows that stand for themselves alone.
        count: How many those are.
        rows: How many there are in all, where it is known.
    """

    batches: list[Any]
    is_whole: bool = False
    outlying: list[Any] = field(default_factory=list)
    count: float = 0.0
    rows: float = 0.0

    def with_those_of(self, ranks: Ranks) -> Chosen:
        """Each has chosen of its own part."""
        if ranks.alone:
            return self
        each = ranks.gather(self.count, self.rows)
        count, rows = (sum(values) for values in zip(*each, strict=True))
        return replace(self, is_whole=False, count=count, rows=rows)


class Sample:
    """Calling it gives the mean loss of the same few batches, with the same random numbers, every time.

    Args:
        objective: What is evaluated.
        chosen: On what.

    Attributes:
        is_whole: Whether the few are all there are, so that it is the objective itself.
    """

    def __init__(self, objective: Passes, chosen: Chosen) -> None:
        self.is_whole = chosen.is_whole
        self._objective = objective
        self._chosen = chosen

    def __call__(self) -> float:
        """Not broken off where the time is over: what was done last has to be judged, or it is lost."""
        limit, self._objective.before_batch = self._objective.before_batch, None
        try:
            chosen, mean = self._chosen, self._objective.mean_over(self._chosen.batches)
            if not chosen.count:
                return mean
            share = chosen.count / chosen.rows
            return (1.0 - share) * mean + share * self._objective.mean_over(chosen.outlying)
        finally:
            self._objective.before_batch = limit


def chosen_batches(
    loader: Iterable[Any], *, may_merge: bool, weights: int = 1, count: Callable[[Any], float | None] | None = None
) -> Chosen:
    """The batches of a sample of what `loader` gives.

    Args:
        loader: May be iterated, where its rows cannot be had otherwise.
        may_merge: Whether small batches can be made into large ones.
        weights: How many the model has.
        count: Of the samples behind a target; rows that lie outside are looked for where each row is one.

    Rows are drawn at random, from a seed of their own, where single rows can be had: data may be sorted. Where batches
    have to be taken as they come, the first ones are.
    """
    sizes = sizes_of(loader)
    if sizes is None:
        return Chosen(_first(loader, _MOST_BATCHES))
    wanted = rows_wanted(sizes, may_merge=may_merge, weights=weights)
    if wanted is None:
        return Chosen(list(loader), is_whole=True, rows=sum(sizes))
    if may_merge and count is not None and WHOLE < sum(sizes) > wanted:
        tensors = _tensors_of(loader)
        if tensors and count(tensors[1]) == len(tensors[1]):
            apart = outlying_rows(tensors, most=int(_SHARE_OUTSIDE * wanted))
            if apart:
                return _with_all_of(apart, tensors, wanted, int(sizes[0]))
    return _drawn_of(loader, sizes, wanted)


def _drawn_of(loader: Iterable[Any], sizes: Sequence[float], wanted: int) -> Chosen:
    rows = int(sum(sizes))
    if hasattr(loader, "for_evaluation"):  # TensorBatches
        in_memory: Any = loader
        batches = _rows_of(in_memory.tensors, _drawn(rows, wanted), in_memory.batch_size)
        return Chosen(batches, is_whole=wanted == rows, rows=rows)
    if _is_plain(loader):
        return Chosen(_items_of(loader, _drawn(rows, wanted)), rows=rows)
    if isinstance(loader, list | tuple):
        count = max(1, min(len(loader), round(len(loader) * wanted / rows)))
        batches = [loader[number] for number in _drawn(len(loader), count)]
        return Chosen(batches, is_whole=count == len(loader), rows=rows)
    return Chosen(_first(loader, max(1, round(len(sizes) * wanted / rows))), rows=rows)


def _tensors_of(loader: Iterable[Any]) -> tuple[torch.Tensor, ...]:
    """Those behind it, or that its batches can be made into; none where its rows cannot be had without a pass."""
    tensors = whole_tensors(loader)
    if tensors is not None or not isinstance(loader, list | tuple):
        return tensors or ()
    if not all(is_pair_of_tensors(batch) and fits(loader[0], batch) for batch in loader):
        return ()
    if sum(part.numel() for batch in loader for part in batch) > _LOOKED_THROUGH:
        return ()
    return tuple(torch.cat([batch[part] for batch in loader]) for part in (0, 1))


def _with_all_of(apart: list[int], tensors: Sequence[torch.Tensor], wanted: int, size: int) -> Chosen:
    """A sample of the other rows, and all of these, each by its share of the data."""
    rows = len(tensors[0])
    is_other = torch.ones(rows, dtype=torch.bool)
    is_other[apart] = False
    others = is_other.nonzero()[:, 0]
    drawn = others[_drawn(len(others), min(wanted, len(others)))].tolist()
    outlying = _rows_of(tensors, apart, size)
    return Chosen(_rows_of(tensors, drawn, size), outlying=outlying, count=len(apart), rows=rows)


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
    chosen = torch.tensor(rows, dtype=torch.long, device=tensors[0].device)
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


def outlying_rows(tensors: Sequence[torch.Tensor], *, most: int) -> list[int]:
    """Those that a random sample of a table would miss, although steps on them decide where the weights go.

    Such as one that is a thousand times as large as others, or some of the few that have a rare feature.

    Args:
        tensors: Of equal length; those that are not of real numbers say nothing.
        most: How many are wanted at most.

    Returns:
        The numbers of those that lie farthest outside, in order.
    """
    tables = [t.detach().reshape(len(t), -1) for t in tensors if _is_real(t) and t.numel()]
    if sum(t.numel() for t in tables) > _LOOKED_THROUGH:
        return []
    farthest: dict[int, float] = {}
    for columns in (some for t in tables for some in _suspicious(t)):
        squares = (columns - columns.mean(1, keepdim=True)).square_().nan_to_num_(0.0, 0.0, 0.0)  # if not finite
        squares = squares[squares.amax(1) > _OUTSIDE * squares.mean(1)]
        for _ in range(_OF_COLUMN):
            values, rows = squares.max(1)
            for row, value in zip(rows.tolist(), values.tolist(), strict=True):
                farthest[row] = max(value, farthest.get(row, 0.0))
            squares.scatter_(1, rows[:, None], 0.0)
    return sorted(sorted(farthest, key=lambda row: (-farthest[row], row))[:most])


def _is_real(t: torch.Tensor) -> bool:
    return t.layout is torch.strided and t.dtype in _REAL


def _suspicious(t: torch.Tensor) -> Iterator[torch.Tensor]:
    """The columns that may have such a value, as rows, in double precision, some at a time."""
    mean = t.mean(0)
    total, most = torch.zeros_like(mean), torch.zeros_like(mean)
    for rows in torch.split(t, max(1, _IN_CACHE // t.shape[1])):
        squares = (rows - mean).square_()
        total += squares.sum(0)
        most = torch.maximum(most, squares.amax(0))
    found = (most * len(t) > 0.99 * _OUTSIDE * total) | ~total.isfinite()  # where squares overflow, too
    for columns in torch.split(found.nonzero()[:, 0], max(1, _AT_ONCE // len(t))):
        yield t.index_select(1, columns).cpu().double().T.contiguous()
