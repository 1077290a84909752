"""One training: from its first epoch, or its checkpoint, to its stop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.evaluation.batches import Order, TensorBatches
from cmalight.evaluation.objective import Objective
from cmalight.evaluation.randomness import (
    devices_of,
    get_random_state,
    random_state_kept,
    seed_everything,
    set_random_state,
)
from cmalight.evaluation.ranks import is_distributed, ranks_of
from cmalight.training.best import Best, pack_modules, unpack_modules
from cmalight.training.checkpoint import CheckpointFile
from cmalight.training.clock import ClockName, TrainingClock
from cmalight.training.data import length_of, training_batches, validation_batches
from cmalight.training.epochs import EpochFigures, Epochs
from cmalight.training.history import EpochRecord, History, HistoryFile
from cmalight.training.identity import identity_of
from cmalight.training.measuring import modules_of, validate
from cmalight.training.metrics import Metric
from cmalight.training.progress import Display
from cmalight.training.solvers import make_solver
from cmalight.training.stopping import Interrupts, Status, Stop, StopRules, StopTraining
from cmalight.training.surroundings import limited_threads, own_randomness

EngineName = Literal["auto", "compiled", "eager"]


@dataclass(frozen=True)
class Settings:
    """What `fit` was asked for, beside model, loss, data and optimizer."""

    rules: StopRules
    batch_size: int
    order: Order
    seed: int
    metrics: Mapping[str, Metric]
    monitor: str
    measure_train_loss: bool
    restore_best: bool
    checkpoint: Path | None
    history_file: Path | None
    callbacks: Sequence[Any]
    progress: bool
    engine: EngineName
    threads: int | None
    clock: ClockName


class Training:
    """The parts of one training, and the loop over its epochs.

    Args:
        model: Trained in place.
        loss_fn: Mean loss of a batch.
        data: Training data as `fit` takes it.
        validation: Validation data as `fit` takes it, or None.
        optimizer: A name, or an optimizer over the model's parameters.
        optimizer_options: Options of the optimizer of that name.
        settings: Everything else.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, Any], Tensor],
        data: Any,
        validation: Any,
        optimizer: str | Optimizer,
        optimizer_options: Mapping[str, Any] | None,
        settings: Settings,
    ) -> None:
        refuse_ranks(model)
        self.model, self.loss_fn, self.settings = model, loss_fn, settings
        rules = settings.rules
        self.batches = training_batches(
            data,
            model,
            loss_fn,
            batch_size=settings.batch_size,
            order=settings.order,
            seed=settings.seed,
            needs_end=rules.time_limit is None,
        )
        self.validation = None if validation is None else validation_batches(validation, model, loss_fn)
        self.clock = TrainingClock(kind=settings.clock)
        self._batches_per_epoch = length_of(self.batches)
        self._batch = 0  # the last one that was announced in the running epoch
        self._steps_since = 0  # how often the optimizer has asked for its progress since
        self.objective: Any = Objective(model, loss_fn, self.batches, process_group=False)
        solver = None
        if isinstance(optimizer, Optimizer):
            if optimizer_options:
                raise ValueError("optimizer_options go with an optimizer's name; a ready optimizer has its own")
            require_parameters_of(model, optimizer)
            self.optimizer = optimizer
            self.objective = getattr(optimizer, "objective", self.objective)
        else:
            solver = make_solver(optimizer, optimizer_options)
            watched = [self.objective] if solver.watches else []
            self.optimizer = solver.make(model.parameters(), *watched, **(self._budget() if watched else {}))
        if self._batches_per_epoch is None and getattr(self.optimizer, "needs_objective", False):
            raise ValueError(
                f"{type(self.optimizer).__name__} compares epochs with a fixed sum over samples, but a loader without "
                "a length is a stream: give the data a length, or use another optimizer"
            )
        self._epochs = Epochs(
            model,
            loss_fn,
            self.batches,
            self.optimizer,
            schedule=None if solver is None else solver.schedule,
            objective=self.objective,
            share=self._share,
            before_batch=self._before_batch,
        )
        self._measured = Objective(model, loss_fn, self.batches, process_group=False)  # beside the training
        self.history = History()
        self.best = Best(settings.monitor, modules_of(model, loss_fn), keeps_weights=settings.restore_best)
        self.resumed_at = 0
        self._seconds_before = 0.0
        self._counted = self._counts()  # what is in the history
        self._interrupts = Interrupts()
        self._display = Display(rules, None)
        self._file = (
            None if settings.checkpoint is None else CheckpointFile(settings.checkpoint, self._identity(solver))
        )

    def run(self, display: Display) -> Stop:
        """Train until a rule stops it."""
        self._display = display
        settings = self.settings
        held = nullcontext() if self._file is None else self._file.held()
        threads = limited_threads(settings.threads, self.model, self.batches)
        stop = Stop(Status.INTERRUPTED, "an error")
        with own_randomness(self.model, settings.seed), self._interrupts, threads, held:
            self._resume()
            history_file = None if settings.history_file is None else HistoryFile(settings.history_file, self.history)
            if not self.model.training:  # else layers that were frozen in eval mode stay so
                self.model.train()
            self.clock = TrainingClock(self._seconds_before, kind=settings.clock)
            try:
                stop = self._loop(history_file)
            except KeyboardInterrupt:  # the second Ctrl-C
                stop = Stop(Status.INTERRUPTED, "interrupted by Ctrl-C")
                raise
            finally:
                self.clock.stop()
                self._display.close(stop.reason)
                for callback in settings.callbacks:
                    getattr(callback, "close", lambda: None)()
        trouble = [one.trouble for one in (self._file, history_file) if one is not None and one.trouble]
        self.best.restore()
        return Stop(stop.status, "; ".join((stop.reason, *trouble)))

    def _loop(self, history_file: HistoryFile | None) -> Stop:
        stop = self._stop_at_boundary()
        if stop is not None and self.resumed_at:
            stop = Stop(stop.status, f"nothing left to train: {stop.reason}")
        if stop is None:
            with self.clock.paused():  # the kernel is built once per machine
                self._choose_engine()
        while stop is None:
            try:
                figures = self._epochs.run(is_last=len(self.history) + 1 == self.settings.rules.max_epochs)
            except StopTraining as broken_off:
                stop = broken_off.stop
                break
            with self.clock.paused():
                stop = self._conclude_epoch(figures, history_file)
        return self._judge_the_rest(stop)

    def _conclude_epoch(self, figures: EpochFigures, history_file: HistoryFile | None) -> Stop | None:
        """Measure, record, call the callbacks, save; all off the training clock."""
        record = self._record(figures)
        self.history.append(record)
        self.best.see(record)
        if history_file is not None:
            history_file.append(record)
        self._display.epoch_done(record)
        asked = [callback.on_epoch_end(record) for callback in self.settings.callbacks]
        stop = Stop(Status.CALLBACK, "a callback asked for it") if any(asked) else self._stop_at_boundary()
        if self._file is not None and all(bool(torch.isfinite(p).all()) for p in self.model.parameters()):
            self._file.keep(self._state_dict())
        return stop

    def _record(self, figures: EpochFigures) -> EpochRecord:
        before, self._counted = self._counted, self._counts()
        validation_loss: float | None = None
        metrics: dict[str, float] = {}
        if self.validation is not None:
            validation_loss, metrics = validate(self.model, self.loss_fn, self.validation, dict(self.settings.metrics))
        return EpochRecord(
            epoch=len(self.history),
            seconds=self.clock.seconds(),
            evaluations=self._counted[0] - before[0],
            evaluated_rows=self._counted[1] - before[1],
            train_loss=self._true_train_loss() if self.settings.measure_train_loss else None,
            validation_loss=validation_loss,
            metrics=metrics,
            **dataclasses.asdict(figures),
        )

    def _true_train_loss(self) -> float:
        """With the same random numbers each time, so that it is a function of the weights, dropout included."""
        with random_state_kept(self.model):
            seed_everything(self.settings.seed)
            return self._measured()

    def _stop_at_boundary(self) -> Stop | None:
        """The rules on the epoch that is done, then those on the one that would come; also right after resuming."""
        rules, done = self.settings.rules, len(self.history)
        stop = rules.after_epoch(self.history[-1], self.best.epochs_since(done - 1)) if done else None
        if stop is None and getattr(self.optimizer, "has_converged", False):
            stop = Stop(Status.CONVERGED, "converged: the learning rate is below rounding")
        return stop or rules.before_epoch(done, self.clock.seconds()) or self._interrupts.stop()

    def _judge_the_rest(self, stop: Stop) -> Stop:
        """Steps that are not judged yet are judged before the model is handed back; a checkpoint has them unjudged."""
        optimizer: Any = self.optimizer
        if not hasattr(optimizer, "judge"):
            return stop
        before, report = optimizer.report, optimizer.judge()
        if report is None or report is before or report.outcome.keeps:
            return stop
        return Stop(stop.status, f"{stop.reason}; the last {report.steps} steps ended too high and were undone")

    def _before_batch(self, number: int) -> None:
        self._batch, self._steps_since = number, 0
        stop = self.settings.rules.out_of_time(self.clock.seconds()) or self._interrupts.stop()
        if stop is not None:
            raise StopTraining(stop)
        self._display.position(len(self.history) + number / (self._batches_per_epoch or 1 << 30), self.clock.seconds())

    def _share(self, batches: float) -> float:
        """The share of the run that is done after `batches` batches of the running epoch."""
        part = batches / self._batches_per_epoch if self._batches_per_epoch else 0.0
        return self.settings.rules.share_done(len(self.history) + part, self.clock.seconds())

    def _budget(self) -> dict[str, Any]:
        """How an optimizer with a schedule of its own is told how long the run is."""
        rules = self.settings.rules
        if rules.time_limit is None and rules.max_epochs is not None and self._batches_per_epoch is not None:
            return {"total_steps": max(1, rules.max_epochs * self._batches_per_epoch)}
        return {"progress": self._progress}

    def _progress(self) -> float:
        """The share in the middle of the next step; asked once per step, also ahead for the steps of a chunk."""
        self._steps_since += 1
        return self._share(self._batch + self._steps_since - 0.5)

    def _counts(self) -> tuple[int, int]:
        """Evaluations and rows so far; a ready optimizer may have a plain callable as its objective."""
        return getattr(self.objective, "evaluations", 0), getattr(self.objective, "evaluated_rows", 0)

    @property
    def evaluations(self) -> int:
        """Full evaluations of the run, those before a checkpoint included."""
        return sum(record.evaluations for record in self.history) + self._counts()[0] - self._counted[0]

    @property
    def engine(self) -> str:
        """The engine that ran the last epoch."""
        return "eager" if self._epochs.program is None else "compiled"

    @property
    def engine_reason(self) -> str:
        """Why the epochs are not compiled."""
        return "asked for" if self.settings.engine == "eager" else self._epochs.reason

    def _choose_engine(self) -> None:
        if self.settings.engine == "eager":
            return
        self._epochs.compile()
        if self.settings.engine == "compiled" and self._epochs.reason:
            self._display.note(f"not compiled: {self._epochs.reason}")

    def _identity(self, solver: Any) -> dict[str, str]:
        settings = self.settings
        parts = {
            "schedule": getattr(solver, "schedule", None) and solver.schedule.keywords,
            "solver": getattr(solver, "name", "given"),
            "seed": settings.seed,
            "metrics": list(settings.metrics),
            "measure_train_loss": settings.measure_train_loss,
            "restore_best": settings.restore_best,
            "monitor": settings.monitor,
        }
        return identity_of(self.model, self.loss_fn, self.optimizer, self.batches, self.validation, parts)

    def _state_dict(self) -> dict[str, Any]:
        """The state between two epochs."""
        return {
            "modules": pack_modules(modules_of(self.model, self.loss_fn)),
            "optimizer": self.optimizer.state_dict(),
            "history": self.history.to_rows(),
            "best": self.best.state_dict(),
            "random": get_random_state(devices_of(self.model)),
            "batches_epoch": getattr(self.batches, "epoch", 0),
            "seconds": self.clock.seconds(),
        }

    def _resume(self) -> None:
        if self._file is None:
            return
        state = self._state_dict()
        self._file.require_readable(
            {"extra state of the model": state["modules"]["modules"], "optimizer": state["optimizer"]}
        )
        if self._file.load(self._load_state_dict):
            self.resumed_at = len(self.history)
            self._display.note(f"resumed from {self.settings.checkpoint} at epoch {self.resumed_at}")

    def _load_state_dict(self, state: dict[str, Any]) -> None:
        """All of it, or nothing."""
        modules = modules_of(self.model, self.loss_fn)
        before = pack_modules(modules), self.optimizer.state_dict(), get_random_state(devices_of(self.model))
        try:
            history = History(EpochRecord(**row) for row in state["history"])
            seconds = float(state["seconds"])
            unpack_modules(modules, state["modules"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.best.load_state_dict(state["best"])
            set_random_state(state["random"])
        except Exception:
            unpack_modules(modules, before[0])
            self.optimizer.load_state_dict(before[1])
            set_random_state(before[2])
            raise
        self.history = history
        if isinstance(self.batches, TensorBatches):
            self.batches.set_epoch(int(state["batches_epoch"]))
        self._seconds_before = seconds


def require_parameters_of(model: nn.Module, optimizer: Optimizer) -> None:
    """Refuse an optimizer that would train something else."""
    own = {id(p) for p in model.parameters()}
    if not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
        raise ValueError("The optimizer holds no parameter of the model: make it from model.parameters()")


def refuse_ranks(model: nn.Module) -> None:
    """Refuse a model that several processes train: fit's clock, files and data are those of one."""
    if is_distributed(model) and not ranks_of(model).alone:
        raise ValueError(
            "fit trains in one process, but the model is wrapped in DDP or sharded over several: write the loop of "
            "docs/guides/distributed.md, or pass the plain model"
        )
