"""The true training loss of a run, measured off its clock, alike for every solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from typing import Any

from torch import Tensor, nn

from cmalight.bench.spec.study import Definition
from cmalight.bench.store.schema import COLUMNS
from cmalight.datasets import DataSplit
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.objective import Objective
from cmalight.training import EpochRecord
from cmalight.training.records.metrics import measure


@dataclass(frozen=True)
class Problem:
    model: nn.Module
    loss_fn: Callable[[Any, Any], Tensor]
    batches: TensorBatches


@dataclass(frozen=True)
class Measured:
    train_loss: float
    test_loss: float | None
    test_accuracy: float | None


@dataclass
class Measuring:
    """A callback of `fit`, which calls it off the training clock: the true training loss after every n-th epoch."""

    problem: Problem
    run: Definition
    data: DataSplit
    report: Callable[[int, float | None, float], object]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    last_loss: float | None = None
    evaluations: int = 0  # so far

    def __post_init__(self) -> None:
        # Evaluated in the batches of the spec for every solver alike, whatever batches the solver itself sees.
        size = self.run.batch_size
        feed = TensorBatches(self.data.x_train, self.data.y_train, batch_size=size, order="fixed")
        self._objective = Objective(self.problem.model, self.problem.loss_fn, feed)
        self._test = TensorBatches(self.data.x_test, self.data.y_test, order="fixed") if self._tests() else None

    def _tests(self) -> bool:
        return self.run.measure_test and len(self.data.x_test) > 0

    def on_epoch_end(self, record: EpochRecord) -> None:
        due = (record.epoch + 1) % self.run.measure_every == 0
        measured = self.now() if due else None
        losses = (None, None, None) if measured is None else astuple(measured)
        self.evaluations += record.evaluations
        control = (record.f_tilde, record.lr, record.alpha, record.outcome, self.evaluations)
        self.rows.append((record.epoch, record.seconds, *losses, *control))
        self.last_loss = self.last_loss if measured is None else measured.train_loss
        self.report(record.epoch, self.last_loss, record.seconds)

    def now(self) -> Measured:
        """At the current weights."""
        loss = self._objective()
        test_loss, accuracy = (None, None) if self._test is None else self._on_the_test_part(self._test)
        return Measured(loss, test_loss, accuracy)

    def _on_the_test_part(self, test: TensorBatches) -> tuple[float, float | None]:
        metrics = () if self.data.classes is None else ("accuracy",)
        device = next(self.problem.model.parameters()).device
        loss, values = measure(self.problem.model, self.problem.loss_fn, test, metrics, device)
        return loss, values.get("accuracy")

    def columns(self) -> dict[str, list[Any]]:
        """One list per column: an epoch has the same place in each."""
        return {name: [row[position] for row in self.rows] for position, name in enumerate(COLUMNS)}
