"""Epochs and full evaluations as native loops, for one model, optimizer and data set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.data.batches import TensorBatches
from cmalight.optim.epoch import Epoch
from cmalight.training.engine.blocks import Loss, Progress, Watch, compiled, first_line, flat_loss, make_block
from cmalight.training.engine.evaluation import CompiledObjective, Evaluation
from cmalight.training.engine.flat import CannotCompile, Layout
from cmalight.training.engine.order import Part, parts_of_epoch
from cmalight.training.engine.pace import Pace
from cmalight.training.engine.rules import StepRule, step_rule
from cmalight.training.loop import EpochFigures, largest_lr, plain_figures


class CompiledEngine:
    """Runs the inner cycle of epochs over `feed`; all else, the control included, is as in eager epochs.

    before_block: called with the number of the next batch; may raise StopTraining
    seconds_left: of the time limit, so that a block does not run far past it
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Loss,
        optimizer: Optimizer,
        feed: TensorBatches,
        *,
        before_block: Callable[[int], None],
        seconds_left: Callable[[], float],
    ) -> None:
        self.compile_seconds = 0.0
        self.layout = Layout.of(model, optimizer)
        self._model = model
        self._loss_fn = loss_fn
        self._optimizer = optimizer
        self._feed = feed
        self._before_block = before_block
        self._seconds_left = seconds_left
        self._loss = flat_loss(model, loss_fn, self.layout)
        self._rule = step_rule(optimizer)
        self._blocks: dict[StepRule, Callable[..., Progress]] = {}
        self._evaluation = Evaluation(self._loss, model, feed)
        self._pace = Pace()
        self._data = tuple(t.detach().contiguous() for t in feed.tensors)

    def prepare(self) -> None:
        """Compile all that an epoch needs; CannotCompile says why that is not possible."""
        with compiling(self):
            for part in parts_of_epoch(self._feed, 0):
                self._run(self._begun(), unwatched(len(part.rows)), part, stop=0)
            self._evaluation.prepare(self.layout.flat())

    def objective(self) -> CompiledObjective:
        """f(w) over the feed by the compiled evaluation."""
        return CompiledObjective(self._model, self._loss_fn, self._feed, self._evaluation, self.layout)

    def inner_cycle(self, epoch: Epoch) -> None:
        """The steps of a watched epoch; they end early on an early rejection."""

        def watch(part: Part) -> Watch:
            one = watch_over([epoch], part, self._feed.batch_size)
            return one._replace(bound=one.bound[0], active=one.active[0])

        def is_lost(done: Progress, steps: int, samples: float) -> bool:
            return epoch._progressed(
                total=float(done.total),
                lowest=float(done.lowest),
                samples=samples,
                nominal=float(min(self._feed.batch_size, self._feed.samples)),
                steps=steps,
            )

        self._epoch(watch, is_lost)

    def plain_epoch(self) -> EpochFigures:
        """An epoch under one of torch's optimizers."""
        lr = largest_lr(self._optimizer)
        done = self._epoch(lambda part: unwatched(len(part.rows)), lambda *_: False)
        return plain_figures(self._optimizer, lr=lr, f_tilde=float(done.total) / self._feed.samples)

    def _epoch(self, watch: Callable[[Part], Watch], is_lost: Callable[[Progress, int, float], bool]) -> Progress:
        if not self.layout.holds(self._optimizer):
            raise CannotCompile("the optimizer's parameters are not those it began with")
        self._rule = step_rule(self._optimizer)  # a callback may have changed its groups
        at_start = self._begun()
        number = self._feed.epoch
        self._feed.epoch += 1
        try:
            return self._blocks_of(parts_of_epoch(self._feed, number), at_start, watch, is_lost)
        except CannotCompile:  # as if the epoch had not begun
            self._put(at_start)
            self._feed.epoch = number
            raise

    def _blocks_of(
        self,
        parts: list[Part],
        done: Progress,
        watch: Callable[[Part], Watch],
        is_lost: Callable[[Progress, int, float], bool],
    ) -> Progress:
        for part in parts:
            at = 0
            while at < len(part.rows):
                self._before_block(part.first + at)
                stop = min(len(part.rows), at + self._pace.batches(self._seconds_left()))
                begun = done._replace(batch=torch.tensor(at), going=torch.tensor(True))
                began = time.perf_counter()
                done = self._run(begun, watch(part), part, stop=stop)
                self._pace.saw(int(done.batch) - at, time.perf_counter() - began)
                at = int(done.batch)
                self._put(done)
                if is_lost(done, part.first + at, part.samples_after(at, self._feed.batch_size)):
                    return done
        return done

    def _put(self, done: Progress) -> None:
        self.layout.put(done.weights)
        self._rule.put_state(done.state, self._optimizer, self.layout)

    def _begun(self) -> Progress:
        return Progress(
            batch=torch.tensor(0),
            going=torch.tensor(True),
            total=torch.zeros((), dtype=torch.float64),
            lowest=torch.tensor(math.inf, dtype=torch.float64),
            weights=self.layout.flat(),
            state=self._rule.state(self._optimizer, self.layout),
        )

    def _run(self, begun: Progress, watch: Watch, part: Part, *, stop: int) -> Progress:
        block = self._blocks.get(self._rule)
        if block is None:
            block = self._blocks[self._rule] = compiled(make_block(self._loss, self._rule, self.layout, many=False))
        return block(
            begun,
            watch,
            *self._data,
            part.rows,
            torch.tensor(stop),
            learning_rates(self._optimizer, self._rule, part),
        )


class _Compiles(Protocol):
    compile_seconds: float


@contextmanager
def compiling(engine: _Compiles) -> Iterator[None]:
    """Counts the seconds; whatever a model does to the compiler is a CannotCompile: eager epochs may still train it."""
    began = time.perf_counter()
    try:
        yield
    except CannotCompile:
        raise
    except Exception as error:
        raise CannotCompile(f"compiling failed: {type(error).__name__}: {first_line(error)}") from error
    finally:
        engine.compile_seconds += time.perf_counter() - began


def learning_rates(optimizer: Optimizer, rule: StepRule, part: Part) -> Tensor:
    scale = part.share if rule.scales_short_batches else 1.0
    return torch.tensor([scale * group["lr"] for group in optimizer.param_groups], dtype=torch.float64)


def unwatched(batches: int) -> Watch:
    return Watch(
        checks=torch.zeros(batches, dtype=torch.bool),
        bound=torch.tensor(math.inf, dtype=torch.float64),
        samples=torch.tensor(1.0, dtype=torch.float64),
        active=torch.tensor(True),
    )


def watch_over(epochs: Sequence[Epoch | None], part: Part, size: int) -> Watch:
    """Asks after the batches after which eager epochs would; a None stands for a start that does not move."""
    open_ones = [epoch for epoch in epochs if epoch is not None]
    checks = torch.zeros(len(part.rows), dtype=torch.bool)
    for samples in {samples for epoch in open_ones for samples in epoch._checkpoints if samples > 0}:
        after = math.ceil(samples / size) - part.first
        if 0 < after <= len(checks):
            checks[after - 1] = True
    return Watch(
        checks=checks,
        bound=torch.tensor([math.inf if e is None else e._known.f_0 for e in epochs], dtype=torch.float64),
        samples=torch.tensor(max((e._samples for e in open_ones), default=1.0), dtype=torch.float64),
        active=torch.tensor([epoch is not None for epoch in epochs]),
    )
