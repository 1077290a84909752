"""The full evaluation, and that of a sample, as a native loop over large chunks of the data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.compiled.blocks import Loss
from cmalight.compiled.layout import Layout
from cmalight.compiled.pace import Pace
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.larger_batches import Pair, is_pair_of_tensors, merged, samples_in_one
from cmalight.evaluation.objective import Objective
from cmalight.evaluation.rank_parts import sizes_of
from cmalight.evaluation.sample import rows_wanted

_ONE_CHUNK = torch.tensor(0), torch.tensor(1)


def merged_size(model: nn.Module, feed: TensorBatches) -> int:
    """Samples of a chunk of the evaluation where batches can be evaluated together."""
    weights = sum(p.numel() for p in model.parameters())
    rows = rows_wanted(sizes_of(feed) or [], may_merge=True, weights=weights)
    return min(rows or feed.samples, samples_in_one(feed.tensors[0], model))


class Evaluation:
    """The mean loss over all the data, in the chunks of an eager evaluation.

    Attributes:
        merged_size: samples of a chunk where batches can be evaluated together: as many as a sample has, if that is
            not too many, so that one function does for both.
    """

    def __init__(self, model: nn.Module, feed: TensorBatches) -> None:
        self._data = tuple(t.detach().contiguous() for t in feed.tensors)
        self.samples = len(self._data[0])
        self.merged_size = merged_size(model, feed)
        self._batch_size = min(self.samples, feed.batch_size)
        self._pace = Pace()
        self._function: Callable[..., tuple[Tensor, Tensor]] | None = None

    def prepare(
        self, function: Callable[..., tuple[Tensor, Tensor]] | None, size: int, weights: Tensor, *, draws: bool
    ) -> None:
        """From now on by this native function, on chunks of that size; it may be compiled when it is first called."""
        self._function, self._size, self._chunks = function, size, self.samples // size
        self._draws = draws
        full = self._chunks * size
        self._full = tuple(t[:full].view(self._chunks, size, *t.shape[1:]) for t in self._data)
        self._rest = tuple(t[full:] for t in self._data)
        if function is not None:
            function(weights, *self._full, torch.tensor(0), torch.tensor(0), torch.zeros((), dtype=torch.float64))

    def last_chunk(self) -> Pair | None:
        """The data of the last one; None where there is no function for it."""
        if self._function is None or not self._chunks:
            return None
        return self._full[0][-1], self._full[1][-1]

    def is_for(self, *, merged: bool) -> bool:
        """Whether there is a function, and for such chunks."""
        return self._function is not None and self._size == (self.merged_size if merged else self._batch_size)

    def takes(self, batches: Sequence[Any]) -> bool:
        """Whether all of them are such chunks, and nothing is drawn that would have to be the same every time."""
        is_ready = self._function is not None and not self._draws
        return is_ready and all(is_pair_of_tensors(batch) and len(batch[0]) == self._size for batch in batches)

    def mean_of(self, weights: Tensor, chunks: Sequence[Pair]) -> float:
        """Of chunks that it takes."""
        if self._function is None:
            raise RuntimeError("prepare() comes before the first evaluation")
        nothing = torch.zeros((), dtype=torch.float64)
        losses = [self._function(weights, x[None], y[None], *_ONE_CHUNK, nothing)[1] for x, y in chunks]
        return float(sum(losses)) / len(chunks)

    @torch.no_grad()
    def mean_loss(
        self,
        weights: Tensor,
        before_chunk: Callable[[], Any] | None,
        of_rest: Callable[[tuple[Tensor, ...]], tuple[Tensor, float]],
    ) -> float:
        """At these weights; `of_rest` gives the loss of what is left after the last whole chunk."""
        if self._function is None:
            raise RuntimeError("prepare() comes before the first evaluation")
        total = torch.zeros((), dtype=torch.float64)
        chunk = 0
        while chunk < self._chunks:
            if before_chunk is not None:
                before_chunk()
            stop = min(self._chunks, chunk + self._pace.batches())
            began = time.perf_counter()
            _, total = self._function(weights, *self._full, torch.tensor(chunk), torch.tensor(stop), total)
            self._pace.saw(stop - chunk, time.perf_counter() - began)
            chunk = stop
        total = total * self._size
        if len(self._rest[0]):
            total = total + len(self._rest[0]) * of_rest(self._rest)[0].double()
        return float(total) / self.samples


class CompiledObjective(Objective):
    """An Objective whose passes run compiled, where they are over the chunks that were compiled; else eagerly."""

    def __init__(
        self, model: nn.Module, loss_fn: Loss, feed: TensorBatches, evaluation: Evaluation, layout: Layout
    ) -> None:
        super().__init__(model, loss_fn, feed, process_group=False)
        self._evaluation = evaluation
        self._layout = layout

    def whole_pass(self) -> float:
        """Native where it is over the chunks that were compiled."""
        may_merge = self.may_merge()
        if not self._evaluation.is_for(merged=may_merge):
            batches = merged(self.loader, self.model) if may_merge else self.loader
            total, self.samples = self.own_sums((batch, True) for batch in batches)
            return total / self.samples
        self.samples = self._evaluation.samples
        return self._evaluation.mean_loss(self._layout.flat(), self.before_batch, self.evaluate)

    def mean_over(self, batches: Iterable[Any]) -> float:
        """Native where all batches are chunks, as those of a merged sample are; nothing then leaves a trace."""
        given = list(batches)
        if not self._evaluation.takes(given):
            return super().mean_over(given)
        if self.before_batch is not None:
            self.before_batch()
        return self._evaluation.mean_of(self._layout.flat(), given)
