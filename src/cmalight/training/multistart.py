"""Several starts of one training at once: the same batches for all, and for each a control of its own."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled.engine.several_starts import ManyStartsEngine
from cmalight.compiled.layout import CannotCompile
from cmalight.evaluation.batches import TensorBatches
from cmalight.optim.bracket.epoch import Epoch
from cmalight.optim.control.state import finite_or_unknown
from cmalight.optim.host import EpochOptimizer
from cmalight.training.checkpoints.model_state import ModelState
from cmalight.training.data.objectives import eager_objectives
from cmalight.training.epochs.loop import (
    EpochFigures,
    eager_cycle,
    lr_of_epoch,
    plain_epoch,
    plain_figures,
    watched_figures,
)
from cmalight.training.epochs.own_randomness import own_randomness
from cmalight.training.records.history import History
from cmalight.training.records.stopping import Status, Stop, StopTraining
from cmalight.training.run import Run, settled
from cmalight.training.settings import FitSettings

_T = TypeVar("_T")


@dataclass(frozen=True)
class Start:
    """How one of several starts ended.

    train_loss: the true one, at its last weights
    weights: with the buffers, by name
    """

    status: Status
    reason: str
    history: History
    evaluations: int
    best_epoch: int | None
    train_loss: float
    weights: dict[str, Tensor]


@dataclass
class _Started:
    """A start under way: a run that does not loop by itself."""

    run: Run
    stop: Stop | None = None
    loss: float = math.inf  # of the last epoch that moved it


class _OneByOne:
    """Eager epochs of several starts; each sees the batches that the first has seen."""

    def __init__(self, runs: Sequence[Run], feed: TensorBatches) -> None:
        self._runs = runs
        self._feed = feed

    def watched(self, epochs: Sequence[Epoch | None]) -> None:
        """The steps of an epoch of each start that has one."""
        for run, epoch in self._each(epochs):
            if isinstance(run.optimizer, EpochOptimizer):
                eager_cycle(run.trained, run.optimizer, epoch)

    def plain(self, moves: Sequence[bool]) -> list[float]:
        """An epoch under torch's optimizers; the mean loss that each saw."""
        losses = [math.nan] * len(self._runs)
        for run, _ in self._each([moving or None for moving in moves]):
            losses[self._runs.index(run)] = plain_epoch(run.trained, run.optimizer).f_tilde
        return losses

    def _each(self, whose: Sequence[_T | None]) -> Iterator[tuple[Run, _T]]:
        number = self._feed.epoch
        for run, own in zip(self._runs, whose, strict=True):
            if own is not None:
                self._feed.set_epoch(number)
                yield run, own


class ManyStarts:
    """Trains copies of a run's model together; the first has its weights, the others draw theirs anew.

    The model has the weights of the start in front after every epoch, and in the end those of the best.
    """

    def __init__(self, run: Run, count: int) -> None:
        _check(run.settings, run.model, run.optimizer, count)
        self._run = run
        alone = replace(run.settings, callbacks=(), progress=False, engine="eager")
        self._starts: list[_Started] = []
        for number in range(count):
            model, optimizer = copy.deepcopy((run.model, run.optimizer))
            if number:
                draw_anew(model, run.settings.seed + number)
            one = Run(model, run.loss_fn, run.feed, run.validation, optimizer, None, alone)
            self._starts.append(_Started(one))
        self._is_watched = isinstance(run.optimizer, EpochOptimizer)
        self.starts: list[Start] = []
        self.best = 0
        self.is_compiled = False

    def epochs(self) -> Stop:
        """Until the last start has ended; `starts` and `best` say how."""
        for started in self._starts:
            started.run.clock, started.run.interruptions = self._run.clock, self._run.interruptions
            started.run.model.train()
            started.stop = started.run.stop_at_boundary()
        stop = self._starts[0].stop
        if stop is None:
            self._prepare()
        while stop is None:
            stop = self._epoch()
        with self._run.clock.measuring():
            self._conclude()
        return Stop(self.starts[self.best].status, self.starts[self.best].reason)

    def _prepare(self) -> None:
        """The steps of all starts as one native loop, or one start after the other, as for a single one."""
        run = self._run
        if not isinstance(run.feed, TensorBatches):
            raise ValueError(
                f"Several starts see the same batches, which a {type(run.feed).__name__} does not promise: "
                "pass a pair of tensors, or TensorBatches"
            )

        def make(feed: TensorBatches) -> ManyStartsEngine:
            return ManyStartsEngine(
                [(started.run.model, started.run.optimizer) for started in self._starts],
                run.loss_fn,
                feed,
                before_block=self._before_block,
                seconds_left=run.seconds_left,
                has_callbacks=run.has_foreign_callbacks,
            )

        epochs = run.settings.rules.max_epochs
        compiled = run.engine.chosen(
            make,
            epochs_left=math.inf if epochs is None else epochs * len(self._starts),
            seconds_left=run.seconds_left(),
            note=run.note,
        )
        self.is_compiled = compiled is not None
        self._feed = run.feed
        self._engine: ManyStartsEngine | _OneByOne = compiled or _OneByOne(
            [started.run for started in self._starts], run.feed
        )
        if compiled is not None:
            for number, started in enumerate(self._starts):
                started.run.objectives.use(compiled.objective(number), compiled.objective(number))

    def _before_block(self, number: int) -> None:
        self._run.before_batch(number)
        for started in self._starts:
            if started.stop is None:
                started.run.before_batch(number)

    def _epoch(self) -> Stop | None:
        """One of every start that has not ended; a stop where none is left, or something ends them all."""
        live = [started for started in self._starts if started.stop is None]
        before = [len(started.run.history) for started in live]
        try:
            self._epoch_of_each()
        except StopTraining as stopped:
            for started in live:
                started.stop = stopped.stop
            return stopped.stop
        for started, epochs in zip(live, before, strict=True):
            if len(started.run.history) > epochs:
                started.stop = started.run.stop_at_boundary()
        asked = self._tell(live)
        if asked is not None:
            for started in self._starts:
                started.stop = started.stop or asked
        return None if any(started.stop is None for started in self._starts) else self._starts[0].stop

    def _epoch_of_each(self) -> None:
        one = self._watched_epoch if self._is_watched else self._plain_epoch
        try:
            one()
        except CannotCompile as reason:  # this epoch is as if not begun
            self._run.engine.give_up(reason)
            self.is_compiled = False
            self._engine = _OneByOne([started.run for started in self._starts], self._feed)
            for started in self._starts:
                run = started.run
                run.objectives.go_on_as(*eager_objectives(run.model, run.loss_fn, run.feed))
            one()

    def _watched_epoch(self) -> None:
        epochs: list[Epoch | None] = []
        try:
            for started in self._starts:
                epochs.append(None if started.stop else self._begin(started.run))
            self._engine.watched(epochs)
            for number, epoch in enumerate(epochs):
                if epoch is not None:
                    epochs[number] = None  # whatever comes, it is left now
                    epoch.__exit__(None, None, None)  # the control, with evaluations of its own
                    if epoch.report is not None:
                        self._write_down(self._starts[number], watched_figures(epoch.report))
        except (StopTraining, CannotCompile) as broken_off:
            for epoch in epochs:
                if epoch is not None:
                    epoch.cut_short() if isinstance(broken_off, StopTraining) else epoch.abandon()
                    epoch.__exit__(None, None, None)
            raise

    @staticmethod
    def _begin(run: Run) -> Epoch:
        optimizer = run.optimizer
        if not isinstance(optimizer, EpochOptimizer):
            raise TypeError(f"{type(optimizer).__name__} has no epochs")
        epoch = optimizer.epoch(run.objectives.judging if optimizer.needs_objective else None, model=run.model)
        return epoch.__enter__()

    def _plain_epoch(self) -> None:
        lrs = [lr_of_epoch(started.run.optimizer) for started in self._starts]
        losses = self._engine.plain([started.stop is None for started in self._starts])
        for started, lr, loss in zip(self._starts, lrs, losses, strict=True):
            if started.stop is None:
                self._write_down(started, plain_figures(started.run.optimizer, lr=lr, f_tilde=loss))

    @staticmethod
    def _write_down(started: _Started, figures: EpochFigures) -> None:
        started.run.conclude(figures, None)
        if figures.alpha is None or figures.alpha:
            started.loss = figures.f_tilde

    def _tell(self, live: list[_Started]) -> Stop | None:
        """The model and the callbacks, of the start in front among those that had an epoch."""
        ahead = min(live, key=lambda started: (math.isnan(started.loss), started.loss))
        with self._run.clock.measuring():
            ModelState.of(ahead.run.model).put(self._run.model)
            return self._run.tell(ahead.run.history[-1])

    def _conclude(self) -> None:
        for started in self._starts:
            run = started.run
            stop = settled(run, started.stop or Stop(Status.INTERRUPTED, "an error"))
            loss = run.true_train_loss()
            weights = {name: tensor.clone() for name, tensor in ModelState.of(run.model).tensors().items()}
            self.starts.append(
                Start(stop.status, stop.reason, run.history, run.evaluations, run.best.epoch, loss, weights)
            )
        self.best = min(range(len(self._starts)), key=self._rank)
        best = self._starts[self.best].run
        ModelState.of(best.model).put(self._run.model)
        self._run.optimizer.load_state_dict(best.optimizer.state_dict())
        self._run.history, self._run.best = best.history, best.best

    def _rank(self, number: int) -> float:
        """By the best validation where there is one, else by the true training loss."""
        value = self._starts[number].run.best.value if self._run.validation is not None else math.inf
        return value if math.isfinite(value) else finite_or_unknown(self.starts[number].train_loss)


def draw_anew(model: nn.Module, seed: int) -> None:
    """New weights as the model's layers draw them, from the seed alone."""
    with own_randomness(model, seed):
        for module in model.modules():
            if next(module.parameters(recurse=False), None) is not None:
                module.reset_parameters()  # type: ignore[operator]


def _check(settings: FitSettings, model: nn.Module, optimizer: Optimizer, count: int) -> None:
    for name in ("checkpoint", "history_file", "restore_best"):
        if getattr(settings, name):
            raise ValueError(f"{name} is for one start; with starts={count} leave it out")
    if optimizer.state or (isinstance(optimizer, EpochOptimizer) and optimizer.control.state.epochs):
        raise ValueError("The optimizer has taken steps already, and several starts begin anew: pass a fresh one")
    for name, p in model.named_parameters():
        if not p.requires_grad:
            raise ValueError(f"Several starts train every parameter, but {name} is frozen")
    for module in model.modules():
        if next(module.parameters(recurse=False), None) is not None and not hasattr(module, "reset_parameters"):
            raise ValueError(
                f"Several starts draw new weights, but {type(module).__name__} has no reset_parameters() to draw them"
            )
