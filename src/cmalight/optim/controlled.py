"""Any torch optimizer under a watchdog that changes nothing until it undoes a window."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer
from torch.utils.hooks import RemovableHandle

from cmalight.evaluation.objective import Objective
from cmalight.evaluation.state import RunState
from cmalight.optim.reports import WindowReport
from cmalight.optim.steps import BaseSteps, warn_of_missing_parameters
from cmalight.optim.watch import Watch
from cmalight.optim.watched import missing_parameters, refuse_unequal_loaders

_LOW_SCALE = 1 / 16
# After this many windows in a row at most at that scale, or undone, a warning names the likely causes.
_LONG, _SUSPICIOUS = 20, 5


class Controlled(BaseSteps):
    """A watchdog around any torch optimizer that needs no closure, in a plain training loop.

    Pass each step the loss that you have anyway. If the losses of a window of steps are too high, the watchdog settles
    the alarm by the objective or, without one, by the next window. If training did get worse, it restores weights,
    buffers and the base's state bit for bit as they were at the last confirmed point; if it fails again, it
    lowers `scale`. Until an undo the run is that of the base, bit for bit.

    Your learning rate is yours: `param_groups[i]["lr"]` is what you or your scheduler set, before and after every
    step. During the step it is multiplied by `scale` and, if you give `total_steps` or `progress`, by a schedule of
    warm-up, constant and linear decay. With a scheduler of your own, leave both out.

    Args:
        base: Any torch optimizer whose `step()` needs no closure.
        model: The model; its buffers are rolled back with the weights. Without it, and without an `Objective`, a
            buffer that is no longer finite, such as a running mean, stays so.
        objective: An `Objective`, or any callable that returns the loss over all data at the current weights. It is
            evaluated after an alarm, and then it decides; an `Objective` also gives the probe, a few batches that
            are evaluated during the first steps.
        total_steps: Number of `step()` calls of the whole run, for warm-up and linear decay.
        progress: Instead of `total_steps`, a callable that returns how much of the run is done, 0 to 1.
        snapshot_device: Device of the two copies of weights and state, such as "cpu"; by default each copy is beside
            its original.

    Attributes:
        base: The optimizer that is watched.
        objective: What settles an alarm; None if the next window does.
        report: The report on the last window; None before the first one ends.
        last_lr: The learning rate that the last step used in the first parameter group; `param_groups[i]` has it as
            `scheduled_lr`.

    Raises:
        ValueError: If the base cannot be watched, or an argument is out of its range.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from cmalight import Controlled, TensorBatches
        >>> _ = torch.manual_seed(0)
        >>> x = torch.rand(1000, 8)
        >>> loader = TensorBatches(x, x.sum(1, keepdim=True).sin(), batch_size=50)
        >>> model, loss_fn = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1)), nn.MSELoss()
        >>> base = torch.optim.AdamW(model.parameters(), lr=1e-2)
        >>> optimizer = Controlled(base, model, total_steps=5 * len(loader))
        >>> for _ in range(5):
        ...     for inputs, target in loader:
        ...         loss = loss_fn(model(inputs), target)
        ...         loss.backward()
        ...         _ = optimizer.step(loss)
        ...         optimizer.zero_grad()
        >>> print(optimizer.report.outcome.name, optimizer.scale)
        KEPT 1.0
    """

    def __init__(
        self,
        base: Optimizer,
        model: nn.Module | None = None,
        *,
        objective: Callable[[], Any] | None = None,
        total_steps: int | None = None,
        progress: Callable[[], float] | None = None,
        snapshot_device: torch.device | str | None = None,
    ) -> None:
        super().__init__(base, total_steps, progress)
        name = type(self).__name__
        if model is not None and not isinstance(model, nn.Module):
            raise TypeError(
                f"{name} takes the model second, a torch.nn.Module, but got {model!r}; pass an objective as objective="
            )
        if objective is not None and not callable(objective):
            raise TypeError(f"{name} needs an Objective, or a callable that gives the loss, but got {objective!r}")
        modules = () if model is None else (model,)
        if isinstance(objective, Objective):
            missing_parameters(self, objective.model)
            modules = tuple(dict.fromkeys((*modules, *objective.modules)))
        if modules:
            warn_of_missing_parameters(self, modules[0])
        device = None if snapshot_device is None else torch.device(snapshot_device)
        self.objective = objective
        self._run_state = RunState(base, modules, device)
        self._watch = Watch(base, self._run_state, objective)
        self._listeners: OrderedDict[int, Callable[[WindowReport], object]] = OrderedDict()
        self._low = self._undone = 0  # windows in a row with a low scale, and undone

    @property
    def scale(self) -> float:
        """The factor by which the watchdog scales the learning rate, in (0, 1]."""
        return self._watch.memory.scale

    @property
    def steps(self) -> int:
        """Steps so far, undone ones included."""
        return self._watch.steps

    def observe(self, loss: Tensor | float) -> None:
        """Say the loss of the next step beforehand, for trainers that call `step()` themselves.

        Several observations before one step are averaged, as gradients are accumulated.

        Args:
            loss: The mean loss of a batch, a scalar; it stays on its device.
        """
        self._watch.losses.observe(loss)

    def _knows_loss(self, loss: Tensor | float | None) -> bool:
        return loss is not None or self._watch.losses.is_pending

    def _watched_step(self, loss: Tensor | float | None) -> None:
        watch = self._watch
        if loss is not None:
            watch.losses.observe(loss)
        if not watch.steps:
            refuse_unequal_loaders(self.objective, self._ranks)
        watch.begin()
        self._base_step(self._factor(watch.steps))
        watch.steps += 1
        if not watch.losses.take(vars(self).get("found_inf")):
            name = type(self).__name__
            self._say_once(
                f"{name} was given no loss for a step, so it does not watch it: call step(loss), or observe(loss) "
                "before step()."
            )
        elif self._steps_left() <= 0:
            self._close_window()

    def _steps_left(self) -> int:
        """Steps until the window ends: it has its length, or the run is over."""
        watch = self._watch
        left = watch.memory.length - len(watch.losses)
        if self.total_steps is not None and watch.steps <= self.total_steps:
            left = min(left, self.total_steps - watch.steps)
        return left

    def advance(self, count: int, run: Callable[[list[float]], Tensor]) -> Tensor:
        """Take several steps by an engine; windows open, close and are judged on the way.

        Args:
            count: How many steps.
            run: `run(factors)` takes len(factors) steps of the base, step i with every group's lr times factors[i],
                and returns the losses of their batches.

        Returns:
            The losses of all batches.
        """
        watch = self._watch
        losses = []
        watch.begin()
        while count:
            ahead = max(1, min(count, self._steps_left()))
            factors = [self._factor(watch.steps + i) for i in range(ahead)]
            losses.append(run(factors))
            self._note_lr(factors[-1])
            count -= ahead
            watch.steps += ahead
            watch.losses.extend(losses[-1])
            if self._steps_left() <= 0:
                self._close_window()
        return torch.cat(losses)

    def on_report(self, listener: Callable[[WindowReport], object]) -> RemovableHandle:
        """Call a function with every report, for logging.

        Args:
            listener: Called after each window.

        Returns:
            A handle; `handle.remove()` ends it.
        """
        handle = RemovableHandle(self._listeners)
        self._listeners[handle.id] = listener
        return handle

    def restart(self) -> None:
        """Take the current weights as a new start; the scale is 1 again.

        Call it after changing the weights yourself. The step count continues, so `total_steps` keeps its meaning.

        Raises:
            ValueError: If the weights or the optimizer's state are not finite.
        """
        self._watch.restart()
        self._low = self._undone = 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As in torch.

        Args:
            set_to_none: As in torch.
        """
        self._watch.losses.cut()
        self.base.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the base, between steps; an undo takes them as they are now.

        Args:
            param_group: As in torch.
        """
        super().add_param_group(param_group)
        self._watch.add_param_group()

    def _close_window(self) -> None:
        report = self._watch.close(self._ranks, self._last_progress)
        self.report = report
        self._agreed = None
        self._undone = 0 if report.outcome.keeps else self._undone + 1
        self._low = self._low + 1 if report.scale <= _LOW_SCALE else 0
        self._warn_about_schedules()
        self._warn_if_slow()
        for listener in tuple(self._listeners.values()):
            listener(report)

    def _warn_if_slow(self) -> None:
        what = f"has undone {_SUSPICIOUS} windows in a row" if self._undone == _SUSPICIOUS else None
        what = f"has kept the scale at 1/16 or below for {_LONG} windows" if self._low == _LONG else what
        if what is not None:
            self._say_once(
                f"{type(self).__name__} {what}. Likely causes: a learning rate far too large; an objective that is not "
                "the loss the steps minimise; a loss that changes during training, as in adversarial or reinforcement "
                "learning, which cannot be watched; bad data in every window."
            )

    def _saved_control(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        numbers, packed = self._watch.state_dict()
        counts = {"total_steps": self.total_steps, "last_progress": self._last_progress, "agreed": self._agreed}
        return {**numbers, **counts, "low": self._low, "undone": self._undone}, packed

    def _load_control(self, numbers: dict[str, Any] | None, snapshots: dict[str, Any] | None) -> None:
        self._watch.load_state_dict(numbers, snapshots)
        saved = numbers or {}
        self._last_progress, self._agreed = saved.get("last_progress"), saved.get("agreed")
        self._low, self._undone = saved.get("low", 0), saved.get("undone", 0)
        self._take_total_steps(saved)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_listeners": OrderedDict()}
