"""Epochs and full evaluations as native loops, for one model, optimizer and data set."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled.blocks import Loss, Progress, Watch
from cmalight.compiled.engine.checks import check_unchanged
from cmalight.compiled.engine.evaluation import CompiledObjective, Evaluation
from cmalight.compiled.engine.functions import Functions, Plan, plan
from cmalight.compiled.engine.loop import Answer, BlockLoop, Observer
from cmalight.compiled.layout import CannotCompile, Layout
from cmalight.compiled.order import Order, order_of_epoch
from cmalight.compiled.steps import State, StepRule, step_rule
from cmalight.compiled.trust.canary import Trained
from cmalight.compiled.trust.surroundings import surroundings
from cmalight.evaluation.batches import TensorBatches
from cmalight.optim.bracket.epoch import Epoch

# A number that is another in every epoch, as a loss that is annealed has, would be built for each.
_MOST_BUILT_ANEW = 2


class CompiledEngine(BlockLoop):
    """Runs the inner cycle of epochs; all else, the control included, is as in eager epochs."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Loss,
        optimizer: Optimizer,
        feed: TensorBatches,
        *,
        before_block: Callable[[int], None],
        seconds_left: Callable[[], float],
        has_callbacks: bool = True,
    ) -> None:
        super().__init__(feed, before_block=before_block, seconds_left=seconds_left, has_callbacks=has_callbacks)
        self.layout = Layout.of(model, optimizer)
        self._model = model
        self._loss_fn = loss_fn
        self._optimizer = optimizer
        self._trained = Trained(model, optimizer, self.layout)
        self._rule = step_rule(optimizer)
        self._functions: Functions | None = None
        self._planned: tuple[StepRule, list[object], Plan] | None = None
        self._evaluation = Evaluation(model, feed)
        self._watched: tuple[tuple[object, ...], Watch] | None = None
        self._built_anew = 0

    def prepare(self) -> None:
        """Compile all that an epoch needs; CannotCompile says why that is not possible."""
        planned = self.plan()
        with self._compiling():
            begun, order = self._begun(), order_of_epoch(self._feed, 0)
            self._functions = functions = planned.functions()
            self._evaluation.prepare(functions.evaluation, planned.chunk, begun.weights, draws=functions.draws)
            self._run(begun, unwatched(order, begun.weights.clone()), order, torch.ones(order.batches), stop=0)
            self._look_elsewhere(begun, order)

    def plan(self) -> Plan:
        """What `prepare` will do; the same one as long as nothing has changed."""
        around = surroundings(self._model, self._loss_fn)
        if self._planned is None or self._planned[:2] != (self._rule, around):
            with self._compiling():
                planned = plan(
                    self._model,
                    self._loss_fn,
                    self.layout,
                    self._rule,
                    self._rule.state(self._optimizer, self.layout),
                    self._data,
                    order_of_epoch(self._feed, 0).sizes,
                    self._evaluation.merged_size,
                    many=False,
                )
            self._planned = self._rule, around, planned
        return self._planned[2]

    def objective(self) -> CompiledObjective:
        """f(w) over the feed by the compiled evaluation."""
        return CompiledObjective(self._model, self._loss_fn, self._feed, self._evaluation, self.layout)

    def inner_cycle(self, epoch: Epoch) -> None:
        """The steps of a watched epoch; they end early on an early rejection."""

        def watch(order: Order, start: Tensor) -> Watch:
            return self._watch(epoch, order)._replace(start=start)

        def told(done: Progress, moved: Tensor, order: Order) -> Answer:
            return tell(epoch, done, moved, order)

        epoch.expect(self._feed)
        self._epoch(
            Observer(watch, told, lambda count: factors_of(epoch, count), lambda: epoch.pace.steps_to_judgement)
        )

    def _watch(self, epoch: Epoch, order: Order) -> Watch:
        """The last one again where nothing is new, as in most epochs: making one takes long for a small network."""
        lookout = epoch.lookout
        figures = (tuple(lookout.moments), lookout.doubtful_above, lookout.samples)
        if self._watched is None or self._watched[0] != figures:
            one = watch_over([epoch], order, torch.empty(0))
            self._watched = figures, one._replace(bound=one.bound[0], active=one.active[0])
        return self._watched[1]

    def plain_epoch(self) -> float:
        """An epoch under one of torch's optimizers; gives its mean loss per sample."""

        def factors(count: int) -> Tensor:
            return factors_ahead(self._optimizer, count, len(self._feed))

        def told(*_: object) -> Answer:
            arrived(self._optimizer)
            return Answer.GO_ON

        done = self._epoch(Observer(unwatched, told, factors))
        return float(done.total) / self._feed.samples

    def _epoch(self, observer: Observer) -> Progress:
        check_unchanged(self._model, self._optimizer, self.layout)
        self._rule = step_rule(self._optimizer)  # a callback may have changed its groups
        before = self._planned
        if (planned := self.plan()) is not (before and before[2]):
            if not planned.is_ready:
                self._built_anew += 1
                if self._built_anew > _MOST_BUILT_ANEW:
                    raise CannotCompile("what the model or its loss depends on changes too often to be built anew")
            self.prepare()
        return super()._epoch(observer)

    def _put(self, done: Progress) -> None:
        self.layout.put(done.weights)
        put_state(done.state, self._rule, self._optimizer, self.layout, self._buffers())

    def _buffers(self) -> list[Tensor]:
        """That the steps change."""
        return [self._model.get_buffer(name) for name in self._changed]

    @property
    def _changed(self) -> tuple[str, ...]:
        return self._planned[2].buffers if self._planned else ()

    def _begun(self) -> Progress:
        return Progress(
            batch=torch.tensor(0),
            going=torch.tensor(True),
            total=torch.zeros((), dtype=torch.float64),
            lowest=torch.tensor(math.inf, dtype=torch.float64),
            weights=self.layout.flat(),
            state=state_of(self._rule, self._optimizer, self.layout, self._buffers()),
        )

    def _run(
        self, begun: Progress, watch: Watch, order: Order, factors: Tensor, *, stop: int
    ) -> tuple[Progress, Tensor]:
        if self._functions is None:
            raise RuntimeError("prepare() comes before the first epoch")
        lr = self._rates(order, factors)
        return self._functions.block(begun, watch, *self._data, order.rows, torch.tensor(stop), lr)

    def _rates(self, order: Order, factors: Tensor) -> tuple[Tensor, ...]:
        return learning_rates(self._optimizer, self._rule, order, factors)

    def _unwatched(self, order: Order, start: Tensor) -> Watch:
        return unwatched(order, start)

    def _first(self) -> Trained:
        return self._trained


def state_of(rule: StepRule, optimizer: Optimizer, layout: Layout, buffers: Sequence[Tensor]) -> State:
    """That of the optimizer, and copies of the buffers that the steps change."""
    copies = [buffer.detach().clone(memory_format=torch.contiguous_format) for buffer in buffers]
    return (*rule.state(optimizer, layout), *copies)


@torch.no_grad()
def put_state(state: State, rule: StepRule, optimizer: Optimizer, layout: Layout, buffers: Sequence[Tensor]) -> None:
    """Where `state_of` has it from."""
    own = len(state) - len(buffers)
    rule.put_state(state[:own], optimizer, layout)
    for buffer, value in zip(buffers, state[own:], strict=True):
        buffer.copy_(value)


def learning_rates(optimizer: Optimizer, rule: StepRule, order: Order, factors: Tensor) -> tuple[Tensor, ...]:
    """Of the groups, batch by batch, for each part of the epoch; `factors` relative to the step sizes as they are."""
    now = torch.tensor([group["lr"] for group in optimizer.param_groups], dtype=torch.float64)
    parts = []
    for share, own in zip(order.shares, torch.split(factors, [len(part) for part in order.rows]), strict=True):
        parts.append(torch.outer(own.double(), now * (share if rule.scales_short_batches else 1.0)))
    return tuple(parts)


def factors_of(epoch: Epoch, count: int) -> Tensor:
    """Of the next steps, relative to the step size as it is."""
    now, ahead = epoch.pace.factor, epoch.pace.factor_ahead
    first, last = ahead(0), ahead(count - 1)
    if first == last == now == 1.0:  # it rises to 1, stays there and falls
        return torch.ones(count, dtype=torch.float64)
    looked_at = {part * (count - 1) // 4 for part in (1, 2, 3)}
    if all(math.isclose(ahead(number), first + (last - first) * number / (count - 1)) for number in looked_at - {0}):
        # A factor is made of few straight lines: as a rule an epoch is on one of them.
        return torch.linspace(first / now, last / now, count, dtype=torch.float64)
    return torch.tensor([ahead(number) / now for number in range(count)], dtype=torch.float64)


def factors_ahead(optimizer: Optimizer, count: int, batches: int) -> Tensor:
    """Of the next steps of one of torch's optimizers; one with a schedule has `steps_ahead` and `arrive`."""
    if not hasattr(optimizer, "steps_ahead"):
        return torch.ones(count, dtype=torch.float64)
    return torch.tensor(optimizer.steps_ahead(count, batches), dtype=torch.float64)


def arrived(optimizer: Optimizer) -> None:
    """The steps are taken."""
    getattr(optimizer, "arrive", lambda: None)()


def tell(epoch: Epoch, done: Progress, moved: Tensor, order: Order) -> Answer:
    """What a block did, with one start's figures; and how the epoch goes on."""
    window, pace, at = epoch.window, epoch.pace, int(done.batch)
    new = at - pace.steps
    begun = at - new - window.steps_taken
    pace.took(new)
    window.was_run(
        total=float(done.total),
        lowest=float(done.lowest),
        samples=float(order.samples_after(at) - order.samples_after(begun)),
        nominal=float(order.samples_after(begun + 1) - order.samples_after(begun)),  # of the window's first batch
        steps=window.steps_taken + new,
        displacement=float(moved),
    )
    epoch.lookout.passed(float(order.samples_after(at) - order.nominal))  # before, there was no doubt
    epoch.lookout.announced = window.counts.total
    if epoch.is_lost():
        return Answer.END
    if not pace.is_time_to_judge():
        return Answer.GO_ON
    epoch.judge_now()
    return Answer.GO_ON_FROM_THE_MODEL


def unwatched(order: Order, start: Tensor) -> Watch:
    return Watch(
        checks=torch.zeros(len(order.rows[0]), dtype=torch.bool),
        bound=torch.tensor(math.inf, dtype=torch.float64),
        samples=torch.tensor(1.0, dtype=torch.float64),
        active=torch.tensor(True),
        start=start,
    )


def watch_over(epochs: Sequence[Epoch | None], order: Order, start: Tensor) -> Watch:
    """Asks after the batches after which eager epochs would; a None stands for a start that does not move."""
    open_ones = [epoch for epoch in epochs if epoch is not None]
    checks = torch.zeros(len(order.rows[0]), dtype=torch.bool)
    for samples in {samples for epoch in open_ones for samples in epoch.lookout.moments if samples > 0}:
        after = math.ceil(samples / order.nominal)
        if after <= len(checks):
            checks[after - 1] = True
    return Watch(
        checks=checks,
        bound=torch.tensor([math.inf if e is None else e.lookout.doubtful_above for e in epochs], dtype=torch.float64),
        samples=torch.tensor(max((e.lookout.samples for e in open_ones), default=1.0), dtype=torch.float64),
        active=torch.tensor([epoch is not None for epoch in epochs]),
        start=start,
    )
