"""The full evaluation as a native loop over large chunks of the data."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.compiled.blocks import Loss, compiled, make_evaluation
from cmalight.compiled.layout import Layout
from cmalight.compiled.pace import Pace
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.merging import samples_in_one
from cmalight.evaluation.objective import Objective
from cmalight.evaluation.randomness import Source


class Evaluation:
    """The mean loss over all the data, in the chunks of a merged eager evaluation."""

    def __init__(self, loss: Callable[..., Tensor], model: nn.Module, feed: TensorBatches) -> None:
        inputs, targets = (t.detach().contiguous() for t in feed.tensors)
        self.samples = len(inputs)
        self._size = min(self.samples, samples_in_one(inputs, model))
        self._chunks = self.samples // self._size
        full = self._chunks * self._size
        self._full = tuple(t[:full].view(self._chunks, self._size, *t.shape[1:]) for t in (inputs, targets))
        self._rest = (inputs[full:], targets[full:])
        self._loss = loss
        self._compiled = compiled(make_evaluation(loss))
        self._pace = Pace()

    def prepare(self, weights: Tensor) -> None:
        self._run(weights, 0, 0, torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def mean_loss(self, weights: Tensor, before_chunk: Callable[[], Any] | None) -> float:
        total = torch.zeros((), dtype=torch.float64)
        chunk = 0
        while chunk < self._chunks:
            if before_chunk is not None:
                before_chunk()
            stop = min(self._chunks, chunk + self._pace.batches())
            began = time.perf_counter()
            total = self._run(weights, chunk, stop, total)
            self._pace.saw(stop - chunk, time.perf_counter() - began)
            chunk = stop
        total = total * self._size
        if len(self._rest[0]):
            total = total + len(self._rest[0]) * self._loss(weights, *self._rest).double()
        return float(total) / self.samples

    def _run(self, weights: Tensor, first: int, stop: int, total: Tensor) -> Tensor:
        _, total = self._compiled(weights, *self._full, torch.tensor(first), torch.tensor(stop), total)
        return total


class CompiledObjective(Objective):
    """An Objective whose merged passes run compiled; where batches may not be merged, it is the eager one."""

    def __init__(
        self, model: nn.Module, loss_fn: Loss, feed: TensorBatches, evaluation: Evaluation, layout: Layout
    ) -> None:
        super().__init__(model, loss_fn, feed, process_group=False)
        self._evaluation = evaluation
        self._layout = layout

    def _pass(self, _generators: tuple[Source, ...]) -> float:
        if not self._may_merge():
            total, self.samples = self._own_sums((batch, True) for batch in self.loader)
            return total / self.samples
        self.samples = self._evaluation.samples
        return self._evaluation.mean_loss(self._layout.flat(), self.before_batch)
