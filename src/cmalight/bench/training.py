"""`train(run) -> result`: the same start, batches, clock and measurements for every solver of a problem."""

from __future__ import annotations

import time
import traceback
import warnings
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from cmalight.bench.code import arguments_of, imported, is_own
from cmalight.bench.models import Machine, Points, Result, Run, Status
from cmalight.bench.problems import Arrays, Problem, dataset_problem
from cmalight.bench.spec import file_digest
from cmalight.bench.workloads import WORKLOADS
from cmalight.errors import DataError
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.objective import Objective
from cmalight.rules.outcome import Outcome
from cmalight.training import FitResult, fit
from cmalight.training.solvers import make_solver

# A forward pass over the data, in training passes (forward and backward); see `Points`.
_FORWARD_SHARE = 1 / 3
_MEASURED_AT_ONCE = 1000
_WARM_UP_BATCHES = 2
_ABSURD = 1e6  # times the loss at the start, or times 1 where that is smaller


class UnavailableError(RuntimeError):
    """Data or code cannot be had on this machine; that says nothing about the run."""


def train(run: Run, *, warm_up: bool = True) -> Result:
    """Train one solver on one problem.

    Args:
        run: What to do.
        warm_up: Take a few steps on a copy that is thrown away before the clock starts, so that what torch and the
            solver do once in a process is not timed.

    Returns:
        The result. Whatever goes wrong is in it, with its traceback; nothing but KeyboardInterrupt is raised.
    """
    course = Course()
    about: dict[str, Any] = {"run": run, "machine": Machine.here(), "started": time.time()}
    try:
        problem = _available(run)
        about |= _facts(run, problem)
        torch.set_num_threads(run.threads)
        if warm_up:
            _warm_up(run, problem)
        about |= _trained(run, problem, course)
    except (Exception, SystemExit) as error:
        about |= failure(error)
    return Result(points=course.points(), finished=time.time(), **about)


def failure(error: BaseException) -> dict[str, Any]:
    """What a result says of an error.

    Args:
        error: That ended the run.

    Returns:
        Its status, the last line of the traceback, and all of it.
    """
    status: Status = "unavailable" if isinstance(error, UnavailableError) else "failed"
    last = traceback.format_exception_only(error)[-1].strip()
    return {"status": status, "error": last, "traceback": "".join(traceback.format_exception(error))}


def _available(run: Run) -> Problem:
    """The problem, if the data is here and is that which the run was planned with."""
    try:
        if run.data is not None and file_digest(run.dataset) != run.data:
            raise UnavailableError(f"{run.dataset} changed since the runs were planned; repeat the command")
        if not is_own(run.solver):
            make_solver(run.solver, run.options)
        if run.workload is None:
            return dataset_problem(run)
        return imported(run.workload)() if is_own(run.workload) else WORKLOADS[run.workload]()
    except (DataError, ImportError, OSError) as error:
        raise UnavailableError(str(error)) from error


def _facts(run: Run, problem: Problem) -> dict[str, Any]:
    samples = len(problem.train[0])
    with torch.random.fork_rng(devices=[]):
        parameters = sum(p.numel() for p in problem.make_model().parameters() if p.requires_grad)
    return {
        "task": problem.task,
        "n_parameters": parameters,
        "n_samples": samples,
        "n_validation": 0 if problem.validation is None else len(problem.validation[0]),
        "batches_per_epoch": -(-samples // run.batch_size),
        "data_sha256": problem.data_sha256(),
    }


def _trained(run: Run, problem: Problem, course: Course) -> dict[str, Any]:
    model = _fresh_model(run, problem)
    course.begin(model, problem, run.target_loss)
    result = _fit(run, problem, model, problem.train, callbacks=(course,), max_epochs=_max_epochs(run, problem))
    if result.status.value == "interrupted":
        raise KeyboardInterrupt
    course.end(result)
    diverged = result.status.value == "diverged" or not (course.last_loss <= _ABSURD * max(1.0, course.first_loss))
    ended_by = "target_loss" if course.reached_target else result.status.value
    about: dict[str, Any] = {
        "status": "diverged" if diverged else "done",
        "ended_by": ended_by,
        "engine_used": result.engine,
        "accepted": course.accepted(),
    }
    if diverged:
        about["error"] = f"diverged: {result.reason}, training loss {course.last_loss}"
    return about


def _max_epochs(run: Run, problem: Problem) -> int | None:
    if run.batches is None:
        return run.epochs
    return max(1, round(run.batches / -(-len(problem.train[0]) // run.batch_size)))


def _fit(run: Run, problem: Problem, model: nn.Module, data: Arrays, **limits: Any) -> FitResult:
    own = is_own(run.solver)
    return fit(
        model,
        problem.loss_fn,
        data,
        optimizer=_own_optimizer(run, problem, model, data) if own else run.solver,
        optimizer_options=None if own else run.options,
        batch_size=run.batch_size,
        order=run.order,
        seed=run.seed,
        time_limit=run.seconds,
        progress=False,
        engine=run.engine,
        threads=run.threads,
        clock=run.clock,
        **limits,
    )


def _own_optimizer(run: Run, problem: Problem, model: nn.Module, data: Arrays) -> Optimizer:
    """The user's solver; one with an argument `objective` or `total_steps` gets it."""
    make = imported(run.solver)
    wanted = arguments_of(make)
    more: dict[str, Any] = {}
    if "objective" in wanted:
        batches = TensorBatches(*data, batch_size=run.batch_size, order="fixed")
        more["objective"] = Objective(model, problem.loss_fn, batches)
    if "total_steps" in wanted and "total_steps" not in run.options:
        epochs = _max_epochs(run, problem)
        more["total_steps"] = None if epochs is None else epochs * -(-len(problem.train[0]) // run.batch_size)
    optimizer = make(model.parameters(), **more, **run.options)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{run.solver} returned a {type(optimizer).__name__}; expected a torch.optim.Optimizer")
    return optimizer


def _fresh_model(run: Run, problem: Problem) -> nn.Module:
    """The same weights for every solver: they depend on the seed alone."""
    torch.manual_seed(run.seed)
    return problem.make_model()


def _warm_up(run: Run, problem: Problem) -> None:
    """Train a model that is thrown away, in silence; what goes wrong here goes wrong again in the run itself."""
    rows = slice(_WARM_UP_BATCHES * run.batch_size)
    few = (problem.train[0][rows], problem.train[1][rows])
    with suppress(Exception, SystemExit), redirect_stdout(None), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _fit(run, problem, _fresh_model(run, problem), few, max_epochs=1)


@dataclass(frozen=True)
class Measured:
    """Losses and accuracy at some weights."""

    train_loss: float
    validation_loss: float | None
    accuracy: float | None


@dataclass
class Course:
    """A callback of `fit`: measures off the training clock, after every epoch and in evaluation mode."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    reached_target: bool = False

    def begin(self, model: nn.Module, problem: Problem, target_loss: float | None) -> None:
        """Measure before the first step."""
        self._model, self._problem, self._target = model, problem, target_loss
        self._append(0, 0.0, self.measure(), batch_loss=None, lr=None, outcome="start", evaluations=0, evaluated_rows=0)

    def on_epoch_end(self, record: Any) -> bool:
        """Measure after an epoch; True stops the training at its target."""
        measured, before = self.measure(), self.rows[-1]
        self._append(
            record.epoch + 1,
            record.seconds,
            measured,
            batch_loss=record.batch_loss,
            lr=record.lr,
            outcome=record.outcome,
            evaluations=before["evaluations"] + record.evaluations,
            evaluated_rows=before["evaluated_rows"] + record.evaluated_rows,
        )
        self.reached_target = self._target is not None and measured.train_loss <= self._target
        return self.reached_target

    def end(self, result: FitResult) -> None:
        """Measure where the training ended: after part of an epoch, or after a last decision of the control."""
        measured, last = self.measure(), self.rows[-1]
        was_cut = result.status.value == "time_limit" and result.seconds > last["seconds"]
        if was_cut:
            evaluations = result.evaluations
            rows = last["evaluated_rows"] + (evaluations - last["evaluations"]) * len(self._problem.train[0])
            self._append(
                last["epoch"] + 1,
                result.seconds,
                measured,
                batch_loss=None,
                lr=last["lr"],
                outcome="cut",
                evaluations=evaluations,
                evaluated_rows=rows,
            )
        else:
            last |= vars(measured)

    def measure(self) -> Measured:
        """At the current weights."""
        train_loss, _ = self._mean(self._problem.train)
        if self._problem.validation is None:
            return Measured(train_loss, None, None)
        return Measured(train_loss, *self._mean(self._problem.validation))

    def points(self) -> Points:
        """The course so far, by column."""
        return Points(**{name: [row[name] for row in self.rows] for name in Points.model_fields})

    def accepted(self) -> float | None:
        """The share of the control's decisions that accepted what the steps had done."""
        decisions = set(Outcome.__members__) - {"UNCONTROLLED", "NO_STEP"}
        names = [row["outcome"].upper() for row in self.rows]
        decided = [Outcome[name].accepts for name in names if name in decisions]
        return sum(decided) / len(decided) if decided else None

    @property
    def first_loss(self) -> float:
        """Before the first step."""
        return float(self.rows[0]["train_loss"])

    @property
    def last_loss(self) -> float:
        """At the end."""
        return float(self.rows[-1]["train_loss"])

    def _append(self, epoch: int, seconds: float, measured: Measured, **more: Any) -> None:
        work = epoch + _FORWARD_SHARE * more["evaluated_rows"] / len(self._problem.train[0])
        self.rows.append({"epoch": epoch, "seconds": seconds, "work": work, **vars(measured), **more})

    @torch.no_grad()
    def _mean(self, data: Arrays) -> tuple[float, float | None]:
        """Mean loss and, for classes, accuracy over all samples."""
        model, problem = self._model, self._problem
        was_training = [module.training for module in model.modules()]
        model.eval()
        loss, right = 0.0, 0.0
        for x, y in zip(*(torch.split(part, _MEASURED_AT_ONCE) for part in data), strict=True):
            output = model(x.clone())
            loss += float(problem.loss_fn(output, y)) * len(x)
            right += float((output.argmax(1) == y).sum()) if problem.task == "classification" else 0.0
        for module, mode in zip(model.modules(), was_training, strict=True):
            module.training = mode
        accuracy = right / len(data[0]) if problem.task == "classification" else None
        return loss / len(data[0]), accuracy
