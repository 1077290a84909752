"""A Lightning callback that puts the epochs of a Trainer under control; the module stays as it is."""

# ruff: noqa: ARG002 - the hooks' arguments are Lightning's

from __future__ import annotations

import importlib
import logging
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cmalight.evaluation.counting import batch_size
from cmalight.optim import Epoch, EpochReport
from cmalight.optim.control.budget import Budget
from cmalight.optim.host import EpochOptimizer

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    # Both names of the library work; the one that is in use already is not joined by the other.
    _NAMES = sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules)
    for _name in _NAMES:
        try:
            Callback = importlib.import_module(_name).Callback
            break
        except ImportError:
            continue
    else:
        raise ImportError('cmalight.integrations.lightning needs Lightning: pip install "cmalight[lightning]"')

logger = logging.getLogger("cmalight")


class WatchdogCallback(Callback):
    """Begins an epoch with the Trainer's, observes each batch, and decides after the last one, before validation.

    The module's `configure_optimizers` returns one optimizer of ours. `report` is that of the last epoch; its figures
    are logged, and can be monitored, under names that begin with `prefix`.

    Args:
        objective: a callable that gives the mean loss per sample over all the data; by default `training_step`, or
            `forward`, is run over the trainer's own training loader.
        forward: `forward(module, batch)` gives the mean loss of a batch and the number of samples behind it.
        count: the number of samples behind the loss of a batch; by default the length of its first tensor.
        prefix: of the names under which figures are logged.

    Raises:
        ValueError: if both `objective` and `forward` are given.

    Example:
        >>> import torch
        >>> from lightning.pytorch import LightningModule, Trainer
        >>> from cmalight import Controlled, TensorBatches
        >>> from cmalight.integrations.lightning import WatchdogCallback
        >>> _ = torch.manual_seed(0)
        >>> class Regression(LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.net = torch.nn.Linear(8, 1)
        ...     def training_step(self, batch):
        ...         return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        ...     def configure_optimizers(self):
        ...         return Controlled(torch.optim.Adam(self.parameters(), lr=7e-3, eps=1e-15))
        >>> x = torch.rand(1000, 8)
        >>> watchdog = WatchdogCallback()  # also tells Controlled how long the run is
        >>> trainer = Trainer(callbacks=[watchdog], max_epochs=2, accelerator="cpu", logger=False,
        ...     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(Regression(), TensorBatches(x, x.sum(1, keepdim=True), batch_size=50))
        >>> watchdog.report.outcome.name
        'KEPT'
    """

    def __init__(
        self,
        objective: Callable[[], float] | None = None,
        *,
        forward: Callable[[Any, Any], tuple[Tensor, Any]] | None = None,
        count: Callable[[Any], float] | None = None,
        prefix: str = "cmalight/",
    ) -> None:
        if objective is not None and forward is not None:
            raise ValueError("objective and forward exclude each other: forward is what the default objective runs")
        self.report: EpochReport | None = None
        self._given_objective = objective
        self._forward = forward
        self._count = count or _length_of
        self._prefix = prefix
        self._objective: Callable[[], float] | None = None
        self._optimizer: EpochOptimizer | None = None
        self._epoch: Epoch | None = None
        self._batch: Any = None
        self._parts = 0  # backward passes since the last step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the optimizer, and tell it how long the run is."""
        self._optimizer = _watched_optimizer(trainer)
        _tell_budget(trainer, self._optimizer)
        self._objective = self._make_objective(trainer, pl_module)

    def _make_objective(self, trainer: Trainer, module: LightningModule) -> Callable[[], float] | None:
        if self._given_objective is not None:
            return self._given_objective
        if self._optimizer is not None and not self._optimizer.needs_objective:
            return None
        if self._forward is None and not module.automatic_optimization:
            raise ValueError(
                "With manual optimization training_step takes steps, so it cannot evaluate the objective: "
                "pass WatchdogCallback(forward=lambda module, batch: (mean loss, count))"
            )
        from cmalight.integrations.lightning_objective import TrainingObjective

        return TrainingObjective(trainer, module, self._forward, self._count)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin an epoch."""
        self._begin(trainer, pl_module)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Announce the batch; end the epoch where it is lost."""
        if self._epoch is None:  # a fit that was resumed inside an epoch: its rest is an epoch
            self._begin(trainer, pl_module)
        self._batch = batch
        if self._epoch is not None:
            self._epoch.announce(batch)

    def _begin(self, trainer: Trainer, module: LightningModule) -> None:
        if self._optimizer is None:
            raise RuntimeError("WatchdogCallback saw an epoch without on_train_start")
        self._parts = 0
        self._epoch = self._optimizer.epoch(self._objective, model=module).__enter__()
        loader: Any = trainer.train_dataloader
        batches = trainer.num_training_batches  # fewer than the loader has under limit_train_batches
        self._epoch.expect(loader, None if math.isinf(batches) else int(batches))

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """The loss arrives divided for gradient accumulation and multiplied by the scaler."""
        if self._epoch is None:
            return
        self._parts += 1
        observed = loss
        if trainer.accumulate_grad_batches > 1:
            observed = observed.detach() * trainer.accumulate_grad_batches
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            observed = observed.detach() / scaler.scale(torch.ones((), device=loss.device))
        self._epoch.observe(observed, self._count(self._batch))

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """Lightning divides by `accumulate_grad_batches` also where fewer are left; a short step is ours to make."""
        parts, self._parts = self._parts, 0
        if 0 < parts < trainer.accumulate_grad_batches:
            gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            torch._foreach_mul_(gradients, trainer.accumulate_grad_batches / parts)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Observe what is left of the batch, and conclude after the last one."""
        if self._epoch is None:
            return
        if self._epoch.is_lost():
            _leave_out_the_rest(trainer)
        if trainer.is_last_batch:
            self._decide(trainer)

    def _decide(self, trainer: Trainer) -> None:
        epoch, self._epoch, self._batch = self._epoch, None, None
        if epoch is None:
            return
        epoch.__exit__(None, None, None)
        self.report = epoch.report
        if self.report is not None:
            logger.debug("%s", self.report)
            self._log(trainer, self.report)

    def _log(self, trainer: Trainer, report: EpochReport) -> None:
        """At once, not at the end of the epoch, so that what is monitored after validation is there."""
        figures = {name: value for name, value in vars(report).items() if name != "outcome"}
        figures["line"] = report.outcome.line
        named = {f"{self._prefix}{name}": float(value) for name, value in figures.items()}
        trainer.callback_metrics.update({name: torch.tensor(value) for name, value in named.items()})
        for log in trainer.loggers:
            log.log_metrics(named, step=max(0, trainer.global_step - 1))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """An epoch that is still open was stopped in its middle, by max_steps, max_time or a request."""
        self._abandon("was stopped before its last batch")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A run that was stopped before its budget may have left a window open."""
        if self._optimizer is not None and self._objective is not None:
            self.report = self._optimizer.settle(self._objective, model=pl_module) or self.report

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Go back to where the epoch began."""
        if isinstance(exception, KeyboardInterrupt):
            self._abandon("was interrupted")
        elif self._epoch is not None:
            epoch, self._epoch = self._epoch, None
            epoch.__exit__(type(exception), exception, exception.__traceback__)

    def _abandon(self, why: str) -> None:
        if self._epoch is None:
            return
        epoch, self._epoch, self._batch = self._epoch, None, None
        is_judged = epoch.cut_short()
        epoch.__exit__(None, None, None)
        if not is_judged:
            logger.warning("The epoch %s, so the weights are back where it began.", why)


def _leave_out_the_rest(trainer: Trainer) -> None:
    """Count the batches that are left as done, so that validation, monitors and a resumed fit see a whole epoch."""
    progress = trainer.fit_loop.epoch_loop.batch_progress
    progress.is_last_batch = True
    if math.isinf(trainer.num_training_batches):
        return
    left = int(trainer.num_training_batches) - progress.current.ready
    for counts in (progress.current, progress.total):
        for name in ("ready", "started", "processed", "completed"):
            setattr(counts, name, getattr(counts, name) + left)


class _TrainersBudget(Budget):
    """Made here, so that another trainer may put its own in its place."""


def _tell_budget(trainer: Trainer, optimizer: EpochOptimizer) -> None:
    """How long the trainer will train; an optimizer that its user told something else keeps to that."""
    if not isinstance(optimizer.budget, _TrainersBudget) and optimizer.budget != Budget():
        return
    epochs, steps = trainer.max_epochs or -1, trainer.max_steps
    timers = [callback for callback in getattr(trainer, "callbacks", ()) if hasattr(callback, "time_elapsed")]
    optimizer.budget = _TrainersBudget(
        max_epochs=epochs if epochs > 0 else None,
        max_batches=steps if steps > 0 else None,
        reported=_share_of(timers[0]) if timers else None,
        epochs_before=lambda: trainer.current_epoch,
        steps_of_others=optimizer.control.state.steps - trainer.global_step,
    )


def _share_of(timer: Any) -> Callable[[], float] | None:
    """What is done of `max_time`, by the callback that Lightning makes for it."""
    if timer.time_remaining() is None:
        return None
    return lambda: timer.time_elapsed() / max(1e-9, timer.time_elapsed() + timer.time_remaining())


def _watched_optimizer(trainer: Trainer) -> EpochOptimizer:
    optimizers = trainer.optimizers
    if len(optimizers) != 1 or not isinstance(optimizers[0], EpochOptimizer):
        given = ", ".join(type(optimizer).__name__ for optimizer in optimizers) or "none"
        raise ValueError(
            "WatchdogCallback watches the one optimizer that configure_optimizers returns (CMALight, CMA, IG or "
            f"Controlled), but got {given}; with several optimizers use `with optimizer.epoch(objective)` in the "
            "module's own hooks"
        )
    return optimizers[0]


def _length_of(batch: Any) -> float:
    count = batch_size(batch)
    if count is None:
        raise ValueError(
            "A batch has no tensor with a first dimension, so its size is not known: "
            "pass WatchdogCallback(count=lambda batch: ...)"
        )
    return count
