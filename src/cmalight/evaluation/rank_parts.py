"""Which part of the data a rank evaluates, so that all ranks together see every sample once."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from cmalight.evaluation.counting import batch_size
from cmalight.parallel.ranks import Ranks


def own_part(loader: Iterable[Any], ranks: Ranks, *, whole: bool) -> Iterable[Any]:
    """What this rank evaluates of `loader`.

    A DistributedSampler repeats samples until every rank has equally many, and Accelerate's batch sampler does, too:
    here each sample counts once. Any other loader is taken for the rank's own part, unless it is `whole`.
    """
    if ranks.alone:
        return loader
    if isinstance(loader, DataLoader):
        sampler = loader.sampler
        shared_out = type(sampler) is DistributedSampler and sampler.num_replicas == ranks.size
        if (shared_out or (whole and _visits_all_once(sampler))) and type(loader.batch_sampler) is BatchSampler:
            return _copy_of(loader, dataset=_every_nth(loader.dataset, ranks), batch_size=loader.batch_size)
        if hasattr(loader.batch_sampler, "even_batches"):
            uneven: Any = copy.copy(loader.batch_sampler)
            uneven.even_batches = False
            return _copy_of(loader, dataset=loader.dataset, batch_sampler=uneven)
    return _EveryNthBatch(loader, ranks) if whole else loader


def sizes_of(loader: Iterable[Any]) -> list[float] | None:
    """The sizes of the batches of one pass; None where they cannot be told without making it."""
    if isinstance(loader, list | tuple):
        sizes = [batch_size(batch) for batch in loader]
        return None if None in sizes else [size or 0.0 for size in sizes]
    if hasattr(loader, "for_evaluation"):  # TensorBatches
        in_memory: Any = loader
        return _cut(in_memory.samples, in_memory.batch_size, drop_last=False)
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        return None
    return _cut(len(loader.sampler), loader.batch_size, drop_last=loader.drop_last)  # type: ignore[arg-type]


def _cut(samples: int, size: int, *, drop_last: bool) -> list[float]:
    rest = samples % size
    return [float(size)] * (samples // size) + ([float(rest)] if rest and not drop_last else [])


def _visits_all_once(sampler: object) -> bool:
    return type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)


def _every_nth(dataset: Any, ranks: Ranks) -> Any:
    if type(dataset) is TensorDataset:  # as views, which can be evaluated in large slices
        return TensorDataset(*(t[ranks.rank :: ranks.size] for t in dataset.tensors))
    return Subset(dataset, range(ranks.rank, len(dataset), ranks.size))


def _copy_of(loader: DataLoader[Any], **changed: Any) -> DataLoader[Any]:
    return DataLoader(
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        **changed,
    )


@dataclass(frozen=True)
class _EveryNthBatch:
    """Batches r, r + W, r + 2W, ... of a loader that gives the same batches on every rank."""

    loader: Iterable[Any]
    ranks: Ranks

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.loader, self.ranks.rank, None, self.ranks.size)


def in_lockstep(batches: Iterable[Any], ranks: Ranks) -> Generator[tuple[Any, bool]]:
    """As many batches on every rank; a rank that has run out gets its last one again, marked as not counting.

    Where the loader of a rank fails, or an error is thrown into this generator, all ranks raise.
    """
    last: Any = None
    failure: Exception | None = None
    iterator = iter(batches)
    while True:
        batch = None
        try:
            batch = next(iterator, None) if failure is None else None
        except Exception as error:
            failure = error
        rows = ranks.gather(batch is not None, last is not None or batch is not None, failure is not None)
        if failure is not None:
            raise failure
        refuse_if_failed([has_failed for *_, has_failed in rows])
        if not any(has_one for has_one, *_ in rows):
            return
        if not all(has_seen_one for _, has_seen_one, _ in rows):
            raise ValueError(
                "A rank has no sample to evaluate, but its forward pass is needed by the others: "
                "give every rank at least one batch"
            )
        if batch is not None:
            last = batch
        try:
            yield last, batch is not None
        except Exception as error:
            failure = error


def refuse_if_failed(has_failed: Sequence[float]) -> None:
    """An error on the ranks that did not fail themselves."""
    if any(has_failed):
        rank = next(rank for rank, failed in enumerate(has_failed) if failed)
        raise RuntimeError(f"The evaluation failed on rank {rank}: see the error there")
