"""The search for a first step size, on the first batches of the first epoch; it leaves no trace but the step size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor

from cmalight.optim.tally import BatchCounts, LossSum
from cmalight.rules import stepsize

# How many batches a trial takes, fewer where an epoch has fewer; and the memory they may be kept in.
_MOST_BATCHES, _LEAST_BATCHES = 12, 4
_MOST_BYTES = 1 << 28
# The first trial's step size, of the given one: it moves nothing and tells what the batches' losses are at w⁰.
_STANDING_STILL = 1e-9


class Probe:
    """Trials of step sizes on the same batches: those to come, and what those behind gave."""

    def __init__(self, batches: list[Any], *, zeta: float, f_0: float, usual: float) -> None:
        self._batches = batches
        self._length = max(_LEAST_BATCHES, len(batches))
        self._f_0 = f_0  # until the first trial gives that of the batches
        self._usual = usual
        self._at_most = stepsize.RATIO * usual
        self._first = min(zeta, self._at_most)
        self._tried: dict[float, float] = {}
        self.zeta: float | None = _STANDING_STILL * self._first  # of the trial under way, or the next

    def begin_trial(self) -> None:
        self.counts = BatchCounts()
        self.losses = LossSum()
        self._samples_before = 0.0

    def trial(self) -> Iterator[Any]:
        """The batches of a trial; the losses of its second half count, those of the first show little yet."""
        for number, batch in enumerate(itertools.islice(itertools.cycle(self._batches), self._length)):
            if number == self._length // 2:
                self.losses = LossSum()
                self._samples_before = self.counts.total
            yield batch

    def end_trial(self) -> None:
        if self.zeta is None:
            raise RuntimeError("the probe is over: no trial is under way")
        samples = self.counts.total - self._samples_before
        loss = self.losses.value() / samples if samples else math.inf
        if self.zeta < self._first and not self._tried:
            self._f_0 = loss if math.isfinite(loss) else self._f_0
            self.zeta = self._first
            return
        self._tried[self.zeta] = loss if math.isfinite(loss) else math.inf
        self.zeta = stepsize.next_trial(self._tried, self._f_0, at_most=self._at_most)

    def choice(self) -> float:
        """By the trials so far, or the given one before there is any; drawn towards what is usual."""
        chosen = stepsize.choice(self._tried, self._f_0) if self._tried else self._first
        return stepsize.tempered(chosen, self._usual)


def first_batches(iterator: Iterator[Any]) -> list[Any]:
    """The batches of a trial, as far as they fit into memory; at least one, if there is one."""
    kept: list[Any] = []
    size = 0
    for batch in itertools.islice(iterator, _MOST_BATCHES):
        kept.append(batch)
        size += _bytes_of(batch)
        if size > _MOST_BYTES:
            break
    return kept


def _bytes_of(batch: Any) -> int:
    if isinstance(batch, Tensor):
        return batch.numel() * batch.element_size()
    if isinstance(size := getattr(batch, "nbytes", None), int):  # an array
        return size
    parts: Iterable[Any] = ()
    if isinstance(batch, dict):
        parts = batch.values()
    elif isinstance(batch, list | tuple):
        parts = batch
    return sum(map(_bytes_of, parts))
