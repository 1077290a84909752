"""Any torch optimizer under a watchdog: windows of steps that are kept, or rolled back at a lower learning rate."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.optim.optimizer import Optimizer

from cmalight.errors import check_whole
from cmalight.evaluation.state import ModuleState
from cmalight.optim.host import (
    WindowOptimizer,
    attributes_to_copy,
    is_zero,
    modules_of,
    refuse_maximize,
    refuse_unequal,
    refuse_unequal_loaders,
)
from cmalight.optim.reports import WindowReport
from cmalight.optim.window import Window
from cmalight.rules.outcome import Outcome
from cmalight.rules.watchdog import Memory, Watchdog

# After this many undone windows in a row a warning names the likely causes.
_SUSPICIOUS = 5


class Controlled(WindowOptimizer):
    """A watchdog around any torch optimizer that needs no closure, in a plain training loop.

    The optimizer copies its state at the start of a window of steps, and evaluates a small sample of the objective at
    the end. A window that ends too high is undone: weights, buffers and the base's state are restored bit for bit, and
    `scale` is lowered. Your learning rate is yours: `param_groups[i]["lr"]` is what you or your scheduler set, before
    and after every step. During the step it is multiplied by `scale` and, if you give `total_steps` or `progress`, by
    a schedule of warm-up, constant and linear decay. With a scheduler of your own, leave both out.

    Args:
        base: Any torch optimizer whose `step()` needs no closure.
        objective: An `Objective`, or any callable that returns the loss at the current weights.
        total_steps: Number of `step()` calls of the whole run, for warm-up and linear decay.
        progress: Instead of `total_steps`, a callable that returns how much of the run is done, 0 to 1.
        rule: The watchdog and its constants.
        certified: Judge epochs by the loss on all data, with a proof of convergence, for one evaluation of all data
            per epoch. This makes a `Certified`.
        steps_per_epoch: Number of steps of an epoch, with `certified=True` and data without a length.

    Attributes:
        base: The optimizer that is watched.
        objective: The loss that is evaluated.
        report: The report on the last window; None before the first one ends.
        on_report: Called with every report, for logging.
        last_lr: The learning rate that the last step used in the first parameter group.
        steps: Steps so far, including undone ones.

    Raises:
        ValueError: If the base cannot be watched, or an argument is out of its range.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from cmalight import Controlled, Objective, TensorBatches
        >>> _ = torch.manual_seed(0)
        >>> x = torch.rand(1000, 8)
        >>> loader = TensorBatches(x, x.sum(1, keepdim=True).sin(), batch_size=50)
        >>> model, loss_fn = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1)), nn.MSELoss()
        >>> base = torch.optim.AdamW(model.parameters(), lr=1e-2)
        >>> optimizer = Controlled(base, Objective(model, loss_fn, loader), total_steps=5 * len(loader))
        >>> for _ in range(5):
        ...     for inputs, target in loader:
        ...         loss = loss_fn(model(inputs), target)
        ...         loss.backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        >>> print(optimizer.report.outcome.name, optimizer.scale)
        KEPT 1.0
    """

    base: Optimizer

    _certified: ClassVar[type[Controlled]]

    def __init_subclass__(cls, *, certified: bool = False, **options: Any) -> None:
        """One subclass does what `certified=True` asks for; it builds on this class, so it announces itself."""
        super().__init_subclass__(**options)
        if certified:
            Controlled._certified = cls

    def __new__(cls, *_: Any, certified: bool = False, **__: Any) -> Any:
        """Make a `Certified` where `certified=True`."""
        return super().__new__(cls._certified if certified and cls is Controlled else cls)

    def __init__(
        self,
        base: Optimizer,
        objective: Any,
        *,
        total_steps: int | None = None,
        progress: Callable[[], float] | None = None,
        rule: Any = None,
        certified: bool = False,
        steps_per_epoch: int | None = None,
    ) -> None:
        if steps_per_epoch is not None or certified:
            raise ValueError("steps_per_epoch belongs to Controlled(..., certified=True)")
        _check_base(base)
        _check_objective(objective)
        if total_steps is not None:
            check_whole("total_steps", total_steps, least=1)
            if progress is not None:
                raise ValueError("total_steps and progress both say how much of the run is done: give one of them")
        if progress is not None and not callable(progress):
            raise ValueError(f"Invalid progress value: {progress!r}; expected a callable that gives a share, 0 to 1")
        self.base = base
        # torch's own constructor would build parameter groups of its own; these are the base's.
        Optimizer.__setstate__(self, {"defaults": base.defaults})
        self._control_begins(objective, total_steps, progress, Watchdog() if rule is None else rule)

    def _control_begins(self, objective: Any, total_steps: Any, progress: Any, rule: Watchdog) -> None:
        self.objective = objective
        self.rule = rule
        self.total_steps: int | None = total_steps
        self.progress: Callable[[], float] | None = progress
        self.report: WindowReport | None = None
        self.on_report: Callable[[WindowReport], object] | None = None
        self.last_lr = math.nan
        self.steps = 0
        self.window = None
        self._memory: Memory | None = None
        self._share: float | None = None  # of several ranks, agreed where a window begins
        self._last_progress: float | None = None  # that the last step's factor was computed from
        self._said: set[str] = set()
        self.watch(*modules_of(objective))
        # The first window opens after a forward pass, which may already have spoilt running statistics.
        self._modules_at_start: ModuleState | None = ModuleState(*self.run_state.modules)

    # The groups and the state are the base's, so that there is one home for each.

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The base's parameter groups."""
        return self.base.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.base.param_groups = groups

    @property
    def state(self) -> Any:
        """The base's state."""
        return self.base.state

    @state.setter
    def state(self, state: Any) -> None:
        self.base.state = state

    @property
    def stepper(self) -> Optimizer:
        """The base."""
        return self.base

    def __getattr__(self, name: str) -> Any:
        """What this class does not have, the base may: `train` and `eval` of schedule-free optimizers, for example."""
        if name.startswith("__") or "base" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.base, name)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return bool(getattr(self.base, "_step_supports_amp_scaling", False))

    @property
    def scale(self) -> float:
        """The factor by which the watchdog scales the learning rate, in (0, 1]."""
        return 1.0 if self._memory is None else self._memory.scale

    @_disable_dynamo
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of the base; the window is judged after its last step.

        Args:
            closure: Computes the loss and its gradients, and returns the loss; it is called once.

        Returns:
            The closure's loss, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.base.param_groups:
            if not is_zero(group["lr"]):
                break
        else:  # moves nothing; torch.distributed.checkpoint builds an optimizer's state this way
            self._base_step(1.0)
            return loss
        window = self.window
        if window is None or not window.steps:
            window = self._begun()
        if (found_inf := self.__dict__.get("found_inf")) is not None:
            window.skips(found_inf)
        self._base_step(self._factor(self.steps))
        window.steps += 1
        self.steps += 1
        length = self._memory.window  # type: ignore[union-attr]
        if window.steps >= length:
            if window.skipped is not None:
                self._leave_out_skipped_steps()
            if window.steps >= length:
                self.judge()
        return loss

    def advance(self, count: int, run: Callable[[list[float]], Tensor]) -> Tensor:
        """Take several steps by an engine; windows open, close and are judged on the way.

        Args:
            count: How many steps.
            run: `run(factors)` takes len(factors) steps of the base, step i with every group's lr times factors[i],
                and returns the losses of their batches.

        Returns:
            The losses of all batches.
        """
        losses = []
        while count:
            window = self._begun()
            length = self._memory_now.window
            ahead = min(count, length - window.steps)
            factors = [self._factor(self.steps + i) for i in range(ahead)]
            losses.append(run(factors))
            self.last_lr = self.param_groups[0]["lr"] * factors[-1]
            count -= ahead
            window.steps += ahead
            self.steps += ahead
            if window.steps >= length:
                self.judge()
        return torch.cat(losses)

    @torch.inference_mode(False)
    @torch.no_grad()
    def judge(self) -> WindowReport | None:
        """Close the window now: before measuring, before saving the final model, or when leaving early.

        Returns:
            What the window came to; the last report where no step was taken since.
        """
        window = self.window
        if window is not None and window.skipped is not None:
            self._leave_out_skipped_steps()
        if window is None or not window.steps:
            return self.report
        is_finite = self.end_is_finite(window)
        steps, memory = window.steps, self._memory or self._memory_now
        f_end = self._look() if is_finite else math.inf
        verdict, memory_after = self.rule.decide(memory, f_end, steps, self._last_progress)
        outcome = Outcome.KEPT if verdict.keeps else (Outcome.UNDONE if math.isfinite(f_end) else Outcome.DIVERGED)
        if not verdict.keeps:
            self.roll_back()
        if memory_after.noise is None and memory_after.window >= self.rule.memory:
            # At the start all rows may have the same loss, as under cross-entropy; by now they differ.
            memory_after = replace(memory_after, noise=self._error())
        self._memory = memory_after
        report = WindowReport(steps, outcome, memory.ends[-1], f_end, verdict.bound, memory_after.scale)
        self._say_what_is_odd()
        return self.close_window(report)

    def end_is_finite(self, window: Window) -> bool:
        """Whether the end of the window is finite on all ranks, which must have taken equally many steps.

        Args:
            window: The window that ends.

        Returns:
            True where everything that was finite still is.
        """
        is_finite = self.run_state.is_finite(window.snapshot)
        if (ranks := self.ranks(self.objective)).alone:
            return is_finite
        rows = ranks.gather(window.steps, is_finite)
        refuse_unequal(rows)
        return all(row[1] for row in rows)

    def close_window(self, report: WindowReport) -> WindowReport:
        """Open the next window where the weights are now, and pass the report on.

        Args:
            report: What the window came to.

        Returns:
            The report.
        """
        self.report = report
        self.open_window()
        self._share = None
        if self.on_report is not None:
            self.on_report(report)
        return report

    def restart(self, objective: Any = None) -> None:
        """Take the current weights as the new start; the scale is 1 again.

        The steps of the open window are kept. The step count continues, so `total_steps` keeps its meaning.

        Args:
            objective: A new one; by default the old one.
        """
        if objective is not None:
            _check_objective(objective)
            self.objective = objective
            self.watch(*modules_of(objective))
        self._memory = self._share = None
        self.window = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the base, between steps; an open window takes them as they are now.

        Args:
            param_group: As in torch.
        """
        refuse_maximize([param_group])
        self.base.add_param_group(param_group)
        if (window := self.window) is not None:
            added = self.run_state.snapshot()
            known = len(window.snapshot.weights)
            window.snapshot.weights += added.weights[known:]
            window.snapshot.groups += added.groups[len(window.snapshot.groups) :]

    @property
    def _memory_now(self) -> Memory:
        if self._memory is None:
            refuse_unequal_loaders(self.objective, self.ranks(self.objective))
            self._memory = self.rule.init(self._look(), self._error())
        return self._memory

    def _error(self) -> float:
        """How far the sample's loss may be from that of all data."""
        sample = getattr(self.objective, "sample", None)
        return 0.0 if sample is None else sample().error()

    def _begun(self) -> Window:
        """The window for the next step, its first loss evaluated."""
        if self._memory is None:
            _ = self._memory_now
        window = self.window_for_step()
        if self._modules_at_start is not None:
            window.snapshot.modules.mend(self._modules_at_start)
            self._modules_at_start = None
        return window

    def _leave_out_skipped_steps(self) -> None:
        """A step that a fused optimizer skipped is no step: not of the window, and not of the schedule."""
        if self.window is not None and self.window.skipped is not None:
            self.steps -= self.window.settle()

    def _base_step(self, factor: float) -> None:
        """One step of the base with every lr times `factor`; afterwards the groups have the user's own again."""
        base, groups = self.base, self.base.param_groups
        passed_on = [name for name in ("grad_scale", "found_inf") if name in self.__dict__]  # by GradScaler
        for name in passed_on:
            setattr(base, name, self.__dict__[name])
        own = [group["lr"] for group in groups]
        try:
            for group in groups:
                group["lr"] = group["lr"] * factor  # a new value: the user's own tensor is left alone
            base.step()
            self.last_lr = groups[0]["lr"]
            for group, lr in zip(groups, own, strict=True):
                group["lr"] = lr
        except BaseException:  # also an interrupt while the learning rates are put back
            for group, lr in zip(groups, own, strict=True):
                group["lr"] = lr
            raise
        finally:
            for name in passed_on:
                delattr(base, name)

    def _factor(self, steps: int) -> float:
        """The factor of the user's lr for the next step."""
        scale = self._memory.scale  # type: ignore[union-attr]
        self._last_progress = share = self._progress(steps)
        return scale if share is None else scale * self.rule.factor(share, steps)

    def _progress(self, steps: int) -> float | None:
        """The share of the run that is done after so many steps; None if nobody knows. Call it once per step."""
        if self.total_steps is None:
            return None if self.progress is None else self._agreed_share()
        if steps >= self.total_steps:
            self._say_once(
                "past",
                f"total_steps={self.total_steps} are done: further steps use the last, tiny, "
                "learning rate. Give Controlled the real number of steps.",
            )
        return (min(steps, self.total_steps - 1) + 0.5) / self.total_steps

    def _agreed_share(self) -> float:
        """Clocks differ between ranks, so several ranks agree on the least share where a window begins."""
        ranks = self.ranks(self.objective)
        if self._share is not None and not ranks.alone:
            return self._share
        own = float(self.progress())  # type: ignore[misc]
        if not 0.0 <= own:
            raise ValueError(f"progress() gave {own!r}; expected the share of the run that is done, 0 to 1")
        self._share = min(row[0] for row in ranks.gather(min(own, 1.0)))
        return self._share

    @torch.no_grad()
    def _look(self) -> float:
        """The sample's loss where the base is judged, +inf where it is not finite."""
        switches = self.base.param_groups[0].get("train_mode") is True  # a schedule-free base trains at another point
        if switches:
            self.base.eval()  # type: ignore[attr-defined]
        sample = getattr(self.objective, "sample", None)
        try:
            value = float(self.objective() if sample is None else sample()())
        finally:
            if switches:
                self.base.train()  # type: ignore[attr-defined]
        return value if math.isfinite(value) else math.inf

    def _say_what_is_odd(self) -> None:
        scheduled = self.total_steps is not None or self.progress is not None
        if not scheduled and "initial_lr" not in self.param_groups[0]:
            self._say_once(
                "schedule",
                f"{type(self).__name__} has no schedule: it leaves the learning rate to you. Give total_steps, the "
                "number of steps of the run, or use one of torch's learning rate schedulers.",
            )
        if self._memory is not None and self._memory.refused >= _SUSPICIOUS:
            self._say_once(
                "refused",
                f"{type(self).__name__} has undone {_SUSPICIOUS} windows in a row. Likely causes: a learning rate far "
                "too large; an objective that is not the loss the steps minimise; a loss that changes during training, "
                "as in adversarial or reinforcement learning, which cannot be watched; bad data in every window.",
            )

    def _say_once(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            warnings.warn(text, stacklevel=2)

    def control_state(self) -> dict[str, Any]:
        """The rule's memory and the count of steps, as plain numbers."""
        self._leave_out_skipped_steps()
        # The same keys at all times: torch.distributed.checkpoint loads those that it finds in a fresh optimizer.
        memory: dict[str, Any] = dict.fromkeys(field.name for field in fields(Memory))
        if self._memory is not None:
            memory = {**asdict(self._memory), "ends": list(self._memory.ends)}
        counts = {"steps": self.steps, "total_steps": self.total_steps, "last_progress": self._last_progress}
        return {"memory": memory, **counts}

    def load_control_state(self, saved: dict[str, Any] | None) -> None:
        """Take what `control_state` gave; `total_steps` of the constructor wins over the saved one."""
        self._memory, self.steps, self._share, self._last_progress = None, 0, None, None
        if saved is None:
            return
        self.steps = int(saved["steps"])
        self._last_progress = saved.get("last_progress")
        if self.total_steps is None and self.progress is None:
            self.total_steps = saved["total_steps"]
        memory = saved.get("memory") or {}
        if memory.get("ends") is not None:
            self._memory = Memory(**{**memory, "ends": tuple(memory["ends"])})

    def load_stepper(self, state_dict: dict[str, Any]) -> None:
        """Load the base, between the hooks that were registered here."""
        refuse_maximize(state_dict["param_groups"])
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = hook(self, state_dict) or state_dict
        self.base.load_state_dict(state_dict)
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch; training resumes bit for bit, also inside a window.

        Args:
            state_dict: From `state_dict`, or from the base alone; then the control starts again.
        """
        super().load_state_dict(state_dict)
        self.unpack_window()

    def __getstate__(self) -> dict[str, Any]:
        kept = attributes_to_copy(self)
        if self.window is not None:  # torch counts the writes to a copy anew
            kept["window"] = replace(self.window, versions=None)
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        Optimizer.__setstate__(self, state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"


def _check_base(base: object) -> None:
    if not isinstance(base, Optimizer):
        raise TypeError(f"Controlled needs a torch optimizer, for example torch.optim.AdamW(...), but got {base!r}")
    if isinstance(base, WindowOptimizer):
        raise ValueError(f"Controlled cannot watch {type(base).__name__}, which judges its own steps: pass a plain one")
    if isinstance(base, torch.optim.LBFGS):
        raise ValueError("Controlled cannot watch L-BFGS: its steps need a closure and are no mini-batch steps")
    if any(group.get("lr") is None for group in base.param_groups):
        raise ValueError(
            f"Controlled lowers the lr of {type(base).__name__}, but it has none: give it a number as its lr"
        )
    refuse_maximize(base.param_groups)


def _check_objective(objective: object) -> None:
    if not callable(objective):
        raise TypeError(f"Controlled needs an Objective, or a callable that gives the loss, but got {objective!r}")
