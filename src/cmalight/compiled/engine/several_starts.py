"""The epochs of several starts in one native loop: their weights are the rows of one matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled.blocks import Loss, Progress, Watch
from cmalight.compiled.engine.epochs import (
    arrived,
    factors_ahead,
    factors_of,
    learning_rates,
    put_state,
    state_of,
    tell,
    watch_over,
)
from cmalight.compiled.engine.evaluation import CompiledObjective, Evaluation
from cmalight.compiled.engine.functions import Functions, Plan, plan
from cmalight.compiled.engine.loop import Answer, BlockLoop, Observer
from cmalight.compiled.layout import CannotCompile, Layout
from cmalight.compiled.order import Order, order_of_epoch
from cmalight.compiled.steps import step_rule
from cmalight.compiled.trust.canary import Trained
from cmalight.evaluation.batches import TensorBatches
from cmalight.optim.bracket.epoch import Epoch

# A start that was judged has to be read anew; as long as one goes on, the epoch does.
_MOST_IMPORTANT_FIRST = (Answer.GO_ON_FROM_THE_MODEL, Answer.GO_ON, Answer.END)


class ManyStartsEngine(BlockLoop):
    """All starts see the same batches; one that does not move in an epoch stays as it is, bit for bit."""

    def __init__(
        self,
        starts: Sequence[tuple[nn.Module, Optimizer]],
        loss_fn: Loss,
        feed: TensorBatches,
        *,
        before_block: Callable[[int], None],
        seconds_left: Callable[[], float],
        has_callbacks: bool = True,
    ) -> None:
        super().__init__(feed, before_block=before_block, seconds_left=seconds_left, has_callbacks=has_callbacks)
        self._starts = [Trained(model, optimizer, Layout.of(model, optimizer)) for model, optimizer in starts]
        self._loss_fn = loss_fn
        first = self._starts[0]
        self._rule = step_rule(first.optimizer)
        if any(step_rule(one.optimizer) != self._rule for one in self._starts):
            raise CannotCompile("the starts differ in more than their weights")
        self._functions: Functions | None = None
        self._planned: Plan | None = None
        self._evaluation = Evaluation(first.model, feed)

    def plan(self) -> Plan:
        """What `prepare` will do."""
        if self._planned is None:
            first = self._starts[0]
            with self._compiling():
                self._planned = plan(
                    first.model,
                    self._loss_fn,
                    first.layout,
                    self._rule,
                    self._rule.state(first.optimizer, first.layout),
                    self._data,
                    order_of_epoch(self._feed, 0).sizes,
                    self._evaluation.merged_size,
                    many=True,
                )
        return self._planned

    def prepare(self) -> None:
        """Compile all that an epoch needs; CannotCompile says why that is not possible."""
        planned = self.plan()
        with self._compiling():
            nobody: list[Epoch | None] = [None] * len(self._starts)
            begun, order = self._begun(), order_of_epoch(self._feed, 0)
            ones = torch.ones(order.batches, len(self._starts))
            self._functions = functions = planned.functions()
            self._run(begun, watch_over(nobody, order, begun.weights.clone()), order, ones, stop=0)
            weights = self._starts[0].layout.flat()
            self._evaluation.prepare(functions.evaluation, planned.chunk, weights, draws=functions.draws)
            self._look_elsewhere(begun, order)

    def objective(self, number: int) -> CompiledObjective:
        one = self._starts[number]
        return CompiledObjective(one.model, self._loss_fn, self._feed, self._evaluation, one.layout)

    def watched(self, epochs: Sequence[Epoch | None]) -> None:
        """The steps of an epoch of each start that has one; each may end early by itself."""
        running = list(epochs)

        def watch(order: Order, start: Tensor) -> Watch:
            return watch_over(running, order, start)

        def told(done: Progress, moved: Tensor, order: Order) -> Answer:
            answers, going_on = {Answer.END}, []
            for number, epoch in enumerate(running):
                if epoch is None:
                    continue
                own = done._replace(total=done.total[number], lowest=done.lowest[number])
                answers.add(answer := tell(epoch, own, moved[number], order))
                if answer is Answer.END:
                    running[number] = None
                elif answer is Answer.GO_ON:
                    going_on.append(epoch)
            if Answer.GO_ON_FROM_THE_MODEL in answers:
                for epoch in going_on:
                    epoch.window.carry()
            return next(answer for answer in _MOST_IMPORTANT_FIRST if answer in answers)

        def factors(count: int) -> Tensor:
            still = torch.ones(count, dtype=torch.float64)
            return torch.stack([still if epoch is None else factors_of(epoch, count) for epoch in running], dim=1)

        def limit() -> int | None:
            steps = [epoch.pace.steps_to_judgement for epoch in running if epoch is not None]
            return min((count for count in steps if count is not None), default=None)

        for epoch in running:
            if epoch is not None:
                epoch.expect(self._feed)
        self._epoch(Observer(watch, told, factors, limit))

    def plain(self, moves: Sequence[bool]) -> list[float]:
        """An epoch under torch's optimizers; the mean loss that each saw."""
        nobody: list[Epoch | None] = [None] * len(self._starts)

        def watch(order: Order, start: Tensor) -> Watch:
            return watch_over(nobody, order, start)._replace(active=torch.tensor(moves))

        def factors(count: int) -> Tensor:
            still = torch.ones(count, dtype=torch.float64)
            pairs = zip(self._starts, moves, strict=True)
            each = [factors_ahead(one.optimizer, count, len(self._feed)) if live else still for one, live in pairs]
            return torch.stack(each, dim=1)

        def told(*_: object) -> Answer:
            for one, live in zip(self._starts, moves, strict=True):
                if live:
                    arrived(one.optimizer)
            return Answer.GO_ON

        done = self._epoch(Observer(watch, told, factors))
        return [float(total) / self._feed.samples for total in done.total]

    def _begun(self) -> Progress:
        count = len(self._starts)
        states = [state_of(self._rule, one.optimizer, one.layout, self._buffers(one)) for one in self._starts]
        return Progress(
            batch=torch.tensor(0),
            going=torch.tensor(True),
            total=torch.zeros(count, dtype=torch.float64),
            lowest=torch.full((count,), math.inf, dtype=torch.float64),
            weights=torch.stack([one.layout.flat() for one in self._starts]),
            state=tuple(torch.stack(one) for one in zip(*states, strict=True)),
        )

    def _run(
        self, begun: Progress, watch: Watch, order: Order, factors: Tensor, *, stop: int
    ) -> tuple[Progress, Tensor]:
        if self._functions is None:
            raise RuntimeError("prepare() comes before the first epoch")
        lr = self._rates(order, factors)
        return self._functions.block(begun, watch, *self._data, order.rows, torch.tensor(stop), lr)

    def _rates(self, order: Order, factors: Tensor) -> tuple[Tensor, ...]:
        each = [
            learning_rates(one.optimizer, self._rule, order, own)
            for one, own in zip(self._starts, factors.unbind(1), strict=True)
        ]
        return tuple(torch.stack(of_part, dim=1) for of_part in zip(*each, strict=True))

    def _unwatched(self, order: Order, start: Tensor) -> Watch:
        everyone = torch.ones(len(self._starts), dtype=torch.bool)
        return watch_over([None] * len(self._starts), order, start)._replace(active=everyone)

    def _first(self) -> Trained:
        return self._starts[0]

    def _put(self, done: Progress) -> None:
        for number, one in enumerate(self._starts):
            one.layout.put(done.weights[number])
            state = tuple(t[number] for t in done.state)
            put_state(state, self._rule, one.optimizer, one.layout, self._buffers(one))

    def _buffers(self, one: Trained) -> list[Tensor]:
        """That the steps change."""
        return [one.model.get_buffer(name) for name in self._changed]

    @property
    def _changed(self) -> tuple[str, ...]:
        return self._planned.buffers if self._planned else ()
