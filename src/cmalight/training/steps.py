"""Three kinds of optimizers: how each takes its steps, and what the record of an epoch says of them.

`steps_of` is the one place that tells optimizers apart.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, runtime_checkable

from torch import Tensor
from torch.optim import Optimizer

from cmalight.compiled.steps import scaled_lr
from cmalight.evaluation.objective import Objective
from cmalight.optim.certified import Certified
from cmalight.optim.controlled import Controlled
from cmalight.optim.epoch import Epoch
from cmalight.optim.epoch_optimizer import EpochOptimizer
from cmalight.rules.outcome import Outcome
from cmalight.training.data import length_of
from cmalight.training.solvers import Schedule
from cmalight.training.stopping import Stop
from cmalight.training.tracking import Tracker

Backward = Callable[[], Tensor]  # sets the gradients of a batch, and gives its loss
Run = Callable[[Sequence[float]], Tensor]  # takes compiled steps by these factors of lr, and gives their losses


@runtime_checkable
class HasTwoPoints(Protocol):
    """An optimizer that trains at one point and is measured at another, as schedule-free ones do."""

    def train(self) -> None:
        """Go to the point of training."""

    def eval(self) -> None:
        """Go to the point of measuring."""


class PlainSteps:
    """The steps of a plain torch optimizer, by the schedule of its name, if it has one.

    `base` moves the weights: the optimizer itself, or the one that is watched. `compilable` is the one for the compiled
    engine, if it knows it. `objective` is the `Objective` that is evaluated, if any.
    """

    def __init__(self, optimizer: Optimizer, tracker: Tracker, schedule: Schedule | None = None) -> None:
        self.optimizer = self.base = self.compilable = optimizer
        self.tracker = tracker
        self.objective: Objective | None = None
        self._schedule, self._factor = schedule, 1.0
        closure = inspect.signature(optimizer.step).parameters.get("closure")
        self._needs_closure = closure is not None and closure.default is inspect.Parameter.empty  # L-BFGS

    def epoch(self) -> AbstractContextManager[None]:
        """Enclose the steps of one epoch."""
        return nullcontext()

    def eager(self, backward: Backward, count: float) -> Tensor:  # noqa: ARG002
        """Take one step on a batch of `count` samples, and give its loss; before and after, lr is the user's."""
        if self._schedule is None:
            return self._step(backward)
        self._factor = self._schedule(self.tracker.fraction(0.5))
        with scaled_lr(self.optimizer, self._factor):
            return self._step(backward)

    def _step(self, backward: Backward) -> Tensor:
        if self._needs_closure:
            return self.optimizer.step(backward)  # type: ignore[arg-type,return-value]
        loss = backward()
        self.optimizer.step()
        return loss

    def compiled(self, run: Run, sizes: list[int]) -> None:
        """Take all steps of an epoch on batches of these sizes by `run`, in the tracker's chunks."""
        schedule = self._schedule

        def take(chunk: slice) -> Tensor:
            factors = [1.0] * len(sizes[chunk])
            if schedule is not None:
                factors = [schedule(self.tracker.fraction(ahead + 0.5)) for ahead in range(len(factors))]
            self._factor = factors[-1]
            return run(factors)

        self.tracker.in_chunks(sizes, take)

    @property
    def lr(self) -> float:
        """The learning rate of the last step, the largest of the groups."""
        return max(float(group["lr"]) for group in self.optimizer.param_groups) * self._factor

    def record(self) -> dict[str, Any]:
        """What the record says of the epoch that is just done, by field of `EpochRecord`."""
        return {"lr": self.lr}

    def counts(self) -> tuple[int, int]:
        """Evaluations and evaluated rows of the objective so far."""
        return (0, 0) if self.objective is None else (self.objective.evaluations, self.objective.evaluated_rows)

    @property
    def has_converged(self) -> bool:
        """Whether no further step can move the weights."""
        return False

    @contextmanager
    def training_point(self) -> Iterator[None]:
        """Enclose every epoch, measured or not, so that measuring changes nothing."""
        if isinstance(self.base, HasTwoPoints):
            self.base.train()
        try:
            yield
        finally:
            if isinstance(self.base, HasTwoPoints):
                self.base.eval()

    @contextmanager
    def measuring_point(self) -> Iterator[None]:
        """Enclose a measurement inside an epoch: afterwards the weights are as before, bit for bit."""
        base = self.base
        if not isinstance(base, HasTwoPoints):
            yield
            return
        before = [(p, p.detach().clone()) for group in base.param_groups for p in group["params"]]
        base.eval()
        try:
            yield
        finally:
            base.train()
            for p, value in before:
                p.data.copy_(value)


class WatchedSteps(PlainSteps):
    """`Controlled`, `Auto` and `Certified`, which judge windows of steps by themselves."""

    optimizer: Controlled | Certified

    def __init__(self, optimizer: Controlled | Certified, tracker: Tracker) -> None:
        super().__init__(optimizer, tracker)
        self.base = optimizer.base
        if isinstance(optimizer, Controlled):  # Certified takes plain gradient steps beside those of its base
            self.compilable = optimizer.base
        self.objective = optimizer.objective if isinstance(optimizer.objective, Objective) else None
        self._outcomes: list[Outcome] = []

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """Note the outcomes of the windows that end in it."""
        self._outcomes = []
        if isinstance(self.optimizer, Controlled):
            if not self.optimizer.steps:  # the start is before the first forward pass, which may change buffers
                self.optimizer.restart()
            handle = self.optimizer.on_report(lambda report: self._outcomes.append(report.outcome))
            try:
                yield
            finally:
                handle.remove()
        else:
            before = self.optimizer.report
            yield
            if (report := self.optimizer.report) is not None and report is not before:
                self._outcomes.append(report.outcome)

    def eager(self, backward: Backward, count: float) -> Tensor:  # noqa: ARG002
        """The optimizer is told the loss that the step has anyway."""
        loss = backward()
        self.optimizer.step(loss)
        return loss

    def compiled(self, run: Run, sizes: list[int]) -> None:
        """The optimizer cuts a chunk further at the ends of its windows."""
        optimizer: Any = self.optimizer  # a Controlled: Certified is not compiled
        self.tracker.in_chunks(sizes, lambda chunk: optimizer.advance(len(sizes[chunk]), run))

    @property
    def lr(self) -> float:
        """As the optimizer tells it."""
        return float(self.optimizer.last_lr)

    def record(self) -> dict[str, Any]:
        """The first window that was undone decides, else the last one; "open" if no window ended in the epoch."""
        undone = [outcome for outcome in self._outcomes if not outcome.keeps]
        names = [outcome.name.lower() for outcome in (*undone, *self._outcomes[-1:])]
        return {"lr": self.lr, "outcome": names[0] if names else "open"}


class EpochSteps(PlainSteps):
    """The paper's methods, which judge whole epochs."""

    optimizer: EpochOptimizer

    def __init__(self, optimizer: EpochOptimizer, tracker: Tracker, objective: Objective) -> None:
        super().__init__(optimizer, tracker)
        self.objective = objective if optimizer.needs_objective else None
        if self.objective is not None and length_of(objective.data) is None:
            raise ValueError(
                f"{type(optimizer).__name__} compares epochs with a fixed sum over samples, but a loader without "
                "a length is a stream: give the data a length, or use another optimizer"
            )
        self._epoch: Epoch
        self._lr = math.nan

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """Judged at its end; an epoch that is broken off is undone."""
        stopped: Stop | None = None
        self._lr = self.optimizer.zeta
        with self.optimizer.epoch(self.objective) as self._epoch:
            try:
                yield
            except Stop as stop:
                stopped = stop
                self._epoch.abandon()
        if stopped is not None:
            raise stopped

    def eager(self, backward: Backward, count: float) -> Tensor:
        """The epoch observes the loss of every batch."""
        loss = backward()
        self._epoch.observe(loss, count)
        self.optimizer.step()
        return loss

    def compiled(self, run: Run, sizes: list[int]) -> None:
        """One call for all steps, so that the sum of the losses does not depend on how the chunks are cut."""
        self._epoch.advance(sizes, lambda factors: self.tracker.in_chunks(sizes, lambda chunk: run(factors[chunk])))

    @property
    def lr(self) -> float:
        """ζ of the epoch."""
        return self._lr

    def record(self) -> dict[str, Any]:
        """The report of the epoch; φ is not a number for methods that have none."""
        report: Any = self._epoch.report
        return {
            "batch_loss": report.f_tilde,
            "lr": report.lr,
            "outcome": report.outcome.name.lower(),
            "alpha": report.alpha,
            "phi": None if math.isnan(report.phi) else report.phi,
        }

    @property
    def has_converged(self) -> bool:
        """Whether ζ is below rounding."""
        return self.optimizer.has_converged


def steps_of(optimizer: Optimizer, tracker: Tracker, objective: Objective, schedule: Schedule | None) -> PlainSteps:
    """The steps of an optimizer by its kind; the objective is for whole epochs, the schedule for a plain optimizer."""
    if isinstance(optimizer, Controlled | Certified):
        return WatchedSteps(optimizer, tracker)
    if isinstance(optimizer, EpochOptimizer):
        return EpochSteps(optimizer, tracker, objective)
    return PlainSteps(optimizer, tracker, schedule)
