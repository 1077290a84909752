"""fit(): a whole training in one call, with stop rules, a history and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.errors import check_choice, check_whole, invalid
from cmalight.evaluation.batches import Order
from cmalight.training.epochs.engine import EngineName
from cmalight.training.multistart import ManyStarts, Start
from cmalight.training.records.clock import ClockName
from cmalight.training.records.history import History
from cmalight.training.records.metrics import MetricChoice
from cmalight.training.records.stopping import Status, StopRules
from cmalight.training.run import Run
from cmalight.training.settings import FitSettings


@dataclass(frozen=True)
class FitResult:
    """How a training ended; the model itself was trained in place.

    Attributes:
        status: the rule that ended it.
        reason: the same in words, with what could not be written, if anything.
        history: one record per epoch.
        evaluations: of the full objective, in all.
        epochs: that were done, those before a resumed run included.
        seconds: of training, measuring left out.
        best_epoch: of the lowest validation loss, or what `monitor` names; None where nothing was watched.
        optimizer: that was used, with its state.
        engine: that ran the last epoch, "eager" or "compiled".
        engine_reason: why, where it was a choice.
        compile_seconds: part of `seconds`.
        starts: all, where there were several; the figures above are then those of the best.
        best_start: its number.
        resumed_at: the epochs that a checkpoint had behind it; 0 for a run that began anew.
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
    compile_seconds: float = 0.0
    starts: tuple[Start, ...] = ()
    best_start: int = 0
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
    min_lr: float | None = None,
    patience: int | None = None,
    tolerance: float | None = None,
    validation: Any = None,
    metrics: Sequence[MetricChoice] = (),
    monitor: str = "loss",
    measure_train_loss: bool = False,
    restore_best: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 5.0,
    history_file: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Any] = (),
    progress: bool = True,
    engine: EngineName = "auto",
    starts: int = 1,
    threads: int | None = None,
    clock: ClockName = "wall",
) -> FitResult:
    """Train `model` in place until a stop rule applies.

    Args:
        model: any `torch.nn.Module`; put into training mode, unless it is in that already: then layers that were
            frozen in eval mode stay so.
        loss_fn: `loss_fn(model(inputs), targets)` gives the mean loss of a batch.
        data: a pair (inputs, targets) of tensors or arrays, `TensorBatches`, or a DataLoader of such pairs.
        optimizer: a name ("auto", which finds its step size, "cmalight", "cma", "ig", "adam", ...;
            docs/start/choosing.md) or a ready optimizer over the model's parameters.
        optimizer_options: arguments of the optimizer of that name, such as {"lr": 0.1, "weight_decay": 1e-4}.
        batch_size: of the batches made from a pair; the last one may be smaller.
        order: of the samples of a pair: "reshuffle" in every epoch, or "fixed".
        seed: of the order, and of all random numbers drawn in the run; the caller's random state is left alone.
        max_epochs: the end of the run; None for none, with a time limit.
        time_limit: the end of the run in seconds of training; measuring does not count.
        target_loss: stop once the training loss is this low.
        min_lr: stop once the step size is this small.
        patience: stop after so many epochs without a better validation.
        tolerance: stop once ‖d‖ of an epoch is this small (our optimizers only).
        validation: data to measure on after each epoch, in eval mode.
        metrics: measured on the validation data: "mse", "rmse", "mae", "r2", "accuracy", with scikit-learn "f1" (the
            mean over classes), "auc", "log_loss"; or a function of all outputs and all targets.
        monitor: what patience and restore_best look at: "loss", or the name of a metric; a function's is its own, and
            best when large.
        measure_train_loss: measure the true training loss after each epoch, too.
        restore_best: end on the weights with the best validation (or, without validation data, true training) loss.
        checkpoint: a file to save to; a run that finds its file goes on from there.
        checkpoint_seconds: how often it is saved at most.
        history_file: a file of JSON lines that grows with the history.
        callbacks: objects with `on_epoch_end(record)`, which returns True to stop.
        progress: show a bar on a terminal, one line per epoch in CI logs.
        engine: "compiled" runs epochs as native loops, "eager" step by step in Python, with the same results;
            "auto" compiles where that is predicted to pay (docs/guides/engines.md).
        starts: train so many at once, compiled: the first has the model's weights, the others draw theirs anew;
            the model ends with those of the best.
        threads: of torch, while it trains; None takes one for small steps over a table, else as many as torch has.
        clock: of time_limit and of the history's seconds: the "wall"'s, or the "processor"'s time, which does not run
            while others have the processor, and runs as many times as fast as threads are at work.

    Returns:
        How the training ended, and its history.

    Raises:
        ValueError: an argument, or the data, cannot be used; the message says what to do.
        CheckpointError: the checkpoint is damaged, in use, or that of another run.

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
    check_choice("engine", engine, get_args(EngineName))
    check_whole("starts", starts, least=1)
    if threads is not None:
        check_whole("threads", threads, least=1)
    check_choice("clock", clock, get_args(ClockName))
    if isinstance(metrics, str):
        raise invalid("metrics", metrics, f"a list of names, for example ({metrics!r},)")
    rules = StopRules(max_epochs, time_limit, target_loss, min_lr, patience, tolerance)
    settings = FitSettings(
        rules=rules,
        metrics=tuple(metrics),
        monitor=monitor,
        measure_train_loss=measure_train_loss,
        restore_best=restore_best,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        history_file=history_file,
        callbacks=tuple(callbacks),
        progress=progress,
        batch_size=batch_size,
        order=order,
        seed=seed,
        engine=engine,
        threads=threads,
        clock=clock,
    )
    run = Run(model, loss_fn, data, validation, optimizer, optimizer_options, settings)
    many = ManyStarts(run, starts) if starts > 1 else None
    stop = run.train(None if many is None else many.epochs)
    compiled = run.engine.compiled is not None if many is None else many.is_compiled
    return FitResult(
        status=stop.status,
        reason=stop.reason,
        history=run.history,
        evaluations=run.evaluations if many is None else sum(start.evaluations for start in many.starts),
        epochs=len(run.history),
        seconds=run.seconds,
        best_epoch=run.best.epoch,
        optimizer=run.optimizer,
        engine="compiled" if compiled else "eager",
        engine_reason=run.engine.reason,
        compile_seconds=run.engine.compile_seconds,
        starts=() if many is None else tuple(many.starts),
        best_start=0 if many is None else many.best,
        resumed_at=run.resumed_at,
    )
