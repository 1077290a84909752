"""One training from its first epoch, or its checkpoint, to its stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled.layout import CannotCompile
from cmalight.evaluation.counting import counter
from cmalight.evaluation.undisturbed import undisturbed
from cmalight.optim.control.budget import Budget
from cmalight.optim.host import EpochOptimizer
from cmalight.parallel.ranks import is_distributed, ranks_of
from cmalight.training.data.feed import device_of, training_feed, validation_feed
from cmalight.training.data.objectives import Objectives, eager_objectives
from cmalight.training.epochs.engine import ChosenEngine
from cmalight.training.epochs.loop import (
    EpochFigures,
    ModelAndData,
    lr_of_epoch,
    plain_epoch,
    plain_figures,
    watched_epoch,
)
from cmalight.training.epochs.own_randomness import own_randomness, warn_of_uncovered
from cmalight.training.epochs.threads import limited_threads
from cmalight.training.records.best import Best
from cmalight.training.records.clock import TrainingClock
from cmalight.training.records.history import EpochRecord, History, HistoryFile
from cmalight.training.records.metrics import measure
from cmalight.training.records.progress import RunDisplay, make_display
from cmalight.training.records.stopping import Interruptions, Status, Stop, StopTraining
from cmalight.training.resume import RunCheckpoints
from cmalight.training.settings import FitSettings
from cmalight.training.solvers.optimizers import make_optimizer, require_parameters_of
from cmalight.training.solvers.run_budget import RunBudget


class Run:
    """The state of a training, and the loop over its epochs."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, Any], Tensor],
        data: Any,
        validation: Any,
        optimizer: str | Optimizer,
        optimizer_options: Mapping[str, Any] | None,
        settings: FitSettings,
    ) -> None:
        refuse_ranks(model)
        self.model = model
        self.settings = settings
        self.optimizer = make_optimizer(optimizer, model.parameters(), optimizer_options)
        watched = isinstance(self.optimizer, EpochOptimizer)
        settings.check(has_validation=validation is not None, watched=watched)
        require_parameters_of(model, self.optimizer)
        self.feed = training_feed(
            data,
            model,
            loss_fn,
            batch_size=settings.batch_size,
            order=settings.order,
            seed=settings.seed,
            watched=getattr(self.optimizer, "needs_objective", False),
            time_limit=settings.rules.time_limit,
        )
        self.validation = None if validation is None else validation_feed(validation, model, loss_fn)
        self.loss_fn = loss_fn
        self.history = History()
        self.best = Best(monitor=settings.monitor, keep_weights=settings.restore_best)
        self.next_lr, self.direction_norm = float("nan"), None
        self.trained = ModelAndData(
            model, loss_fn, self.feed, device_of(model), counter(loss_fn, self.feed), self.before_batch
        )
        self.objectives = Objectives(*eager_objectives(model, loss_fn, self.feed), self.check_limits)
        self.engine = ChosenEngine(settings.engine, self.trained, self.optimizer)
        self.clock = TrainingClock(kind=settings.clock)
        rules = settings.rules
        self.tell_budget(
            RunBudget(max_epochs=rules.max_epochs, time_limit=rules.time_limit, seconds=lambda: self.clock.seconds())
        )
        self.interruptions = Interruptions()
        self.resumed_at = 0
        self._display = RunDisplay()
        self._checkpoints = (
            None
            if settings.checkpoint is None
            else RunCheckpoints(self, settings.checkpoint, settings.checkpoint_seconds)
        )

    next_lr: float
    direction_norm: float | None

    @property
    def evaluations(self) -> int:
        return self.optimizer.evaluations if isinstance(self.optimizer, EpochOptimizer) else 0

    @property
    def seconds(self) -> float:
        """Training time so far."""
        return self.clock.seconds()

    def tell_budget(self, budget: RunBudget) -> None:
        """To an optimizer that asks how much of the run is done."""
        self.budget = budget
        if isinstance(self.optimizer, EpochOptimizer):  # it counts the batches of an epoch by itself
            self.optimizer.budget = Budget(
                max_epochs=budget.max_epochs, reported=budget.clock_share, epochs_before=lambda: len(self.history)
            )
        elif hasattr(self.optimizer, "budget"):
            self.optimizer.budget = budget

    def train(self, epochs: Callable[[], Stop] | None = None) -> Stop:
        """Run to the first stop rule that applies; `epochs` takes the place of this run's own."""
        checkpoints = nullcontext() if self._checkpoints is None else self._checkpoints.held()
        threads = limited_threads(self.settings.threads, self.model, self.feed)
        with own_randomness(self.model, self.settings.seed), self.interruptions, threads, checkpoints:
            warn_of_uncovered(self.model, self.feed, self.loss_fn)
            if isinstance(self.optimizer, EpochOptimizer) and self.optimizer.rule().uses_a_sample:
                with suppress(StopTraining):  # the limits are looked at again below
                    self.objectives.judging.sample()  # now: a run that goes on has the sample that it began with
            elapsed = 0.0 if self._checkpoints is None else self._checkpoints.resume()
            self.resumed_at = len(self.history)
            file = None if self.settings.history_file is None else HistoryFile(self.settings.history_file, self.history)
            if not self.model.training:  # else layers that were frozen in eval mode stay so
                self.model.train()
            self._display = make_display(
                self.settings.progress,
                max_epochs=self.settings.rules.max_epochs,
                time_limit=self.settings.rules.time_limit,
            )
            if self.resumed_at:
                self._display.note(f"resumed from {self.settings.checkpoint} at epoch {self.resumed_at}")
            self.clock = TrainingClock(elapsed, kind=self.settings.clock)
            self.budget.epochs = float(len(self.history))
            stop = Stop(Status.INTERRUPTED, "an error")
            try:
                stop = self._with_trouble(self._epochs(file) if epochs is None else epochs(), file)
            except KeyboardInterrupt:  # a second Ctrl-C
                stop = Stop(Status.INTERRUPTED, "interrupted by Ctrl-C")
                raise
            finally:
                self.clock.stop()
                self._display.close(stop.reason)
                for callback in self.settings.callbacks:
                    getattr(callback, "close", lambda: None)()
        if self.settings.restore_best:
            self.best.restore(self.model)
        return stop

    def _with_trouble(self, stop: Stop, file: HistoryFile | None) -> Stop:
        """The end, with what could not be written."""
        trouble = [part.trouble for part in (self._checkpoints, file) if part is not None and part.trouble]
        return Stop(stop.status, "; ".join((stop.reason, *trouble)))

    def _epochs(self, file: HistoryFile | None) -> Stop:
        stop = self.stop_at_boundary()
        if stop is None:
            self._choose_engine()
        elif self.resumed_at:
            return settled(self, Stop(stop.status, f"nothing left to train: {stop.reason}"))
        while stop is None:
            if self._checkpoints is not None and isinstance(self.optimizer, EpochOptimizer):
                self._checkpoints.remember_boundary()
            try:
                figures = self._epoch()
            except StopTraining as broken_off:
                if self._checkpoints is not None and isinstance(self.optimizer, EpochOptimizer):
                    with self.clock.measuring():
                        self._checkpoints.save_boundary()
                return broken_off.stop
            stop = self.conclude(figures, file) or self.stop_at_boundary()
            if stop is None and self._checkpoints is not None:
                with self.clock.measuring():
                    self._checkpoints.save_if_due()
        if self._checkpoints is not None and len(self.history) and stop.status is not Status.DIVERGED:
            with self.clock.measuring():
                self._checkpoints.save()
        return settled(self, stop)  # after it was saved, so that it can go on where it was

    def _choose_engine(self) -> None:
        rules = self.settings.rules
        self.engine.choose(
            epochs_left=float("inf") if rules.max_epochs is None else rules.max_epochs - len(self.history),
            seconds_left=self.seconds_left,
            has_callbacks=self.has_foreign_callbacks,
            note=self.note,
        )
        if (compiled := self.engine.compiled) is not None:
            self.objectives.go_on_as(compiled.objective(), compiled.objective())

    @property
    def has_foreign_callbacks(self) -> bool:
        """Which may change what is trained; those of the package look only."""
        package = __name__.partition(".")[0]
        return any(type(one).__module__.partition(".")[0] != package for one in self.settings.callbacks)

    def note(self, text: str) -> None:
        """A line for those who watch."""
        self._display.note(text)

    def seconds_left(self) -> float:
        limit = self.settings.rules.time_limit
        return float("inf") if limit is None else limit - self.clock.seconds()

    def _epoch(self) -> EpochFigures:
        try:
            return self._one_epoch()
        except CannotCompile as reason:  # something has changed since the last epoch; this one is as if not begun
            self.engine.give_up(reason)
            # as a run that goes on from a checkpoint has them
            self.objectives.go_on_as(*eager_objectives(self.model, self.loss_fn, self.feed))
            return self._one_epoch()

    def _one_epoch(self) -> EpochFigures:
        compiled = self.engine.compiled
        if isinstance(self.optimizer, EpochOptimizer):
            return watched_epoch(
                self.trained,
                self.optimizer,
                self.objectives.judging if self.optimizer.needs_objective else None,
                None if compiled is None else compiled.inner_cycle,
            )
        if compiled is None:
            return plain_epoch(self.trained, self.optimizer)
        lr = lr_of_epoch(self.optimizer)
        return plain_figures(self.optimizer, lr=lr, f_tilde=compiled.plain_epoch())

    def conclude(self, figures: EpochFigures, file: HistoryFile | None) -> Stop | None:
        """Measure, write down, tell everybody; all off the training clock."""
        seconds = self.clock.seconds()
        with self.clock.measuring():
            record = self._record(figures, seconds)
            self.next_lr, self.direction_norm = figures.next_lr, figures.direction_norm
            self.best.see(record, self.model)
            self.history.append(record)
            self.budget.epochs = float(len(self.history))
            if file is not None:
                file.append(record)
            return self.tell(record)

    def tell(self, record: EpochRecord) -> Stop | None:
        """The display, and the callbacks, which may ask for a stop."""
        self._display.epoch_done(record)
        asked = [callback.on_epoch_end(record) for callback in self.settings.callbacks]
        return Stop(Status.CALLBACK, "a callback asked for it") if any(asked) else None

    def _record(self, figures: EpochFigures, seconds: float) -> EpochRecord:
        validation_loss: float | None = None
        metrics: dict[str, float] = {}
        measures_train_loss = self.settings.measures_train_loss(has_validation=self.validation is not None)
        if self.validation is not None:
            validation_loss, metrics = measure(
                self.model, self.loss_fn, self.validation, self.settings.metrics, self.trained.device
            )
        return EpochRecord(
            epoch=len(self.history),
            seconds=seconds,
            train_loss=self.true_train_loss() if measures_train_loss else None,
            validation_loss=validation_loss,
            metrics=metrics,
            **figures.recorded(),
        )

    def true_train_loss(self) -> float:
        """With the same random numbers each time, so that it is a function of the weights, dropout included."""
        with undisturbed(self.model, self.feed, self.loss_fn) as generators:
            for source in generators:
                source.seed(self.settings.seed)
            return self.objectives.measuring()

    def stop_at_boundary(self) -> Stop | None:
        """The rules on the epoch that is behind, then those on the one that would come; also right after resuming."""
        rules, done = self.settings.rules, len(self.history)
        stop = None
        if done:
            stop = rules.after_epoch(
                self.history[-1],
                next_lr=self.next_lr,
                direction_norm=self.direction_norm,
                epochs_since_best=self.best.epochs_since(done - 1),
            )
            if stop is None and getattr(self.optimizer, "has_converged", False):
                stop = Stop(Status.CONVERGED, "converged: the step size is below rounding")
        return stop or rules.before_epoch(done, self.clock.seconds()) or self.interruptions.stop()

    def check_limits(self) -> None:
        stop = self.settings.rules.out_of_time(self.clock.seconds()) or self.interruptions.stop()
        if stop is not None:
            raise StopTraining(stop)

    def before_batch(self, number: int) -> None:
        self.check_limits()
        self.budget.epochs = len(self.history) + number / _batches_per_epoch(self.feed)
        self._display.within_epoch(self.budget.epochs, self.clock.seconds())


def settled(run: Run, stop: Stop) -> Stop:
    """The end of a run that may have ended in a window, before its budget did."""
    if not isinstance(run.optimizer, EpochOptimizer) or not run.optimizer.needs_objective:
        return stop
    with run.clock.measuring():
        report = run.optimizer.settle(run.objectives.judging, model=run.model)
    if report is None or report.outcome.keeps:
        return stop
    return Stop(stop.status, f"{stop.reason}; the last epochs, which were not judged yet, ended too high: undone")


def _batches_per_epoch(feed: Any) -> int:
    try:
        return max(1, len(feed))
    except TypeError:  # a stream
        return 1 << 30


def refuse_ranks(model: nn.Module) -> None:
    """fit trains in one process: its clock, its files and its data are that of one."""
    if is_distributed(model) and not ranks_of(model).alone:
        raise ValueError(
            "fit trains in one process, but the model is wrapped in DDP or sharded over several: "
            "write the loop of docs/guides/distributed.md, or pass the plain model to train one on each rank by itself"
        )
