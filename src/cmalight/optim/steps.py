"""Runs the steps of a base optimizer: scales its learning rates for a step, and shares its groups and state."""

from __future__ import annotations

import inspect
import math
import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.optim.optimizer import Optimizer

from cmalight.errors import check_whole, warn
from cmalight.evaluation.ranks import Ranks
from cmalight.evaluation.state import RunState
from cmalight.optim.reports import WindowReport
from cmalight.optim.watched import WatchedOptimizer, is_zero, missing_parameters, ranks_for, refuse_maximize
from cmalight.rules import schedule


class BaseSteps(WatchedOptimizer):
    """An optimizer whose steps are those of a base; its groups and state are the base's.

    Args:
        base: Any torch optimizer whose `step()` needs no closure.
        total_steps: Number of `step()` calls of the whole run, for warm-up and linear decay.
        progress: Instead of `total_steps`, a callable that returns how much of the run is done, 0 to 1.
    """

    base: Optimizer
    objective: Any
    _run_state: RunState

    def __init__(self, base: Optimizer, total_steps: int | None, progress: Callable[[], float] | None) -> None:
        self._check_base(base)
        if total_steps is not None:
            if total_steps == 0:
                raise ValueError("total_steps is 0: the loader has no batch, or there are no epochs")
            check_whole("total_steps", total_steps, least=1)
            if progress is not None:
                raise ValueError("total_steps and progress both say how much of the run is done: give one of them")
        if progress is not None and not callable(progress):
            raise ValueError(f"Invalid progress value: {progress!r}; expected a callable that gives a fraction, 0 to 1")
        self.base = base
        # torch's own constructor would build parameter groups of its own; these are the base's.
        Optimizer.__setstate__(self, {"defaults": base.defaults})
        self.total_steps = total_steps
        self.progress = progress
        self.last_lr = math.nan
        for group in base.param_groups:  # a state_dict has the same keys before the first step
            group.setdefault("scheduled_lr", group["lr"])
        self.report: WindowReport | None = None
        self._last_progress: float | None = None
        self._agreed: float | None = None  # progress that several ranks agreed on
        self._said: set[str] = set()

    def _check_base(self, base: object) -> None:
        name = type(self).__name__
        if not isinstance(base, Optimizer):
            raise TypeError(f"{name} needs a torch optimizer, for example torch.optim.AdamW(...), but got {base!r}")
        kind = type(base).__name__
        if isinstance(base, WatchedOptimizer):
            raise ValueError(f"{name} cannot watch {kind}, which judges its own steps: pass a plain one")
        for inner in vars(base).values():
            if isinstance(inner, Optimizer) and inner.state is not base.state:
                raise ValueError(
                    f"{name} cannot watch {kind}: it wraps {type(inner).__name__}, whose state an undo would not "
                    "restore. Pass a plain optimizer."
                )
        closure = inspect.signature(base.step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise ValueError(f"{name} cannot watch {kind}: its step() needs a closure")
        if any(group.get("lr") is None for group in base.param_groups):
            raise ValueError(f"{name} scales the lr of {kind}, but it has none: give it a number as its lr")
        refuse_maximize(base.param_groups)

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

    def __getattr__(self, name: str) -> Any:
        """What this class does not have, the base may: `train` and `eval` of schedule-free optimizers, for example."""
        if name.startswith("__") or "base" not in self.__dict__ or hasattr(type(self), name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            return getattr(self.base, name)
        except AttributeError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}") from None

    @_disable_dynamo
    def step(  # type: ignore[override]
        self, loss: Tensor | float | Callable[[], Any] | None = None, *, closure: Callable[[], Any] | None = None
    ) -> Any:
        """One step of the base; after the last step of a window or an epoch, the rule judges it.

        Args:
            loss: The mean loss of the batch, a scalar, or a closure as in torch, which computes the loss and its
                gradients; it is called once.
            closure: The closure, for trainers that pass it by name.

        Returns:
            The loss.
        """
        arguments: tuple[Any, ...] = (self, loss if closure is None else closure)
        keywords: dict[str, Any] = {}
        for hook in self._optimizer_step_pre_hooks.values():
            arguments, keywords = hook(self, arguments, keywords) or (arguments, keywords)
        value = loss_of(*arguments[1:], **keywords)
        if self._moves_nothing() and not self._knows_loss(value):
            self._base_step(1.0)
        else:
            self._watched_step(value)
        for post_hook in self._optimizer_step_post_hooks.values():
            post_hook(self, arguments, keywords)
        return value

    # torch would wrap `step` and fire its global hooks here and in the base's step.
    step.hooked = True  # type: ignore[attr-defined]

    @property
    @abstractmethod
    def scale(self) -> float:
        """The factor by which the rule scales the learning rate, in (0, 1]."""

    @abstractmethod
    def _watched_step(self, loss: Tensor | float | None) -> None:
        """One step whose loss is known, if it is, and what follows from it."""

    def _knows_loss(self, loss: Tensor | float | None) -> bool:
        """Whether this step has a loss; a step of torch.distributed.checkpoint has none."""
        return loss is not None

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return bool(getattr(self.base, "_step_supports_amp_scaling", False))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the base.

        Args:
            param_group: As in torch.
        """
        refuse_maximize([param_group])
        self.base.add_param_group(param_group)

    def _moves_nothing(self) -> bool:
        """Every lr and gradient is 0: torch.distributed.checkpoint builds an optimizer's state by such a step."""
        groups = self.base.param_groups
        return all(is_zero(group["lr"]) for group in groups) and not any(
            p.grad is not None and bool(p.grad.any()) for group in groups for p in group["params"]
        )

    def _base_step(self, factor: float) -> None:
        """One step of the base with every lr times `factor`; afterwards the groups have the user's own again."""
        base, groups = self.base, self.base.param_groups
        passed_on = [name for name in ("grad_scale", "found_inf") if name in self.__dict__]  # by GradScaler
        for attribute in passed_on:
            setattr(base, attribute, self.__dict__[attribute])
        users = [group["lr"] for group in groups]
        used = [lr * factor for lr in users]  # new values: the user's own tensors are left alone

        def give_back() -> None:
            for group, lr, scaled in zip(groups, users, used, strict=True):
                if group["lr"] is not lr:  # not given back yet; some bases change it themselves
                    group["lr"] = lr if group["lr"] is scaled else group["lr"] / factor

        try:
            for group, scaled in zip(groups, used, strict=True):
                group["lr"] = scaled
            base.step()
            give_back()
        except BaseException as error:  # also an interrupt while the learning rates are given back
            give_back()
            if isinstance(error, Exception) and re.search(r"\bclosure\b", str(error)):
                name = type(self).__name__
                raise ValueError(f"{name} cannot watch {type(base).__name__}: its step() needs a closure") from error
            raise
        finally:
            for attribute in passed_on:
                delattr(base, attribute)
        self._note_lr(factor)

    def _note_lr(self, factor: float) -> None:
        """Write down the learning rates that were used, for logs; schedule-free optimizers have this key, too."""
        for group in self.base.param_groups:
            group["scheduled_lr"] = group["lr"] * factor
        self.last_lr = self.base.param_groups[0]["scheduled_lr"]

    def _factor(self, steps: int) -> float:
        """The factor of the user's lr after so many steps: the rule's, and that of the schedule."""
        self._last_progress = done = self._fraction_done(steps)
        return self.scale if done is None else self.scale * schedule.factor(done)

    def _fraction_done(self, steps: int) -> float | None:
        """The fraction of the run that is done after so many steps; None if nobody knows. Call it once per step."""
        if self.total_steps is None:
            return None if self.progress is None else self._agreed_progress()
        if steps >= self.total_steps:
            self._say_once(
                f"The total_steps={self.total_steps} that you gave are done: further steps use the last, tiny, "
                f"learning rate. Give {type(self).__name__} the real number of steps."
            )
        return (min(steps, self.total_steps - 1) + 0.5) / self.total_steps

    def _agreed_progress(self) -> float:
        """Clocks differ between ranks, so several ranks agree on the least fraction when a window begins."""
        ranks = self._ranks
        if self._agreed is not None and not ranks.alone:
            return self._agreed
        done = float(self.progress())  # type: ignore[misc]
        if not 0.0 <= done:
            raise ValueError(f"progress() gave {done!r}; expected the fraction of the run that is done, 0 to 1")
        self._agreed = min(row[0] for row in ranks.gather(min(done, 1.0)))
        return self._agreed

    def _warn_about_schedules(self) -> None:
        """After the first window: is there a schedule, and only one?"""
        scheduled = self.total_steps is not None or self.progress is not None
        has_scheduler = "initial_lr" in self.param_groups[0]
        name = type(self).__name__
        if not scheduled and not has_scheduler:
            self._say_once(
                f"{name} has no schedule: the learning rate stays as you set it. Give total_steps, the number of steps "
                "of the run, or use one of torch's schedulers. Ignore this with ReduceLROnPlateau, or if you set lr."
            )
        if scheduled and has_scheduler:
            self._say_once(
                f"{name} has total_steps or progress, and torch has a scheduler on it: their factors are multiplied. "
                "Leave one of them out."
            )

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            warn(text)

    @property
    def _ranks(self) -> Ranks:
        return ranks_for(self._run_state, self.objective)

    def _take_total_steps(self, saved: dict[str, Any]) -> None:
        """What the constructor was given wins over the saved one."""
        if self.total_steps is None and self.progress is None:
            self.total_steps = saved.get("total_steps")

    def _load_steps(self, state_dict: dict[str, Any]) -> None:
        """Load the base, between the hooks that were registered here."""
        refuse_maximize(state_dict["param_groups"])
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = hook(self, state_dict) or state_dict
        self.base.load_state_dict(state_dict)
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        Optimizer.__setstate__(self, state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"


def loss_of(loss: Any = None, *, closure: Any = None) -> Tensor | float | None:
    """The loss: given as it is, or by a closure, which also computes the gradients."""
    given = loss if closure is None else closure
    if not callable(given):
        return given  # type: ignore[no-any-return]
    with torch.enable_grad():
        return given()  # type: ignore[no-any-return]


def warn_of_missing_parameters(optimizer: Optimizer, model: nn.Module) -> None:
    """Say so if some trainable parameters are not the optimizer's: an undo leaves them as they are."""
    missing, trained = missing_parameters(optimizer, model)
    if missing:
        warn(
            f"{missing} of {trained} trainable parameters of the model are in no group of "
            f"{type(optimizer).__name__}: an undo leaves them as they are. Give all of them to one optimizer."
        )
