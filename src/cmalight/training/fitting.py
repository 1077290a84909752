"""fit(): a whole training in one call, with stop rules, a history and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.errors import check_choice, check_whole, invalid, unknown_name
from cmalight.evaluation.batches import Order
from cmalight.training.callbacks import Callback
from cmalight.training.clock import ClockName
from cmalight.training.history import History
from cmalight.training.loop import EngineName, Settings, Training
from cmalight.training.metrics import Metric, make_metrics
from cmalight.training.progress import make_display
from cmalight.training.stopping import Status, StopRules
from cmalight.training.surroundings import one_at_a_time


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
    """

    status: Status
    reason: str
    history: History
    evaluations: int
    epochs: int
    seconds: float
    best_epoch: int | None
    optimizer: Optimizer
    engine: str = "eager"
    engine_reason: str = ""
    resumed_at: int = 0

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
    metrics: Sequence[str | Metric] = (),
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
        metrics: Metrics on the validation data: "mse", "rmse", "mae", "r2", "accuracy", "f1" (the mean over
            classes), "auc", "log_loss", or functions of all outputs and all targets.
        monitor: The figure for `patience` and `restore_best`: "loss", or the name of a metric. For a function of
            yours larger values are better.
        measure_train_loss: Whether to measure the training loss over all data after each epoch.
        restore_best: Whether to end on the weights of the best epoch. None: yes if there is validation data.
            Without validation data the training loss over all data decides.
        checkpoint: File to save to; a run that finds its file resumes from it.
        history_file: File that gets one JSON line per epoch.
        callbacks: Objects with `on_epoch_end(record)`, which returns True to stop, and optionally `close()`.
        progress: Whether to show a bar on a terminal, or one line per epoch elsewhere.
        engine: "compiled" runs the steps natively, "eager" in Python, with results that are equal up to rounding;
            "auto" compiles where it can (docs/guides/engines.md).
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
    has_validation = validation is not None
    restores = has_validation if restore_best is None else restore_best
    settings = Settings(
        rules=StopRules(max_epochs, time_limit, target_loss, patience),
        batch_size=batch_size,
        order=order,
        seed=seed,
        metrics=_checked_metrics(metrics, monitor, patience, has_validation=has_validation),
        monitor=monitor,
        measure_train_loss=measure_train_loss or (restores and not has_validation),
        restore_best=restores,
        checkpoint=_absolute(checkpoint),
        history_file=_absolute(history_file),
        callbacks=tuple(callbacks),
        progress=progress,
        engine=engine,
        threads=threads,
        clock=clock,
    )
    _check(settings)
    with one_at_a_time():
        training = Training(model, loss_fn, data, validation, optimizer, optimizer_options, settings)
        stop = training.run(make_display(progress, settings.rules))
    return FitResult(
        status=stop.status,
        reason=stop.reason,
        history=training.history,
        evaluations=training.evaluations,
        epochs=len(training.history),
        seconds=training.clock.seconds(),
        best_epoch=training.best.epoch,
        optimizer=training.optimizer,
        engine=training.engine,
        engine_reason=training.engine_reason,
        resumed_at=training.resumed_at,
    )


def _absolute(path: str | os.PathLike[str] | None) -> Path | None:
    """Now: a callback may change the working directory."""
    return None if path is None else Path(path).resolve()


def _checked_metrics(
    metrics: Sequence[str | Metric], monitor: str, patience: int | None, *, has_validation: bool
) -> dict[str, Metric]:
    if isinstance(metrics, str):
        raise invalid("metrics", metrics, f"a list of names, for example ({metrics!r},)")
    made = make_metrics(metrics)
    if made and not has_validation:
        raise ValueError("metrics are measured on the validation data: pass validation=(inputs, targets)")
    if patience is not None and not has_validation:
        raise ValueError("patience waits for a better validation: pass validation=(inputs, targets)")
    if monitor not in ("loss", *made):
        raise ValueError(unknown_name("figure to monitor", monitor, ("loss", *made)))
    return made


def _check(settings: Settings) -> None:
    """What would fail later fails now."""
    check_choice("engine", settings.engine, get_args(EngineName))
    check_choice("clock", settings.clock, get_args(ClockName))
    check_whole("seed", settings.seed)
    if settings.threads is not None:
        check_whole("threads", settings.threads, least=1)
    for callback in settings.callbacks:
        if not isinstance(callback, Callback):
            raise ValueError(f"Invalid callback: {callback!r} has no on_epoch_end(record)")
    files = {"checkpoint": settings.checkpoint, "history_file": settings.history_file}
    for name, path in files.items():
        if path is not None and path.is_dir():
            raise IsADirectoryError(f"{name} {path} is a directory; name a file in it")
        if path is not None and not path.parent.is_dir():
            raise FileNotFoundError(f"{name} {path}: there is no directory {path.parent}; make it first")
    if settings.checkpoint is not None and settings.checkpoint == settings.history_file:
        raise ValueError(f"checkpoint and history_file are both {settings.checkpoint}; give two paths")
