"""`train(run) -> result`: the same start, batches, clock and measurements for every solver of a problem."""

from __future__ import annotations

import inspect
import math
import time
import traceback
import warnings
from collections import Counter
from contextlib import redirect_stdout, suppress
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from cmalight.bench.code import imported, is_user_code
from cmalight.bench.models import Machine, Points, Result, Run
from cmalight.bench.problems import Arrays, Problem, problem_of
from cmalight.compiled import CannotCompile, Evaluator
from cmalight.errors import DataError
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.objective import Objective
from cmalight.rules.outcome import Outcome
from cmalight.training import FitResult, Position, accuracy, fit, make_solver, measure

# A forward pass over the data, in training passes (forward and backward); see `Points`.
_FORWARD_FRACTION = 1 / 3
_SAMPLES_AT_ONCE, _NUMBERS_AT_ONCE = 1000, 400_000  # that are measured: activations of more images leave the cache
_WARM_UP_BATCHES = 2
_DECISIONS = set(Outcome.__members__) - {"UNCONTROLLED", "NO_STEP"}
_ABSURD = 1e6  # times the loss at the start, or times 1 if that is smaller


def train(run: Run, *, warm_up: bool = True) -> Result:
    """Train one solver on one problem.

    Args:
        run: What to do.
        warm_up: Take a few steps on a copy that is thrown away before the clock starts, so that what torch and the
            solver do once in a process is not timed.

    Returns:
        The result. Whatever goes wrong is in it, with its traceback; nothing but KeyboardInterrupt is raised.
    """
    about: dict[str, Any] = {"run": run, "machine": Machine.here(), "started": time.time()}
    problem: Problem | None = None
    recorder: Recorder | None = None
    try:
        if not is_user_code(run.solver):
            make_solver(run.solver, run.options)
        problem = problem_of(run)
        torch.set_num_threads(run.threads)
        if warm_up:
            _warm_up(run, problem)
        model = _fresh_model(run, problem)
        about |= _facts(run, problem, model)
        recorder = Recorder(run, problem, model)
        about |= _trained(run, problem, model, recorder)
    except (Exception, SystemExit) as error:
        if problem is None and isinstance(error, DataError | ImportError | OSError):
            about |= {"status": "unavailable", "error": str(error)}
        else:
            last = traceback.format_exception_only(error)[-1].strip()
            about |= {"status": "failed", "error": last, "traceback": "".join(traceback.format_exception(error))}
    return Result(finished=time.time(), **about, **(recorder.facts() if recorder else {}))


def _facts(run: Run, problem: Problem, model: nn.Module) -> dict[str, Any]:
    return {
        "task": problem.task,
        "n_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "n_samples": len(problem.train[0]),
        "n_validation": 0 if problem.validation is None else len(problem.validation[0]),
        "batches_per_epoch": _batches_per_epoch(run, problem),
        "data_sha256": problem.data_sha256(),
    }


def _trained(run: Run, problem: Problem, model: nn.Module, recorder: Recorder) -> dict[str, Any]:
    result = _fit(run, problem, model, problem.train, callbacks=(recorder,), max_epochs=_max_epochs(run, problem))
    if result.status.value == "interrupted":
        raise KeyboardInterrupt
    recorder.end(result)
    first, last = recorder.losses
    diverged = result.status.value == "diverged" or not (last <= _ABSURD * max(1.0, first))
    return {
        "status": "diverged" if diverged else "done",
        "ended_by": "target_loss" if recorder.reached_target else result.status.value,
        "engine_used": result.engine,
        "error": f"diverged: {result.reason}, training loss {last}" if diverged else None,
    }


def _batches_per_epoch(run: Run, problem: Problem) -> int:
    return -(-len(problem.train[0]) // run.batch_size)


def _max_epochs(run: Run, problem: Problem) -> int | None:
    if run.batches is None:
        return run.epochs
    return max(1, round(run.batches / _batches_per_epoch(run, problem)))


def _fit(run: Run, problem: Problem, model: nn.Module, data: Arrays, **limits: Any) -> FitResult:
    by_user = is_user_code(run.solver)
    return fit(
        model,
        problem.loss_fn,
        data,
        optimizer=_user_optimizer(run, problem, model, data) if by_user else run.solver,
        optimizer_options=None if by_user else run.options,
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


def _user_optimizer(run: Run, problem: Problem, model: nn.Module, data: Arrays) -> Optimizer:
    """The user's solver; one with an argument `objective` or `total_steps` gets it."""
    make = imported(run.solver)
    wanted = inspect.signature(make).parameters
    more: dict[str, Any] = {}
    if "objective" in wanted:
        batches = TensorBatches(*data, batch_size=run.batch_size, order="fixed")
        more["objective"] = Objective(model, problem.loss_fn, batches)
    if "total_steps" in wanted and "total_steps" not in run.options:
        epochs = _max_epochs(run, problem)
        more["total_steps"] = None if epochs is None else epochs * _batches_per_epoch(run, problem)
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


class Recorder:
    """A callback of `fit` that measures off the training clock, in evaluation mode, on a geometric grid of steps.

    Args:
        run: Whose points it records.
        problem: What is measured.
        model: The model, before the first step.

    Attributes:
        reached_target: Whether a measured training loss was as low as the run's target.
    """

    def __init__(self, run: Run, problem: Problem, model: nn.Module) -> None:
        self.reached_target = False
        self._run, self._problem, self._model = run, problem, model
        self._rows: list[dict[str, Any]] = []
        self._outcomes = Counter[str]()
        self._train = self._evaluation(problem.train)
        self._validation = None if problem.validation is None else self._evaluation(problem.validation)
        self.on_step(Position(0, 0.0, 0.0, math.nan, math.nan, 0, 0))

    def next_step(self) -> int:
        """The step after which to measure."""
        return self._next

    def on_step(self, position: Position) -> None:
        """Measure after a step."""
        self._next = max(position.steps + 1, math.ceil(self._run.spacing * position.steps), self._run.first_point)
        train_loss, _ = self._measured(*self._train)
        validation_loss, accuracy = (None, None) if self._validation is None else self._measured(*self._validation)
        row = {
            "step": position.steps,
            "epoch": position.epochs,
            "seconds": position.seconds,
            "work": position.epochs + _FORWARD_FRACTION * position.evaluated_rows / len(self._problem.train[0]),
            "train_loss": train_loss,
            "validation_loss": validation_loss,
            "accuracy": accuracy,
            "lr": position.lr,
            "evaluations": position.evaluations,
            "evaluated_rows": position.evaluated_rows,
        }
        self._rows.append(row)
        self.reached_target |= self._run.target_loss is not None and train_loss <= self._run.target_loss

    def on_epoch_end(self, record: Any) -> bool:
        """Count how the epoch ended; True stops the training at its target."""
        self._outcomes[record.outcome] += 1
        return self.reached_target

    def end(self, result: FitResult) -> None:
        """Measure at the end; a last decision of the control may have changed the weights after the last step."""
        if self._rows[-1]["step"] == result.position.steps:
            self._rows.pop()
        self.on_step(result.position)

    def facts(self) -> dict[str, Any]:
        """What a result says of the points and the epochs."""
        decided = {name: number for name, number in self._outcomes.items() if name.upper() in _DECISIONS}
        accepted = sum(number for name, number in decided.items() if Outcome[name.upper()].accepts)
        return {
            "points": Points(**{name: [row[name] for row in self._rows] for name in Points.model_fields}),
            "epochs": self._outcomes.total(),
            "outcomes": dict(self._outcomes),
            "accepted": accepted / sum(decided.values()) if decided else None,
        }

    @property
    def losses(self) -> tuple[float, float]:
        """The training loss at the start and at the end."""
        return self._rows[0]["train_loss"], self._rows[-1]["train_loss"]

    def _measured(self, batches: TensorBatches, evaluator: Evaluator | None) -> tuple[float, float | None]:
        """Mean loss and, for classes, accuracy over all samples."""
        metrics = {"accuracy": accuracy} if self._problem.task == "classification" else {}
        found = measure(self._model, self._problem.loss_fn, batches, metrics, evaluator=evaluator)
        return found.loss, found.metrics.get("accuracy")

    def _evaluation(self, data: Arrays) -> tuple[TensorBatches, Evaluator | None]:
        """The data in large batches, and the kernel's evaluation of them if it knows the model and the loss."""
        numbers = max(1, data[0].shape[1:].numel())
        batch_size = max(1, min(_SAMPLES_AT_ONCE, _NUMBERS_AT_ONCE // numbers))
        batches = TensorBatches(*data, batch_size=batch_size, order="fixed")
        with suppress(CannotCompile):
            if self._run.engine != "eager":
                return batches, Evaluator(self._model, self._problem.loss_fn, batches, mode="eval")
        return batches, None
