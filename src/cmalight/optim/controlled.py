"""Controlled: the epoch bracket and its control around any torch optimizer."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal

import torch
from torch.optim.optimizer import Optimizer, _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from cmalight.errors import check_choice, check_fraction, check_least, check_positive, check_whole
from cmalight.optim.control.arguments import check_lr, checked_constants, of_the_listing, refuse_maximize
from cmalight.optim.control.budget import Budget, Constant
from cmalight.optim.control.state import ControlState, names
from cmalight.optim.host import EpochOptimizer, plain_window
from cmalight.optim.inner.inner_state import InnerState
from cmalight.optim.inner.steps import Steps
from cmalight.rules import tolerant
from cmalight.rules.paper import PaperRule
from cmalight.rules.rule import Rule

_RULES = ("tolerant", "light", "certified")
_OF_THE_PAPER = ("tau", "gamma", "delta", "max_extrapolations", "early_rejection")
# What the control keeps in the first group, beside its state; all else there is the base's.
_SETTINGS = ("rule", *names(tolerant.Settings), *_OF_THE_PAPER)
# Optimizers whose weight decay is decoupled, but for those that say so in their groups.
_DECOUPLED = ("AdamW", "Adafactor", "Muon", "RAdamScheduleFree")
_DEFAULTS = tolerant.Settings()


class Controlled(EpochOptimizer):
    r"""Any torch optimizer under a watchdog: it raises and lowers the step size, and undoes what went wrong.

    ::

        repeat, for epochs, or parts of long ones:
            take steps of the base
            their end is too high, by a sample of the data     undo them, with the base's state;  lr ← θ lr
            else, if lr is below what is usual, or the loss has fallen far enough       lr ← g lr
        and over the last part of the budget, where there is one, lr goes to zero, step by step

    The whole listing is in docs/understand/controlled.md, what each of its parts is worth in docs/studies/control.md.

    Args:
        base: The optimizer whose steps are taken; its `lr` is set by the control, and its groups are these groups.
        lr: The first step size; None takes the base's own.
        max_epochs: How long the run is: so many epochs. None where it is not known, or limited by something else, and
            under the paper's rules, which know no budget.
        max_batches: How long the run is: so many steps.
        rule: "tolerant", the listing above; "light" or "certified", the paper's rule with that line search.
        usual: The step size that is usual for the base, which the control rises to and does not begin above; None is
            seven times the default of its class for Adam and its kin (the default itself for Prodigy and others
            that find theirs), and unknown for others; infinity is unknown.
        growth: By which the step size grows where the loss pays for it; 1 never raises it.
        tolerance: What ends higher above the lowest loss than this share of an early one is undone.
        theta: By which the step size shrinks; None is 0.5, or 0.75 under the paper's rule.
        decay: The share of the budget over which the step size goes to zero at the end.
        window: A longer epoch is judged after each so many batches.
        tau: τ of the paper's rule, as in CMALight.
        gamma: γ of the paper's rule.
        delta: δ of its line search.
        max_extrapolations: How often that may extend its step.
        early_rejection: Whether the paper's rule may end an epoch that cannot succeed any more before its last batch.

    Raises:
        TypeError: If `base` is no torch optimizer.
        ValueError: If it is one that cannot be watched, or a setting is out of its range.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from cmalight import Controlled, Objective, TensorBatches
        >>> _ = torch.manual_seed(0)
        >>> x = torch.rand(1000, 8)
        >>> loader = TensorBatches(x, x.sum(1, keepdim=True).sin(), batch_size=50)
        >>> model, loss_fn = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1)), nn.MSELoss()
        >>> optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=7e-3, eps=1e-15), max_epochs=3)
        >>> objective = Objective(model, loss_fn, loader)
        >>> for _ in range(3):
        ...     with optimizer.epoch(objective) as epoch:
        ...         for inputs, target in epoch.batches(loader):
        ...             optimizer.zero_grad()
        ...             loss = loss_fn(model(inputs), target)
        ...             loss.backward()
        ...             epoch.observe(loss, len(target))
        ...             optimizer.step()
        >>> print(epoch.report.outcome.name, optimizer.evaluations)
        KEPT 0
    """

    base: Optimizer

    def __init__(
        self,
        base: Optimizer,
        *,
        lr: float | None = None,
        max_epochs: float | None = None,
        max_batches: float | None = None,
        rule: Literal["tolerant", "light", "certified"] = "tolerant",
        usual: float | None = None,
        growth: float = _DEFAULTS.growth,
        tolerance: float = _DEFAULTS.tolerance,
        theta: float | None = None,
        decay: float = _DEFAULTS.decay,
        window: int = _DEFAULTS.window,
        tau: float = 1e-2,
        gamma: float = 1e-2,
        delta: float = 0.9,
        max_extrapolations: int = 100,
        early_rejection: bool = True,
    ) -> None:
        _check_base(base)
        check_choice("rule", rule, _RULES)
        check_least("growth", growth, 1)
        check_fraction("tolerance", tolerance)
        check_fraction("decay", decay)
        check_whole("window", window, least=1)
        if usual is not None and usual != math.inf:
            check_positive("usual", usual)
        for name, limit in {"max_epochs": max_epochs, "max_batches": max_batches}.items():
            if limit is not None:
                check_positive(name, limit)
        if rule != "tolerant" and (max_epochs is not None or max_batches is not None):
            # By keyword only: `fit` and Lightning tell every optimizer how long the run is.
            raise ValueError(f"max_epochs and max_batches are for rule='tolerant': rule={rule!r} knows no budget")
        if lr is not None:
            check_lr(lr)
        theta = (_DEFAULTS.theta if rule == "tolerant" else 0.75) if theta is None else theta
        settings = {
            "rule": rule,
            "usual": _usual_lr(base) if usual is None else float(usual),
            "growth": float(growth),
            "tolerance": float(tolerance),
            "decay": float(decay),
            "window": int(window),
            **checked_constants(theta, tau, gamma, delta, max_extrapolations),
            "early_rejection": bool(early_rejection),
        }
        own = {**settings, **asdict(ControlState()), **asdict(tolerant.Remembered())}
        if not isinstance(base, EpochOptimizer) and (clash := sorted(own.keys() & base.defaults.keys())):
            raise ValueError(f"Controlled cannot watch a base that has settings of the same names: {', '.join(clash)}")
        self.budget = Budget(max_epochs=max_epochs, max_batches=max_batches)
        Optimizer.__init__(self, [{"params": group["params"]} for group in base.param_groups], settings)
        self.defaults = {**base.defaults, **settings}  # the base's, too: schedulers of momentum look there
        base.param_groups[0].update(own)  # also over what an earlier control may have left there
        self._attach(base)
        self.control.remember(self.rule().Memory())
        if lr is not None:
            self.control.step_sizes.scale_to(float(lr))

    def _attach(self, base: Optimizer) -> None:
        """The groups and the state are the base's own objects, so that whoever changes one changes both."""
        self.base = base
        self.param_groups = base.param_groups
        self.state = base.state
        for name in _SETTINGS:
            self.param_groups[0].setdefault(name, self.defaults[name])
        self._begin_control()
        if isinstance(base, EpochOptimizer):
            base.steps_outside = -math.inf  # its steps are in our epochs

    def __getstate__(self) -> dict[str, Any]:
        kept = {"defaults": self.defaults, "base": self.base, "budget": self.budget.lasting()}
        return {**kept, "window": plain_window(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From a copy or a pickle, which bring a base, or from load_state_dict, which brings the base's state."""
        base = state.get("base")
        if base is None:
            base = self.base
            base.__setstate__(state)
        self.budget = state.get("budget") or self.__dict__.get("budget") or Budget()
        defaults = state.get("defaults", self.__dict__.get("defaults", {}))
        Optimizer.__setstate__(self, {"defaults": defaults, "state": base.state, "param_groups": base.param_groups})
        self._attach(base)
        self.held_window = state.get("window")

    def report_share(self, share: float | Callable[[], float] | None) -> None:
        """Tell what share of the run is done, where neither epochs nor batches say it, as with a time limit.

        Args:
            share: From 0 to 1: as it is now, or a callable that is asked before every step, on several ranks before
                every window; None takes it back.

        Raises:
            ValueError: If the share is not between 0 and 1.
        """
        if share is None or callable(share):
            self.budget.reported = share
            return
        if not 0.0 <= float(share) <= 1.0:
            raise ValueError(f"Invalid share value: {share!r}; expected what is done of the run, from 0 to 1")
        self.budget.reported = Constant(float(share))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the base; follow it by `restart(objective)` where it changes the objective.

        Args:
            param_group: As in torch.

        Raises:
            RuntimeError: If it is called inside an epoch.
            ValueError: If it brings a setting of the control, or maximizes.
        """
        if "base" not in self.__dict__:  # while torch's constructor runs
            Optimizer.add_param_group(self, param_group)
            return
        if self.epoch_under_way is not None:
            raise RuntimeError("add_param_group() was called inside an epoch: leave its `with` block first")
        if param_group.get("maximize"):
            refuse_maximize()
        if not isinstance(self.base, EpochOptimizer) and (own := [name for name in _SETTINGS if name in param_group]):
            raise ValueError(f"{own[0]} belongs to the optimizer, not to a parameter group: pass it to Controlled")
        self.base.add_param_group(param_group)
        self.held_window = None

    def train(self, mode: bool = True) -> None:
        """For steps outside an epoch of a base that trains at one point and is judged at another (schedule-free ones).

        An epoch switches by itself, and leaves the base where it is judged.

        Args:
            mode: Whether to go where it trains; False goes where it is judged.
        """
        if (switch := getattr(self.base, "train" if mode else "eval", None)) is not None:
            switch()
            for p in [p for p, own in self.state.items() if not own]:
                del self.state[p]  # made by looking for it; distributed checkpoints would take it for built state

    def eval(self) -> None:
        """To where the base is judged."""
        self.train(False)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of the base on the gradients as they are.

        Args:
            closure: Computes the loss and its gradients, and returns the loss; it is called once.

        Returns:
            The closure's loss, or None.

        Raises:
            RuntimeError: If nothing was observed for this step, inside an epoch.
        """
        return _step_with_hooks(self, closure) if _has_hooks(self) else super().step(closure)

    # Torch would wrap it into hooks and a record for its profiler, which the base's own step has, too.
    step.hooked = True  # type: ignore[attr-defined]

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return bool(getattr(self.base, "_step_supports_amp_scaling", False))

    def rule(self) -> Rule:
        """The tolerant one, or the paper's."""
        home = self.param_groups[0]
        if home["rule"] == "tolerant":
            return tolerant.TolerantRule(tolerant.Settings(**{name: home[name] for name in names(tolerant.Settings)}))
        certified = home["rule"] == "certified"
        return PaperRule(**of_the_listing(home), certified=certified, early_rejection=home["early_rejection"])

    def make_steps(self) -> Steps:
        """Those of the base."""
        return _StepsOfBase(self)

    def require_no_epoch(self) -> None:
        """Also finds out whether somebody has loaded a state into the base itself."""
        super().require_no_epoch()
        if self.param_groups is not self.base.param_groups:
            self._attach(self.base)

    def __repr__(self) -> str:
        return f"Controlled({self.base!r})"


_step_with_hooks = Optimizer.profile_hook_step(EpochOptimizer.step)


def _has_hooks(optimizer: Optimizer) -> bool:
    own = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return bool(own or _global_optimizer_pre_hooks or _global_optimizer_post_hooks)


def _is_unobserved(base: Optimizer) -> bool:
    """Whether what torch wraps around its step, hooks and a record for the profiler, would do nothing but take time.

    A step that somebody else has wrapped, as schedulers do, is left alone.
    """
    return (
        "step" not in vars(base)
        and getattr(type(base).step, "__code__", None) is _step_with_hooks.__code__
        and not _has_hooks(base)
        and not torch._C._autograd._profiler_enabled()
    )


class _StepsOfBase:
    """The base's own steps; a short batch is not scaled, because not every optimizer's step is linear in lr."""

    def __init__(self, optimizer: Controlled) -> None:
        self._optimizer = optimizer

    def take(self, scale: float) -> None:  # noqa: ARG002
        optimizer, base = self._optimizer, self._optimizer.base
        if optimizer.param_groups[0].get("train_mode") is False and optimizer.control.step_sizes.are_zero():
            # torch.distributed.checkpoint steps with lr=0 to have the state built; schedule-free bases refuse that.
            optimizer.train()
            base.step()
            optimizer.eval()
            return
        if optimizer.epoch_under_way is None and not optimizer.control.step_sizes.are_zero():
            optimizer.control.was_moved()  # some bases change the weights past their version counters
        passed_on = [name for name in ("grad_scale", "found_inf") if hasattr(optimizer, name)]  # GradScaler, fused
        for name in passed_on:
            setattr(base, name, getattr(optimizer, name))
        try:
            if _is_unobserved(base):
                type(base).step.__wrapped__(base)  # type: ignore[attr-defined]
            else:
                base.step()
        finally:
            for name in passed_on:
                delattr(base, name)

    def weight_decay_of(self, group: dict[str, Any]) -> float:
        """Decoupled weight decay is no term of the objective: it shrinks the weights beside the gradient step."""
        by_name = any(name in type(self._optimizer.base).__name__ for name in _DECOUPLED)
        decoupled = group.get("decoupled_weight_decay", group.get("decouple", by_name))
        return 0.0 if decoupled else float(group.get("weight_decay", 0.0))

    def remembered(self) -> InnerState | None:
        of_control = names(ControlState, tolerant.Remembered, self._optimizer.rule().Memory)
        return InnerState(self._optimizer.base, apart={"lr", *_SETTINGS, *of_control})

    def to_training_point(self) -> None:
        self._optimizer.train()

    def to_judged_point(self) -> None:
        self._optimizer.eval()


def _usual_lr(base: Optimizer) -> float:
    """Seven times the default of the class, for Adam and its kin, which step about lr in every coordinate.

    A default of that height is a factor of a step size that the base finds by itself, as Prodigy does.
    """
    lr = inspect.signature(type(base)).parameters.get("lr")
    if lr is None or not isinstance(lr.default, float) or "betas" not in base.param_groups[0]:
        return math.inf
    return lr.default if lr.default >= 0.1 else 7.0 * lr.default


def _check_base(base: object) -> None:
    if not isinstance(base, Optimizer):
        raise TypeError(f"Controlled needs a torch optimizer, for example torch.optim.Adam(...), but got {base!r}")
    if isinstance(base, Controlled):
        raise ValueError("Controlled was given a Controlled optimizer: pass the one inside it")
    if isinstance(base, torch.optim.LBFGS):
        raise ValueError("Controlled cannot watch L-BFGS: its steps need a closure and are no mini-batch steps")
    for group in base.param_groups:
        check_lr(group["lr"], zero_allowed=True)
        if group.get("maximize"):
            refuse_maximize()
