"""The steps of one epoch: under each kind of optimizer, step by step or in compiled chunks."""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled import CannotCompile, compile_training
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.counting import refuse_broadcast
from cmalight.training.data import OwnedPairs, counter, counts_rows, device_of
from cmalight.training.schedules import Schedule
from cmalight.training.stopping import StopTraining

# Ctrl-C and the time limit are honoured within about this time in compiled epochs.
_CHUNK_SECONDS = 0.05

Loss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class EpochFigures:
    """What an epoch gave; the fields are those of `EpochRecord`."""

    batch_loss: float
    lr: float
    outcome: str = "uncontrolled"
    alpha: float | None = None
    phi: float | None = None


class MeanLoss:
    """The mean loss of an epoch, summed on the losses' device."""

    def __init__(self) -> None:
        self._total: Tensor | float = 0.0
        self._samples = 0.0

    def add(self, loss: Tensor, count: float) -> None:
        """Add the mean loss of a batch of `count` samples."""
        self._total = self._total + loss.detach().double() * count
        self._samples += count

    def mean(self) -> float:
        """The mean loss per sample."""
        if not self._samples:
            raise ValueError("The data gave no batch; it must give at least one on every pass")
        return float(self._total) / self._samples


class Epochs:
    """Takes the steps of a run, one epoch at a time.

    Args:
        model: In training mode.
        loss_fn: Mean loss of a batch.
        batches: The training data.
        optimizer: One of torch's, `Controlled`, or one with `epoch(objective)`.
        schedule: Factor of lr by the share of the run that is done; None leaves lr alone.
        objective: For an optimizer with `epoch(objective)`.
        share: Gives the share of the run that is done after so many batches of this epoch.
        before_batch: Called with the number of each batch, or of the first of a chunk; may raise StopTraining.

    Attributes:
        program: The compiled program, which runs the steps natively; None takes them one by one in Python.
        reason: Why there is none.
    """

    program: Any = None
    reason: str = ""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Loss,
        batches: Iterable[Any],
        optimizer: Optimizer,
        *,
        schedule: Schedule | None,
        objective: Any,
        share: Callable[[float], float],
        before_batch: Callable[[int], None],
    ) -> None:
        self._model, self._loss_fn, self._batches, self._optimizer = model, loss_fn, batches, optimizer
        self._schedule, self._objective, self._share, self._before_batch = schedule, objective, share, before_batch
        self._pairs = OwnedPairs(batches, device_of(model))
        self._count = counter(loss_fn, batches)
        closure = inspect.signature(optimizer.step).parameters.get("closure")
        self._needs_closure = closure is not None and closure.default is inspect.Parameter.empty  # L-BFGS

    def compile(self) -> None:
        """Run the steps natively from now on, if that can be done: model, loss, optimizer and machine decide."""
        try:
            if not isinstance(self._batches, TensorBatches):
                raise CannotCompile("the data are not tensors in memory")
            if not counts_rows(self._loss_fn, self._batches):
                raise CannotCompile("the loss weights classes, or ignores some targets")
            base = getattr(self._optimizer, "base", self._optimizer)
            self.program = compile_training(self._model, self._loss_fn, base, self._batches)
        except CannotCompile as reason:
            self.reason = str(reason)

    def run(self, *, is_last: bool) -> EpochFigures:
        """One epoch; where it is the last, the steps that are not judged yet are judged at its end.

        Raises:
            StopTraining: In mid-epoch. The weights are where the last step put them, or, where epochs are judged as a
                whole, where the epoch began.
        """
        optimizer: Any = self._optimizer
        if self.program is not None:
            self._begin_program()
        with _in_training_mode(optimizer):
            if hasattr(optimizer, "epoch"):
                return self._in_bracket()
            with _reports_of(optimizer) as reports:
                batch_loss = self._eager() if self.program is None else self._compiled()
                if is_last and hasattr(optimizer, "judge"):
                    optimizer.judge()
            return EpochFigures(batch_loss, self._last_lr(), _outcome(optimizer, reports))

    def _in_bracket(self) -> EpochFigures:
        """An epoch that is judged as a whole, as the paper's methods do."""
        optimizer: Any = self._optimizer
        stopped: StopTraining | None = None
        with optimizer.epoch(self._objective if optimizer.needs_objective else None) as epoch:
            try:
                if self.program is None:
                    self._eager(epoch)
                else:
                    epoch.advance(self._sizes(), self._run_in_chunks)
            except StopTraining as stop:
                stopped = stop
                epoch.abandon()
        if stopped is not None:
            raise stopped
        report = epoch.report
        phi = None if math.isnan(report.phi) else report.phi
        return EpochFigures(report.f_tilde, report.lr, report.outcome.name.lower(), report.alpha, phi)

    def _eager(self, epoch: Any = None) -> float:
        optimizer, losses = self._optimizer, MeanLoss()
        for number, (inputs, targets) in enumerate(self._pairs):
            self._before_batch(number)
            count = self._count(inputs, targets)
            backward = functools.partial(self._backward, inputs, targets)
            with self._scheduled_lr(number):
                if self._needs_closure:
                    loss: Any = optimizer.step(backward)  # type: ignore[arg-type]
                else:
                    loss = backward()
                    if epoch is not None:
                        epoch.observe(loss, count)
                    optimizer.step()
            losses.add(loss, count)
        return losses.mean()

    def _backward(self, inputs: Any, targets: Any) -> Tensor:
        self._optimizer.zero_grad()
        output = self._model(inputs)
        refuse_broadcast(output, targets, self._loss_fn)
        loss = self._loss_fn(output, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    @contextmanager
    def _scheduled_lr(self, number: int) -> Iterator[None]:
        """During a step lr is the schedule's; before and after it, the groups hold the peak."""
        if self._schedule is None:
            yield
            return
        factor = self._factor = self._schedule(self._share(number + 0.5))
        peaks = [group["lr"] for group in self._optimizer.param_groups]
        for group, peak in zip(self._optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * factor
        try:
            yield
        finally:
            for group, peak in zip(self._optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak

    _factor = 1.0

    def _last_lr(self) -> float:
        """The learning rate of the last step, the largest of the groups."""
        if hasattr(self._optimizer, "last_lr"):
            return float(self._optimizer.last_lr)
        return max(float(group["lr"]) for group in self._optimizer.param_groups) * self._factor

    def _compiled(self) -> float:
        optimizer: Any = self._optimizer
        sizes, losses = self._sizes(), MeanLoss()
        for first, count in self._chunks(len(sizes)):
            if hasattr(optimizer, "advance"):
                chunk = optimizer.advance(count, self.program.run)
            else:
                chunk = self.program.run(self._factors(first, count))
            for loss, size in zip(chunk, sizes[first:], strict=False):
                losses.add(loss, size)
        return losses.mean()

    def _begin_program(self) -> None:
        """Give the program the rows of this epoch; if it finds something unknown, continue eagerly."""
        batches: Any = self._batches
        try:
            self.program.begin_epoch(batches.permutation(batches.epoch))
        except CannotCompile as reason:
            self.program, self.reason = None, str(reason)
        else:
            batches.set_epoch(batches.epoch + 1)

    def _sizes(self) -> list[int]:
        batches: Any = self._batches
        rest = batches.samples % batches.batch_size
        return [batches.batch_size] * (batches.samples // batches.batch_size) + [rest] * (rest > 0)

    def _factors(self, first: int, count: int) -> list[float]:
        if self._schedule is None:
            return [1.0] * count
        factors = [self._schedule(self._share(first + ahead + 0.5)) for ahead in range(count)]
        self._factor = factors[-1]
        return factors

    def _run_in_chunks(self, factors: Sequence[float]) -> Tensor:
        return torch.cat([self.program.run(factors[i : i + count]) for i, count in self._chunks(len(factors))])

    def _chunks(self, steps: int) -> Iterator[tuple[int, int]]:
        """(first step, number of steps), as long as fits into a moment; how they are cut changes no result."""
        first, count = 0, 1
        while first < steps:
            self._before_batch(first)
            count = min(count, steps - first)
            started = time.perf_counter()
            yield first, count
            first += count
            count = 2 * count if time.perf_counter() - started < _CHUNK_SECONDS / 2 else max(1, count // 2)


@contextmanager
def _in_training_mode(optimizer: Any) -> Iterator[None]:
    """For optimizers that train at one point and are judged at another, as the schedule-free ones are.

    Left after every epoch, measured or not, so that measuring changes nothing.
    """
    getattr(optimizer, "train", lambda: None)()
    try:
        yield
    finally:
        getattr(optimizer, "eval", lambda: None)()


@contextmanager
def _reports_of(optimizer: Any) -> Iterator[list[Any]]:
    """What the optimizer reports of its windows during the block; the user's own `on_report` is still called."""
    reports: list[Any] = []
    if not hasattr(optimizer, "on_report"):
        yield reports
        return
    users = optimizer.on_report

    def note(report: Any) -> None:
        reports.append(report)
        if users is not None:
            users(report)

    optimizer.on_report = note
    try:
        yield reports
    finally:
        optimizer.on_report = users


def _outcome(optimizer: Any, reports: Sequence[Any]) -> str:
    """The first window that was undone decides; "open" where none ended in this epoch."""
    if not hasattr(optimizer, "on_report"):
        return "uncontrolled"
    worst = next((report for report in reports if not report.outcome.keeps), reports[-1] if reports else None)
    return "open" if worst is None else str(worst.outcome.name).lower()
