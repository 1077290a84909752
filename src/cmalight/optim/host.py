"""What hosts the bracket: a torch optimizer whose epochs are judged by a rule."""

from __future__ import annotations

import copy
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch.optim.optimizer import Optimizer, ParamsT

from cmalight.errors import check_least
from cmalight.optim.bracket.epoch import Epoch
from cmalight.optim.bracket.window import Window
from cmalight.optim.control import stalls
from cmalight.optim.control.arguments import check_lr, refuse_maximize
from cmalight.optim.control.budget import Budget
from cmalight.optim.control.control import Control
from cmalight.optim.control.report import EpochReport
from cmalight.optim.control.state import UNKNOWN, ControlState, complete, require_free_names
from cmalight.optim.inner.inner_state import parameters_of
from cmalight.optim.inner.steps import GradientSteps, Steps
from cmalight.parallel.ranks import ranks_for
from cmalight.rules.rule import Rule

# A few steps outside an epoch have their reasons: torch.distributed.checkpoint builds an optimizer's state by one.
_STEPS_OUTSIDE = 20


# What wrappers that know torch's methods alone are taught to pass on.
_PASSED_ON = ("epoch", "restart", "settle", "evaluations", "budget", "report_share")


class EpochOptimizer(Optimizer):
    """A torch optimizer whose epochs are judged; subclasses say by which rule.

    Outside an epoch `step()` is a plain step.

    Args:
        params: Parameters or parameter groups, as for any torch optimizer.
        defaults: Of the groups; `lr`, `weight_decay`, `foreach` and `fused` have to be among them.
        maximize: Refused where it is true: a control goes down.

    Attributes:
        control: What is remembered between epochs.
        steps: What a step is.
        budget: How long the run is, as far as the rule wants to know.
        epoch_under_way: The bracket that is open.
        held_window: What the next epoch goes on with, where the last one was too short to be judged.
        steps_outside: How many steps were taken outside any epoch.
    """

    control: Control
    steps: Steps
    budget: Budget
    epoch_under_way: Epoch | None
    held_window: Window | dict[str, Any] | None
    steps_outside: float
    # Settings of the whole optimizer, not of a parameter group.
    _shared: ClassVar[tuple[str, ...]] = ()
    # Whether lr is the control's, so that a scheduler that raises it undoes what the control decided.
    owns_lr: ClassVar[bool] = True
    # Whether there is something to evaluate.
    needs_objective: ClassVar[bool] = True

    def __init__(self, params: ParamsT, defaults: dict[str, Any], *, maximize: bool = False) -> None:
        if maximize:
            refuse_maximize()
        check_lr(defaults["lr"])
        if defaults["foreach"] and defaults["fused"]:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        super().__init__(params, {**defaults, "lr": float(defaults["lr"]), "differentiable": False})
        self._complete()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._complete()

    def _complete(self) -> None:
        """Everything that a fresh, a copied and a loaded optimizer need and torch does not carry along."""
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        self._begin_control()

    def _begin_control(self) -> None:
        memory = self.rule().Memory
        require_free_names(memory, self.defaults)
        self.steps = self.make_steps()
        self.control = Control(self)
        self.budget = self.__dict__.get("budget") or Budget()
        self.epoch_under_way = None
        self.held_window = None
        self.steps_outside = 0
        complete(self.param_groups[0], ControlState)
        complete(self.param_groups[0], memory)
        _teach_wrappers()

    @abstractmethod
    def rule(self) -> Rule:
        """By what an epoch is judged, with the settings as they are now.

        Returns:
            The rule, which is asked for anew for each epoch.
        """

    def make_steps(self) -> Steps:
        """What a step is: by default a gradient step. Asked for again where parameters were added or a state loaded.

        Returns:
            What `steps` becomes.
        """
        return GradientSteps(self)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """What GradScaler asks: whether step() itself unscales and skips, which torch's fused step alone does."""
        return all(group["fused"] for group in self.param_groups)

    def state_dict(self) -> dict[str, Any]:
        """As in torch; between short epochs that are judged together with where they began, under "window".

        Returns:
            What `load_state_dict` takes.
        """
        content = super().state_dict()
        if (window := plain_window(self)) is not None:
            content["window"] = window
        return content

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch; not inside an epoch.

        Args:
            state_dict: What `state_dict` gave.

        Raises:
            RuntimeError: If it is called inside an epoch.
        """
        if self.epoch_under_way is not None:
            raise RuntimeError("load_state_dict() was called inside an epoch: leave its `with` block first")
        if any(group.get("maximize") for group in state_dict["param_groups"]):
            refuse_maximize()
        super().load_state_dict(state_dict)
        self.held_window = copy.deepcopy(state_dict.get("window"))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as in torch; follow it by `restart(objective)` where it changes the objective.

        Args:
            param_group: As in torch.

        Raises:
            RuntimeError: If it is called inside an epoch.
            ValueError: If it brings a setting of the whole optimizer, or a value is out of its range.
        """
        if getattr(self, "epoch_under_way", None) is not None:
            raise RuntimeError("add_param_group() was called inside an epoch: leave its `with` block first")
        if param_group.get("maximize"):
            refuse_maximize()
        for name in self._shared:
            if param_group.get(name, self.defaults[name]) != self.defaults[name]:
                raise ValueError(f"{name} belongs to the optimizer, not to a parameter group: pass it as a keyword")
        check_lr(param_group.get("lr", self.defaults["lr"]), zero_allowed=True)
        check_least("weight_decay", param_group.get("weight_decay", self.defaults["weight_decay"]), 0)
        super().add_param_group(param_group)
        if "steps" in self.__dict__:
            self.steps = self.make_steps()  # which may look at every parameter once

    @property
    def evaluations(self) -> int:
        """How many full evaluations of the objective have been made so far."""
        return int(self.control.state.evaluations)

    @property
    def has_converged(self) -> bool:
        """Whether the step size has shrunk so far below rounding that no epoch will move the weights any more."""
        return stalls.has_converged(self.control)

    def epoch(self, objective: Any, *, model: nn.Module | None = None, process_group: Any = None) -> Epoch:
        """The bracket for one epoch: `with optimizer.epoch(objective) as epoch:`.

        Args:
            objective: An `Objective`, or any callable that gives the mean loss per sample at the current weights.
            model: Whose buffers go back with the weights; by default `objective.model`, where there is one.
            process_group: The ranks that share the epoch; by default the objective's (docs/guides/distributed.md).

        Returns:
            The bracket, to be entered once.

        Raises:
            TypeError: If the objective cannot be called.
        """
        require_objective(self, objective)
        return Epoch(self, objective, model, process_group)

    def restart(self, objective: Any, *, lr: float | None = None) -> None:
        """Anchor anew at the current weights: f(w⁰), φ, and the step size.

        Args:
            objective: As in `epoch`.
            lr: The new step size; by default the one that the run began with.

        Raises:
            RuntimeError: If it is called inside an epoch.
            ValueError: If the objective is not finite here.
        """
        if self.epoch_under_way is not None:
            raise RuntimeError(
                "restart() was called inside an epoch: leave the `with optimizer.epoch(...)` block first"
            )
        require_objective(self, objective)
        if lr is not None:
            check_lr(lr)
        self.steps.to_judged_point()
        self.held_window = None
        control = self.control
        before, begun_with = control.step_sizes.largest(), control.state.zeta_0
        control.step_sizes.scale_to(float(lr) if lr is not None else begun_with if begun_with != UNKNOWN else before)
        try:
            control.anchor(objective, ranks_for(objective), self.rule())
        except BaseException:
            control.step_sizes.scale_to(before)
            raise

    def settle(
        self, objective: Any, *, model: nn.Module | None = None, process_group: Any = None
    ) -> EpochReport | None:
        """Judge what the last epochs have left open; for a run that ends before its budget does.

        Epochs of few batches are judged several at once, the last ones at the end of the budget. Of several ranks all
        have to call it.

        Args:
            objective: As in `epoch`.
            model: As in `epoch`.
            process_group: As in `epoch`.

        Returns:
            What they came to; None where nothing was open.

        Raises:
            RuntimeError: If it is called inside an epoch.
        """
        self.require_no_epoch()
        is_alone = ranks_for(objective, model, process_group).alone
        if (self.held_window is None and is_alone) or not self.rule().judges_parts or self.control.state.f_0 == UNKNOWN:
            return None
        with self.epoch(objective, model=model, process_group=process_group) as epoch:
            return epoch.cut_short()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As in torch.

        Args:
            set_to_none: As in torch.
        """
        if set_to_none and not torch.compiler.is_compiling():
            # Torch's own takes a multiple of this for its profiler's record, on the path of every batch.
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad = None
        else:
            super().zero_grad(set_to_none)
        if self.epoch_under_way is not None:
            self.epoch_under_way.window.counts.cut()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on the gradients as they are; inside an epoch a short batch takes a shorter gradient step.

        Args:
            closure: Computes the loss and its gradients, and returns the loss; it is called once.

        Returns:
            The closure's loss, or None.

        Raises:
            RuntimeError: If nothing was observed for this step, inside an epoch.
        """
        loss = None
        if closure is not None:
            loss = self._run_closure(closure)
            if loss is None and self._batch_was_left_out():
                return None
        scale = _untraced(_begin_step, self)
        if scale is not None:
            self.steps.take(scale)
            _untraced(_end_step, self)
        return loss

    def _run_closure(self, closure: Callable[[], Any]) -> Any:
        with torch.enable_grad():
            return closure() if self.epoch_under_way is None else self.epoch_under_way.observe_closure(closure)

    def _batch_was_left_out(self) -> bool:
        """A closure without loss and without gradients, as Lightning has where `training_step` returns None."""
        epoch = self.epoch_under_way
        return epoch is not None and epoch.is_open and all(p.grad is None for p in self.control.parameters())

    # What the bracket asks.

    def require_no_epoch(self) -> None:
        """One epoch at a time; one whose block Ctrl-C left half-way is tidied up.

        Raises:
            RuntimeError: If one is under way.
        """
        epoch = self.epoch_under_way
        if epoch is None:
            return
        if epoch.is_in_the_way:
            raise RuntimeError("An epoch is under way already: leave its `with` block before you begin another")
        epoch.recover()


def plain_window(optimizer: EpochOptimizer) -> dict[str, Any] | None:
    """The window that the last epoch left open, as tensors and numbers; None where there is none."""
    window = optimizer.held_window
    return window.plain(parameters_of(optimizer)) if isinstance(window, Window) else window


def require_objective(optimizer: Optimizer, objective: Any) -> None:
    """Anything that can be called is one."""
    if not callable(objective):
        raise TypeError(
            f"{type(optimizer).__name__} needs an objective, for example Objective(model, loss_fn, loader), "
            f"but got {objective!r}"
        )


def _begin_step(optimizer: EpochOptimizer) -> float | None:
    epoch = optimizer.epoch_under_way
    if epoch is not None:
        return epoch.begins_step(getattr(optimizer, "found_inf", None))
    optimizer.steps_outside += 1
    if optimizer.steps_outside == _STEPS_OUTSIDE and not optimizer.control.state.epochs:
        warnings.warn(
            f"{_STEPS_OUTSIDE} steps of {type(optimizer).__name__} were outside any epoch, where nothing is judged and "
            "nothing can be undone: put the loop over the batches into `with optimizer.epoch(objective) as epoch:` "
            "(docs/guides/loop.md); with Lightning, pass WatchdogCallback() to the Trainer "
            "(docs/guides/integrations.md)",
            RuntimeWarning,
            stacklevel=6,
        )
    return 1.0


def _end_step(optimizer: EpochOptimizer) -> None:
    if optimizer.epoch_under_way is not None:
        optimizer.epoch_under_way.ended_step()


def _untraced(bookkeeping: Callable[[EpochOptimizer], Any], optimizer: EpochOptimizer) -> Any:
    """Bookkeeping in Python is kept out of what torch.compile traces: it would recompile at every step."""
    if torch.compiler.is_compiling():
        return _never_traced(bookkeeping, optimizer)
    return bookkeeping(optimizer)


@_disable_dynamo  # of torch's own optimizers; torch.compiler.disable would import the whole compiler with the package
def _never_traced(bookkeeping: Callable[[EpochOptimizer], Any], optimizer: EpochOptimizer) -> Any:
    return bookkeeping(optimizer)


class _PassedOn:
    """An attribute of a wrapper that is the wrapped optimizer's; where that has none, neither has the wrapper."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, wrapper: Any, owner: type) -> Any:
        return self if wrapper is None else getattr(wrapper.optimizer, self._name)

    def __set__(self, wrapper: Any, value: Any) -> None:
        setattr(wrapper.optimizer, self._name, value)


def _teach_wrappers() -> None:
    """Accelerate's `prepare` puts an optimizer into a class that hides everything but torch's own methods.

    It is asked for whenever an optimizer is made, copied or loaded, and Accelerate loads what it wraps.
    """
    wrapper = getattr(sys.modules.get("accelerate.optimizer"), "AcceleratedOptimizer", None)
    for name in _PASSED_ON:
        if wrapper is not None and not hasattr(wrapper, name):
            setattr(wrapper, name, _PassedOn(name))
