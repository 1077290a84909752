"""One epoch, under our optimizers and under torch's: the same steps, the same sum of losses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled.layout import CannotCompile
from cmalight.evaluation.shapes import refuse_broadcast
from cmalight.optim.bracket.epoch import Epoch
from cmalight.optim.control.report import EpochReport
from cmalight.optim.host import EpochOptimizer
from cmalight.optim.inner.tally import LossSum
from cmalight.training.data.feed import to_device
from cmalight.training.records.stopping import StopTraining
from cmalight.training.solvers.schedules import Scheduled


@dataclass(frozen=True)
class EpochFigures:
    """What an epoch gave; `alpha` is None where there is no control."""

    f_tilde: float
    lr: float
    next_lr: float
    alpha: float | None
    outcome: str
    direction_norm: float | None
    evaluations: int
    phi: float | None = None

    def recorded(self) -> dict[str, Any]:
        """What a history has of it: all but `direction_norm`, which is for a stop rule."""
        return {name: value for name, value in vars(self).items() if name != "direction_norm"}


@dataclass(frozen=True)
class ModelAndData:
    """What is trained on what; `before_batch` may raise StopTraining."""

    model: nn.Module
    loss_fn: Callable[[Any, Any], Tensor]
    feed: Iterable[Any]
    device: torch.device
    count: Callable[[Any, Any], float]
    before_batch: Callable[[int], None]

    def loss(self, inputs: Any, target: Any) -> Tensor:
        output = self.model(inputs)
        refuse_broadcast(output, target, self.loss_fn)
        return self.loss_fn(output, target)

    def batches(self, source: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        for number, batch in enumerate(source):
            self.before_batch(number)
            if not (isinstance(batch, list | tuple) and len(batch) == 2):
                raise ValueError(
                    f"fit expects batches (input, target), but the loader gave a {type(batch).__name__}"
                    f"{f' of {len(batch)}' if isinstance(batch, list | tuple) else ''}; "
                    "for other batches write the loop of docs/guides/loop.md, with Objective(..., forward=...)"
                )
            inputs, target = batch
            yield to_device(inputs, self.device), to_device(target, self.device)


def watched_epoch(
    trained: ModelAndData,
    optimizer: EpochOptimizer,
    objective: Any,
    inner_cycle: Callable[[Epoch], None] | None = None,
) -> EpochFigures:
    """An epoch under a control; one that is broken off is judged, or goes back to where the run was last judged.

    inner_cycle: runs the steps in place of the eager loop
    """
    stopped: StopTraining | CannotCompile | None = None
    with optimizer.epoch(objective, model=trained.model, process_group=False) as epoch:
        try:
            if inner_cycle is None:
                eager_cycle(trained, optimizer, epoch)
            else:
                inner_cycle(epoch)
        except StopTraining as stop:
            stopped = stop
            epoch.cut_short()
        except CannotCompile as reason:
            stopped = reason
            epoch.abandon()
    if stopped is not None or epoch.report is None:
        raise stopped or RuntimeError("the epoch ended without a report")
    return watched_figures(epoch.report)


def eager_cycle(trained: ModelAndData, optimizer: EpochOptimizer, epoch: Epoch) -> None:
    """The steps of an epoch, one by one."""
    for inputs, target in trained.batches(epoch.batches(trained.feed)):
        optimizer.zero_grad()
        loss = trained.loss(inputs, target)
        loss.backward()  # type: ignore[no-untyped-call]
        epoch.observe(loss, trained.count(target, inputs))
        optimizer.step()


def watched_figures(report: EpochReport) -> EpochFigures:
    phi = None if math.isnan(report.phi) else report.phi
    return EpochFigures(**{**vars(report), "outcome": report.outcome.name.lower(), "phi": phi})


def plain_epoch(trained: ModelAndData, optimizer: Optimizer) -> EpochFigures:
    """An epoch under one of torch's optimizers; one that is broken off keeps its weights."""
    lr, losses, samples = lr_of_epoch(optimizer), LossSum(), 0.0
    with _in_training_mode(optimizer):
        for number, (inputs, target) in enumerate(trained.batches(trained.feed)):
            count = trained.count(target, inputs)

            calls = itertools.count()

            def closure(inputs: Any = inputs, target: Any = target, number: int = number, calls: Any = calls) -> Tensor:
                if next(calls):  # L-BFGS calls it many times in one step
                    trained.before_batch(number)
                optimizer.zero_grad()
                loss = trained.loss(inputs, target)
                if torch.is_grad_enabled():  # a line search wants the loss alone
                    loss.backward()  # type: ignore[no-untyped-call]
                return loss

            losses.add(optimizer.step(closure), count)  # type: ignore[arg-type]
            samples += count
    if not samples:
        raise ValueError("The data gave no batch; it must give at least one, on every pass")
    return plain_figures(optimizer, lr=lr, f_tilde=losses.value() / samples)


@contextmanager
def _in_training_mode(optimizer: Optimizer) -> Iterator[None]:
    """For optimizers that train at one point and are judged at another, as the schedule-free ones are.

    Left after every epoch, measured or not, so that what is measured changes nothing.
    """
    getattr(optimizer, "train", lambda: None)()
    try:
        yield
    finally:
        getattr(optimizer, "eval", lambda: None)()


def plain_figures(optimizer: Optimizer, *, lr: float, f_tilde: float) -> EpochFigures:
    return EpochFigures(
        f_tilde=f_tilde,
        lr=lr,
        next_lr=largest_lr(optimizer),
        alpha=None,
        outcome="uncontrolled",
        direction_norm=None,
        evaluations=0,
    )


def largest_lr(optimizer: Optimizer) -> float:
    return max((float(group["lr"]) for group in optimizer.param_groups), default=math.nan)


def lr_of_epoch(optimizer: Optimizer) -> float:
    """The largest lr at the start of an epoch, where a schedule may have another than at the end of the last."""
    if isinstance(optimizer, Scheduled):
        optimizer.follow()
    return largest_lr(optimizer)
