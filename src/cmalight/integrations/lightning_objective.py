"""The objective of a Lightning module: its own training_step over the trainer's own batches, without a trace."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torchmetrics import Metric

from cmalight.evaluation.counting import length_of
from cmalight.evaluation.objective import Objective
from cmalight.evaluation.randomness import RandomSource
from cmalight.evaluation.undisturbed import private_iteration

ModuleForward = Callable[[Any, Any], tuple[Tensor, Any]]
Count = Callable[[Any], float]


class TrainingObjective(Objective):
    """The mean loss per sample over the training data of a trainer.

    Args:
        forward: `forward(module, batch)` gives the mean loss and the count; by default `training_step` does.
        count: of a batch, for the default forward.
    """

    def __init__(self, trainer: Any, module: nn.Module, forward: ModuleForward | None, count: Count) -> None:
        self._trainer = trainer
        self._module_forward = forward
        self._count = count
        self._step = _training_step(module)
        self._numbers = itertools.count()
        super().__init__(module, None, _training_loader(trainer), forward=self._forward_batch)

    def without_a_trace(self, mean: Callable[[tuple[RandomSource, ...]], float], *, may_draw: bool = True) -> float:
        """Nor in what the module logs."""
        self._numbers = itertools.count()
        with _silenced(self.model):
            return super().without_a_trace(mean, may_draw=may_draw)

    def _forward_batch(self, module: Any, batch: Any) -> tuple[Tensor, Any]:
        batch = self._prepared(batch)
        with self._trainer.precision_plugin.train_step_context():
            if self._module_forward is not None:
                return self._module_forward(module, batch)
            return _loss_of(self._step(batch, next(self._numbers))), self._count(batch)

    def _prepared(self, batch: Any) -> Any:
        """Where and how `training_step` gets it."""
        batch = self._trainer.precision_plugin.convert_input(batch)
        batch = self._trainer.lightning_module._on_before_batch_transfer(batch)
        return self._trainer.strategy.batch_to_device(batch, dataloader_idx=0)


def _training_loader(trainer: Any) -> Iterable[Any]:
    loader = trainer.train_dataloader
    if isinstance(loader, dict | tuple | list):
        raise ValueError(
            "The trainer combines several training loaders, and how is not for a callback to guess: "
            "pass WatchdogCallback(objective=...), a callable that gives the mean loss over all the data"
        )
    batches = trainer.num_training_batches
    return loader if math.isinf(batches) or batches == length_of(loader) else FirstBatches(loader, int(batches))


class FirstBatches:
    """As many batches as `limit_train_batches` leaves."""

    def __init__(self, loader: Iterable[Any], number: int) -> None:
        self.loader = private_iteration(loader)
        self._number = number

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.loader, self._number)


def _training_step(module: Any) -> Callable[[Any, int], Any]:
    takes_number = len(inspect.signature(module.training_step).parameters) > 1
    return module.training_step if takes_number else lambda batch, _number: module.training_step(batch)


def _loss_of(output: Any) -> Tensor:
    loss = output["loss"] if isinstance(output, dict) else output
    if not isinstance(loss, Tensor):
        raise ValueError(
            f"training_step returned {output!r} when the objective was evaluated, and every batch counts there: pass "
            "WatchdogCallback(forward=lambda module, batch: (mean loss, count)) for batches without a loss"
        )
    return loss


@contextmanager
def _silenced(module: nn.Module) -> Iterator[None]:
    """What `training_step` logs and counts belongs to the epoch, not to an evaluation."""
    with ExitStack() as undo:
        for metric in (m for m in module.modules() if isinstance(m, Metric)):
            undo.callback(_restore, metric, copy.deepcopy(metric.metric_state), metric._update_count, metric._computed)
        vars(module)["log"] = lambda *_, **__: None
        undo.callback(vars(module).pop, "log")
        yield


def _restore(metric: Metric, state: dict[str, Any], updates: int, computed: Any) -> None:
    for name, value in state.items():
        setattr(metric, name, value)
    metric._update_count, metric._computed = updates, computed
