"""The objective of a Lightning module: its own training_step over the trainer's own batches, without a trace."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torchmetrics import Metric

from cmalight.objective import Objective, private_iteration

ModuleForward = Callable[[Any, Any], tuple[Tensor, Any]]
Count = Callable[[Any], float]


class TrainingObjective(Objective):
    """The mean loss per sample over the training data of a trainer.

    Args:
        forward: `forward(module, batch)` gives the mean loss and the count; by default `training_step` does.
        count: of a batch, for the default forward.
    """

    def __init__(self, trainer: Any, module: nn.Module, forward: ModuleForward | None, count: Count) -> None:
        batches = TrainingBatches(trainer)
        step = _training_step(module) if forward is None else None
        self._trainer = trainer

        def numbered_forward(module: Any, numbered: tuple[int, Any]) -> tuple[Tensor, Any]:
            number, batch = numbered
            with trainer.precision_plugin.train_step_context():
                if step is None:
                    return forward(module, batch)  # type: ignore[misc]
                return _loss_of(step(batch, number)), count(batch)

        super().__init__(module, None, batches, forward=numbered_forward)

    def __call__(self) -> float:
        with _silenced(self.model):
            return super().__call__()


class TrainingBatches:
    """What the trainer trains on in an epoch, numbered, where and how `training_step` gets it."""

    def __init__(self, trainer: Any) -> None:
        loader = trainer.train_dataloader
        if isinstance(loader, dict | tuple | list):
            raise ValueError(
                "The trainer combines several training loaders, and how is not for a callback to guess: "
                "pass WatchdogCallback(objective=...), a callable that gives the mean loss over all the data"
            )
        self._trainer = trainer
        self.loader = private_iteration(loader)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        batches = self._trainer.num_training_batches
        limit = None if math.isinf(batches) else int(batches)
        for number, batch in enumerate(itertools.islice(self.loader, limit)):
            yield number, self._prepared(batch)

    def _prepared(self, batch: Any) -> Any:
        batch = self._trainer.precision_plugin.convert_input(batch)
        batch = self._trainer.lightning_module._on_before_batch_transfer(batch)
        return self._trainer.strategy.batch_to_device(batch, dataloader_idx=0)


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
