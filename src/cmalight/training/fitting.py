"""fit(): a whole training in one call, with stop rules, a history and checkpoints."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.errors import check_choice, check_flag, check_whole, invalid
from cmalight.evaluation.batches import Order
from cmalight.evaluation.objective import Objective
from cmalight.evaluation.randomness import random_state_kept, seed_everything
from cmalight.evaluation.ranks import is_distributed, ranks_of
from cmalight.training.checkpoint import CheckpointFile, identity_of
from cmalight.training.data import batches_of, length_of
from cmalight.training.engine import Engine, EngineName, limited_threads
from cmalight.training.history import Display, History
from cmalight.training.loop import Training
from cmalight.training.measuring import Measuring, Metric, named_metrics
from cmalight.training.solvers import make_solver
from cmalight.training.steps import PlainSteps, steps_of
from cmalight.training.stopping import ClockName, Status, StopRules
from cmalight.training.tracking import Callback, Position, Tracker, closing

_ONE_AT_A_TIME = threading.RLock()  # generators are process-wide, so a second fit() in another thread waits


@dataclass(frozen=True)
class FitResult:
    """How a training ended; the model itself was trained in place.

    Attributes:
        status: The rule that ended it.
        reason: The same in words, and any file that could not be written.
        history: One record per epoch.
        evaluations: Full passes over the training data that the optimizer made.
        epochs: Epochs done, including those before a resume.
        seconds: Training time, without measuring.
        best_epoch: Epoch of the lowest validation loss, or of the best `monitor`; None if neither was measured.
        optimizer: The optimizer with its state.
        engine: The engine that ran the last epoch, "eager" or "compiled".
        engine_reason: Why it was not compiled, if it was not.
        resumed_at: Number of epochs in the checkpoint; 0 for a new run.
        position: Where it ended.
    """

    status: Status
    reason: str
    history: History
    evaluations: int
    epochs: int
    seconds: float
    best_epoch: int | None
    optimizer: Optimizer
    engine: str
    engine_reason: str
    resumed_at: int
    position: Position

    def __str__(self) -> str:
        return f"{self.status.value} after {self.epochs} epochs and {self.seconds:.1f} s: {self.reason}"


def fit(
    model: nn.Module,
    loss_fn: Callable[[Any, Any], Tensor],
    data: Any,
    *,
    optimizer: str | Optimizer = "auto",
    optimizer_options: Mapping[str, Any] | None = None,
    batch_size: int = 128,
    order: Order = "reshuffle",
    seed: int = 0,
    max_epochs: int | None = 100,
    time_limit: float | None = None,
    target_loss: float | None = None,
    patience: int | None = None,
    validation: Any = None,
    metrics: Sequence[Metric] = (),
    monitor: str = "loss",
    measure_train_loss: bool = False,
    restore_best: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    history_file: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Any] = (),
    progress: bool = True,
    engine: EngineName = "auto",
    threads: int | None = None,
    clock: ClockName = "wall",
) -> FitResult:
    """Train `model` in place until a stop rule applies.

    Args:
        model: Any `torch.nn.Module`. `fit` puts it into training mode; if it is in training mode already, layers
            that you froze in eval mode stay frozen.
        loss_fn: `loss_fn(model(inputs), targets)` gives the mean loss of a batch.
        data: A pair (inputs, targets) of tensors or arrays, `TensorBatches`, or a DataLoader of such pairs.
        optimizer: A name ("auto", "cmalight", "adamw-cosine", ...; docs/guides/fit.md) or an optimizer over the
            model's parameters.
        optimizer_options: Options of the optimizer of that name, such as {"lr": 0.1, "weight_decay": 1e-4}.
        batch_size: Batch size for a pair; the last batch may be smaller.
        order: Order of the samples of a pair: "reshuffle" in every epoch, or "fixed".
        seed: Seed of the order and of all random numbers drawn in the run; the caller's random state is left alone.
        max_epochs: Maximum number of epochs; None for no limit, with a time limit.
        time_limit: Maximum training time in seconds; measuring does not count.
        target_loss: Stop once the training loss is this low.
        patience: Stop after this many epochs without a better validation loss or `monitor`.
        validation: Data to measure on after each epoch, in eval mode.
        metrics: Functions of all outputs and all targets, such as `cmalight.training.accuracy`, to measure on the
            validation data.
        monitor: The number for `patience` and `restore_best`: "loss", or the name of a metric, of which larger values
            are better.
        measure_train_loss: Whether to measure the training loss over all data after each epoch, in eval mode.
        restore_best: Whether to end on the weights of the best epoch. None: yes if there is validation data.
            Without validation data the training loss over all data decides.
        checkpoint: File to save to; a run that finds its file resumes from it.
        history_file: File that gets one JSON line per epoch.
        callbacks: Objects with `on_epoch_end(record)`, which returns True to stop, and optionally `close()`; also
            called inside epochs if they are `cmalight.training.StepCallback`.
        progress: Whether to show a bar on a terminal, or one line per epoch elsewhere.
        engine: "compiled" runs the steps natively, "eager" in Python, with results that are equal up to rounding;
            "auto" compiles if it can (docs/guides/engines.md).
        threads: Number of torch's threads while training; None takes one for small steps over a table, else leaves
            torch's number.
        clock: Clock of `time_limit` and of the history's seconds: "wall", or "processor" for the time that this
            process, all threads together, has the processor.

    Returns:
        How the training ended, and its history.

    Raises:
        ValueError: An argument or the data cannot be used; the message says what to do.
        CheckpointError: The checkpoint is damaged, in use, or of another run.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from cmalight import fit
        >>> _ = torch.manual_seed(0)
        >>> x = torch.rand(1000, 8)
        >>> y = x.sum(1, keepdim=True).sin()
        >>> model = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1))
        >>> result = fit(model, nn.MSELoss(), (x[200:], y[200:]), validation=(x[:200], y[:200]), max_epochs=5)
        >>> print(result.status.value, result.epochs)
        max_epochs 5
        >>> result.history[-1].validation_loss < result.history[0].validation_loss
        True
    """
    _check_model(model, loss_fn)
    rules = StopRules(max_epochs, time_limit, target_loss, patience)
    has_validation = validation is not None
    named = named_metrics(metrics, monitor, patience, has_validation=has_validation)
    restores = has_validation if restore_best is None else restore_best
    for name, flag in (("measure_train_loss", measure_train_loss), ("restore_best", restores), ("progress", progress)):
        check_flag(name, flag)
    check_choice("engine", engine, get_args(EngineName))
    check_choice("clock", clock, get_args(ClockName))
    check_whole("seed", seed)
    if threads is not None:
        check_whole("threads", threads, least=1)
    checkpoint_path, history_path = _path("checkpoint", checkpoint), _path("history_file", history_file)
    if checkpoint_path is not None and checkpoint_path == history_path:
        raise ValueError(f"checkpoint and history_file are both {checkpoint_path}; give two paths")
    _check_callbacks(callbacks)
    with _ONE_AT_A_TIME, closing(callbacks), torch.inference_mode(False), torch.enable_grad():
        batches = batches_of(data, "data", model, loss_fn, batch_size=batch_size, order=order, seed=seed)
        held_out = batches_of(validation, "validation", model, loss_fn, order="fixed") if has_validation else None
        if length_of(batches) is None and time_limit is None:
            raise ValueError("A loader without a length may never end: set a time_limit")
        display = Display(rules, sys.stderr if progress else None)
        tracker = Tracker(rules, clock, length_of(batches), callbacks, display)
        objective = Objective(model, loss_fn, batches, process_group=False)
        steps, about = _steps(optimizer, optimizer_options, model, objective, tracker)
        measures_training = measure_train_loss or (restores and not has_validation)
        about |= {
            "seed": seed,
            "metrics": list(named),
            "measure_train_loss": measures_training,
            "restore_best": restores,
            "monitor": monitor,
        }
        saved = None
        if checkpoint_path is not None:
            optimizers = (steps.optimizer, steps.base)
            identity = identity_of(model, loss_fn, optimizers, batches, held_out, about)
            saved = CheckpointFile(checkpoint_path, identity)
        measuring = Measuring(
            objective,
            held_out,
            named,
            monitor,
            measures_training=measures_training,
            keeps_weights=restores,
            compiles=engine != "eager",
        )
        training = Training(
            objective, batches, steps, tracker, Engine(engine, objective), measuring, callbacks, saved, history_path
        )
        with random_state_kept(model), tracker.interrupts, limited_threads(threads, model, batches):
            seed_everything(seed)
            with saved or nullcontext():
                stop = training.run()
        measuring.restore_best()
    return FitResult(
        status=stop.status,
        reason="; ".join((stop.reason, *training.problems())),
        history=training.history,
        evaluations=tracker.work()[0],
        epochs=len(training.history),
        seconds=tracker.clock.seconds(),
        best_epoch=measuring.best,
        optimizer=steps.optimizer,
        engine=training.engine.name,
        engine_reason=training.engine.reason,
        resumed_at=training.resumed_at,
        position=tracker.position(),
    )


def _steps(
    optimizer: str | Optimizer,
    options: Mapping[str, Any] | None,
    model: nn.Module,
    objective: Objective,
    tracker: Tracker,
) -> tuple[PlainSteps, dict[str, Any]]:
    """The steps of the optimizer, which is made here if it is named; and what a checkpoint says of its name."""
    if not isinstance(options, Mapping | None):
        raise invalid("optimizer_options", options, "a dict such as {'lr': 0.1}")
    if isinstance(optimizer, str):
        solver = make_solver(optimizer, options)
        about = {"solver": solver.name, "schedule": solver.schedule and solver.schedule.keywords}
        more = {"objective": objective, **tracker.budget()} if solver.watches else {}
        made = solver.make(model if solver.takes_model else model.parameters(), **more)
        return steps_of(made, tracker, objective, solver.schedule), about
    if options:
        raise ValueError("optimizer_options go with an optimizer's name; a ready optimizer has its options already")
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"Invalid optimizer: expected a name or a torch optimizer, but got {optimizer!r}")
    known = {id(p) for p in model.parameters()}
    if not any(id(p) in known for group in optimizer.param_groups for p in group["params"]):
        raise ValueError("The optimizer holds no parameter of the model: make it from model.parameters()")
    return steps_of(optimizer, tracker, objective, None), {"solver": "given", "schedule": None}


def _path(name: str, given: str | os.PathLike[str] | None) -> Path | None:
    """Made absolute now: a callback may change the working directory."""
    if given is None:
        return None
    if not isinstance(given, str | os.PathLike):
        raise invalid(name, given, "a path")
    path = Path(given).resolve()
    if path.is_dir():
        raise IsADirectoryError(f"{name} {path} is a directory; name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{name} {path}: there is no directory {path.parent}; make it first")
    return path


def _check_callbacks(callbacks: Sequence[Any]) -> None:
    if not isinstance(callbacks, Sequence):
        raise invalid("callbacks", callbacks, "a list of callbacks")
    for callback in callbacks:
        if isinstance(callback, type) or not isinstance(callback, Callback):
            raise invalid("callback", callback, "an object with on_epoch_end(record)")


def _check_model(model: Any, loss_fn: Any) -> None:
    if not isinstance(model, nn.Module):
        raise invalid("model", model, "a torch.nn.Module; of a class pass an object")
    if isinstance(loss_fn, type) or not callable(loss_fn):
        raise invalid("loss_fn", loss_fn, "a function or an object such as nn.MSELoss()")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("Nothing to train: no parameter of the model requires a gradient; call requires_grad_(True)")
    if is_distributed(model) and not ranks_of(model).alone:  # the clock, files and data are those of one process
        raise ValueError(
            "fit trains in one process, but the model is wrapped in DDP or sharded over several: write the loop of "
            "docs/guides/distributed.md, or pass the plain model"
        )
