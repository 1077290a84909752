"""What the engines of one and of several starts share: an epoch as native calls, a block of batches each."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from cmalight.compiled.blocks import Loss, Progress, Watch, first_line
from cmalight.compiled.engine.evaluation import Evaluation
from cmalight.compiled.engine.functions import Plan
from cmalight.compiled.layout import CannotCompile
from cmalight.compiled.order import Order, order_of_epoch
from cmalight.compiled.pace import Pace
from cmalight.compiled.steps import StepRule
from cmalight.compiled.trust.canary import EagerStep, Schedule, StepTaken, Trained, agree, compare, elsewhere
from cmalight.evaluation.batches import TensorBatches

MakeWatch = Callable[[Order, Tensor], Watch]  # from the order of the epoch and w^k
MakeFactors = Callable[[int], Tensor]  # of the steps from the next one on: by what the step sizes are multiplied


class Answer(Enum):
    """What is to be done after a block."""

    GO_ON = "go on"
    GO_ON_FROM_THE_MODEL = "the weights were judged, and are where that led"
    END = "end the epoch"


Told = Callable[[Progress, Tensor, Order], Answer]  # of the progress since w^k and ‖w − w^k‖


@dataclass(frozen=True)
class Observer:
    """What an epoch wants to be asked and told.

    Attributes:
        watch: When to leave a block early.
        factors: For so many next steps, by what the step sizes are multiplied.
        limit: How many steps may be taken before it is told.
        told: What was done; says how to go on.
    """

    watch: MakeWatch
    told: Told
    factors: MakeFactors = torch.ones
    limit: Callable[[], int | None] = lambda: None


class BlockLoop(ABC):
    """Runs epochs over `feed`.

    before_block: called with the number of the next batch; may raise StopTraining
    seconds_left: of the time limit, so that a block does not run far past it
    has_callbacks: whether others may change things between epochs
    """

    _loss_fn: Loss
    _rule: StepRule
    _evaluation: Evaluation

    def __init__(
        self,
        feed: TensorBatches,
        *,
        before_block: Callable[[int], None],
        seconds_left: Callable[[], float],
        has_callbacks: bool = True,
    ) -> None:
        self.compile_seconds = 0.0
        self._feed = feed
        self._data: tuple[Tensor, ...] = tuple(t.detach().contiguous() for t in feed.tensors)
        self._before_block = before_block
        self._seconds_left = seconds_left
        self._pace = Pace()
        self._schedule = Schedule(always=has_callbacks)

    @abstractmethod
    def plan(self) -> Plan:
        """What `prepare` will do."""

    @abstractmethod
    def prepare(self) -> None:
        """Compile all that an epoch needs; CannotCompile says why that is not possible."""

    @abstractmethod
    def _begun(self) -> Progress:
        """Before the first batch of an epoch, at the weights and states as they are."""

    @abstractmethod
    def _run(
        self, begun: Progress, watch: Watch, order: Order, factors: Tensor, *, stop: int
    ) -> tuple[Progress, Tensor]:
        """To the batch `stop`, or to where the watch says that somebody has to decide; with it ‖w − w^k‖."""

    @abstractmethod
    def _put(self, done: Progress) -> None:
        """Weights and states back to where they belong."""

    @abstractmethod
    def _first(self) -> Trained:
        """Of several starts the first."""

    @property
    @abstractmethod
    def _changed(self) -> tuple[str, ...]:
        """The names of the buffers that a step changes."""

    @abstractmethod
    def _unwatched(self, order: Order, start: Tensor) -> Watch:
        """Lets every start take all its steps."""

    @abstractmethod
    def _rates(self, order: Order, factors: Tensor) -> tuple[Tensor, ...]:
        """The step sizes of the groups, batch by batch, for each part of the epoch."""

    def _epoch(self, observer: Observer) -> Progress:
        begun, random = self._begun(), torch.get_rng_state()
        number = self._feed.epoch
        self._feed.epoch += 1
        try:
            order = order_of_epoch(self._feed, number)
            looks, thorough = self._schedule.due(order.batches)
            if thorough:
                self._look(begun, order, thorough=True)
            return self._blocks_of(order, begun, observer, looks=looks and not thorough)
        except CannotCompile:  # as if the epoch had not begun
            self._put(begun)
            torch.set_rng_state(random)
            self._feed.epoch = number
            raise

    def _blocks_of(self, order: Order, done: Progress, observer: Observer, *, looks: bool) -> Progress:
        start, at = done.weights.clone(), 0  # two arguments that are one tensor would be compiled for themselves
        begun = done
        expected = self._eager_loss(order) if looks else None
        while at < order.batches:
            self._before_block(at)
            count = min(order.batches - at, self._pace.batches(self._seconds_left()), observer.limit() or order.batches)
            began = time.perf_counter()
            done, moved = self._run(
                done._replace(going=torch.tensor(True)),
                observer.watch(order, start),
                order,
                _placed(observer.factors(count), at, order.batches),
                stop=at + count,
            )
            self._pace.saw(int(done.batch) - at, time.perf_counter() - began)
            if expected is not None:
                told = torch.nan if done.first is None else float(done.first.view(-1)[0])
                if not agree(told, expected, self._first().layout.dtype):
                    self._look(begun, order, thorough=False)
                expected = None
            at = int(done.batch)
            self._put(done)
            answer = observer.told(done, moved, order)
            if answer is Answer.END:
                break
            if answer is Answer.GO_ON_FROM_THE_MODEL:
                done = self._begun()._replace(batch=done.batch)
                start = done.weights.clone()
        return done

    def _look_elsewhere(self, begun: Progress, order: Order) -> None:
        """Before the first epoch: on other rows and from other weights than those that were recorded."""
        there = elsewhere(begun.weights)
        self._look(begun._replace(weights=there), order, thorough=True)
        if (chunk := self._evaluation.last_chunk()) is not None:
            weights, random = there[0] if begun.total.dim() else there, torch.get_rng_state()
            loss = self._evaluation.mean_of(weights, [chunk])
            torch.set_rng_state(random)
            nothing = weights.new_empty(0)
            compare(
                StepTaken(loss, nothing),
                EagerStep(self._first(), self._loss_fn, self._rule, (), nothing, chunk),
                weights,
            )

    def _eager_loss(self, order: Order) -> float:
        """Of the first batch, before it."""
        batch = [t[order.rows[0][0]] for t in self._data]
        return EagerStep(self._first(), self._loss_fn, self._rule, (), torch.empty(0), batch).loss().loss

    def _look(self, begun: Progress, order: Order, *, thorough: bool) -> None:
        """Compares the loss of the first batch with that of an eager step.

        Args:
            begun: where from.
            order: of the batches.
            thorough: all that a step on the last full batch comes to, and one on a short last batch.

        Raises:
            Differs: they differ by more than rounding.
        """
        ones = torch.ones(order.batches, *begun.total.shape, dtype=torch.float64)
        rates, behind = self._rates(order, ones), 0
        for part, rows in enumerate(order.rows if thorough else order.rows[:1]):
            here, behind = len(rows) - 1 if thorough else 0, behind + len(rows)
            number = behind - len(rows) + here
            random = torch.get_rng_state()
            done, _ = self._run(
                begun._replace(batch=torch.tensor(number)),
                self._unwatched(order, begun.weights.clone()),
                order,
                ones,
                stop=number + 1,
            )
            torch.set_rng_state(random)
            rate, batch = rates[part][here], [t[rows[here]] for t in self._data]
            if begun.total.dim():
                begun_one, done, rate = _of_first(begun), _of_first(done), rate[0]
            else:
                begun_one = begun
            own = len(begun_one.state) - len(self._changed)
            moved = (done.weights - begun_one.weights)[: None if thorough else 0]
            compare(
                StepTaken(float(done.lowest), moved, done.state[own:]),
                EagerStep(self._first(), self._loss_fn, self._rule, begun_one.state[:own], rate, batch, self._changed),
                begun_one.weights,
            )

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        """Counts the seconds; whatever a model does to the compiler is a reason: eager epochs may still train it."""
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the compiler's own, which the user can do nothing about
                yield
        except CannotCompile:
            raise
        except Exception as error:
            raise CannotCompile(f"compiling failed: {type(error).__name__}: {first_line(error)}") from error
        finally:
            self.compile_seconds += time.perf_counter() - began


def _placed(factors: Tensor, at: int, batches: int) -> Tensor:
    """In their places among those of all the batches of an epoch."""
    if len(factors) == batches:
        return factors
    places = torch.ones(batches, *factors.shape[1:], dtype=torch.float64)
    places[at : at + len(factors)] = factors
    return places


def _of_first(progress: Progress) -> Progress:
    """Of several starts."""
    return progress._replace(
        lowest=progress.lowest[0], weights=progress.weights[0], state=tuple(t[0] for t in progress.state)
    )
