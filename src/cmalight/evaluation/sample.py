"""A fixed small part of the data: its mean loss says where steps have led, at a fraction of a full pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.counting import batch_size

SEED = 0x5A3917
# One batch, but 16 to 512 rows. Its forward pass costs less than half of a step (docs/results/speed.md).
# Half a batch was too noisy: sound runs were slowed down by chance.
_LEAST_ROWS, _ROWS = 16, 512
# More rows where they cost next to nothing: up to this many multiplications per evaluation.
_PRODUCTS = 1 << 20
# The sample and others of its size show, once, how far the sample's loss may be from that of all data.
_PARTS = 8


def sample_parts(data: Iterable[Any], *, products: float, rows: Sequence[int] | None = None) -> Iterator[list[Any]]:
    """The batches of a sample of what `data` gives, then of other parts of the same size.

    Rows are drawn at random, from a seed of their own, because data may be sorted. Where single rows cannot be had,
    as in a stream, the first batches are taken.

    Args:
        data: A loader; iterated only where its rows cannot be had otherwise.
        products: Multiplications of a forward pass per row; infinite if they are not known.
        rows: The numbers of the rows to take, chosen by the user; there are no other parts then.

    Yields:
        The batches of one part.

    Raises:
        ValueError: If rows were chosen and single rows cannot be had.
    """
    if isinstance(data, TensorBatches):
        for part in _cut(range(data.samples), data.batch_size, products, rows):
            yield [data.rows(numbers) for numbers in part]
        return
    loader = _map_style(data)
    if loader is None:
        if rows is not None:
            raise ValueError("sample_rows needs data whose rows can be had by number: TensorBatches or a DataLoader")
        if isinstance(data, list | tuple):
            size = (batch_size(data[0]) if data else None) or _ROWS
            for numbers in _drawn(range(len(data)), math.ceil(_rows(int(size), products) / size)):
                yield [data[number] for number in numbers]
        else:
            yield from ([batch] for batch in itertools.islice(iter(data), _PARTS))
    elif rows is None and type(loader.batch_sampler) is not BatchSampler:  # a sampler of the user's own cuts batches
        cut = list(loader.batch_sampler or ())
        yield from ([_item_batch(loader, cut[number]) for number in numbers] for numbers in _drawn(range(len(cut)), 1))
    else:
        rows_at_once = loader.batch_size or int(getattr(loader.batch_sampler, "batch_size", 1))
        for part in _cut(_population(loader), rows_at_once, products, rows):
            yield [_item_batch(loader, numbers) for numbers in part if numbers]


def _map_style(data: Any) -> DataLoader[Any] | None:
    if not isinstance(data, DataLoader) or isinstance(data.dataset, IterableDataset) or data.batch_sampler is None:
        return None
    return data


def _population(loader: DataLoader[Any]) -> Sequence[int]:
    """The rows that an epoch visits: those of the data set, or those that a sampler of another kind gives."""
    if type(loader.sampler) in (RandomSampler, SequentialSampler):
        return range(len(loader.dataset))  # type: ignore[arg-type]
    return list(loader.sampler)


def _cut(population: Sequence[int], size: int, products: float, rows: Sequence[int] | None) -> list[list[list[int]]]:
    """The numbers of the rows of each batch of each part: one batch, or the user's choice in the loader's batches."""
    if rows is None:
        return [[numbers] for numbers in _drawn(population, _rows(size, products))]
    chosen = list(rows)
    return [[chosen[start : start + size] for start in range(0, len(chosen), size)]]


def _rows(batch_size: int, products: float) -> int:
    """How many rows a sample has."""
    return min(_ROWS, max(_LEAST_ROWS, batch_size, int(_PRODUCTS / max(1, products))))


def _drawn(population: Sequence[int], count: int) -> list[list[int]]:
    """Random parts of equal size, without a member in common; one part where there are no more members."""
    generator = torch.Generator().manual_seed(SEED)
    places = torch.randperm(len(population), generator=generator)[: _PARTS * count]
    parts = torch.split(places, count)
    whole = [part for part in parts if len(part) == count] or parts[:1]
    return [[population[place] for place in part.sort().values.tolist()] for part in whole]


def _item_batch(loader: DataLoader[Any], numbers: list[int]) -> Any:
    dataset: Any = loader.dataset
    if hasattr(dataset, "__getitems__"):
        return loader.collate_fn(dataset.__getitems__(numbers))
    return loader.collate_fn([dataset[number] for number in numbers])
