"""The paper's methods: the window is an epoch, because their estimate f̃ is the sum of the losses of one."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.optim.optimizer import Optimizer, ParamsT, _device_dtype_check_for_fused
from torch.optim.sgd import sgd

from cmalight.errors import check_fraction, check_least, check_positive, check_whole
from cmalight.evaluation.norms import sum_of_squares
from cmalight.optim.epoch import Epoch
from cmalight.optim.host import WindowOptimizer, attributes_to_copy, is_zero, modules_of, refuse_maximize
from cmalight.optim.window import EpochWindow, Window
from cmalight.rules.epochs import EpochRule, Known
from cmalight.rules.paper import Constants

# After so many epochs that moved nothing, or that changed neither φ nor ζ, the user is told.
_STILL = 30


class EpochOptimizer(WindowOptimizer):
    """Plain gradient steps whose epochs are judged by the rule of a subclass.

    Outside an epoch `step()` is a plain step.

    Args:
        params: Parameters or parameter groups; groups may differ in `lr` and `weight_decay`.
        defaults: Of the groups; `lr`, `weight_decay`, `foreach` and `fused` are among them.
        settings: Of the whole optimizer, by name.
        maximize: Refused where it is true.
    """

    needs_objective: ClassVar[bool] = True
    window_type: ClassVar[type[Window]] = EpochWindow
    settings: dict[str, Any]

    def __init__(self, params: ParamsT, defaults: dict[str, Any], settings: dict[str, Any], *, maximize: bool) -> None:
        refuse_maximize([{"maximize": maximize}])
        check_positive("lr", float(defaults["lr"]))
        check_least("weight_decay", defaults["weight_decay"], 0)
        if defaults["foreach"] and defaults["fused"]:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        self.settings = settings
        super().__init__(params, {**defaults, "lr": float(defaults["lr"]), "differentiable": False})
        self._control_begins()

    def _control_begins(self) -> None:
        self.window = None
        self.current_epoch: Epoch | None = None
        self.known: Known | None = None
        self.sample_first: float | None = None  # the sample's loss at w⁰, for a rule that confirms by it
        self.zeta_0 = self.zeta
        self.epochs = 0
        self.samples = 0.0  # of a whole epoch on this rank; 0 where nobody knows yet
        self.evaluations = 0
        self.reported = 0  # of these, in the reports so far
        self.unmoved = 0  # epochs in a row that were rolled back
        self.unchanged = 0  # epochs in a row that changed neither φ nor ζ
        self._objective: Any = None
        self._seen: tuple[Any, ...] | None = None
        self.watch()

    @abstractmethod
    def rule(self) -> EpochRule:
        """The rule that judges an epoch, with the current settings.

        Returns:
            The rule, which is asked for anew for each epoch.
        """

    @property
    def zeta(self) -> float:
        """ζ: the largest lr of the groups."""
        return max(float(group["lr"]) for group in self.param_groups)

    @property
    def has_converged(self) -> bool:
        """Whether the learning rate has shrunk so far below rounding that no epoch will move the weights any more."""
        finest = max(torch.finfo(p.dtype).eps for p in self.run_state.parameters)
        return self.known is not None and self.zeta < 1e-3 * finest * min(self.zeta_0, 1.0)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return all(group["fused"] for group in self.param_groups)

    def epoch(self, objective: Any) -> Epoch:
        """The boundary of one epoch: `with optimizer.epoch(objective) as epoch:`.

        Args:
            objective: An `Objective`, or any callable that gives the mean loss per sample at the current weights.

        Returns:
            What to enter, once.

        Raises:
            TypeError: If the objective cannot be called.
            RuntimeError: If it is another objective than in the epoch before; `restart` takes a new one.
        """
        if objective is None and not self.needs_objective:
            return Epoch(self, None)
        if not callable(objective):
            raise TypeError(f"epoch() needs an Objective, or a callable that gives the loss, but got {objective!r}")
        if self.known is not None and self._objective is not None and not _are_alike(self._objective, objective):
            raise RuntimeError(
                "This is another objective than that of the epoch before, so f(w⁰) and φ do not belong to it: "
                "call optimizer.restart(objective) first"
            )
        return Epoch(self, objective)

    def restart(self, objective: Any = None, *, lr: float | None = None) -> None:
        """Take the current weights as the new w⁰, and reset φ and the learning rate.

        Args:
            objective: A new one; f(w⁰) is evaluated at the start of the next epoch.
            lr: The new learning rate; by default the one that the run began with.

        Raises:
            RuntimeError: If it is called inside an epoch.
        """
        self.refuse_inside_epoch("restart()")
        if lr is not None:
            check_positive("lr", lr)
        factor = (self.zeta_0 if lr is None else lr) / self.zeta
        self.multiply_lr(factor)
        self._objective, self.known, self.sample_first = objective, None, None
        self.zeta_0, self.samples, self.unmoved, self.unchanged = self.zeta, 0.0, 0, 0

    def multiply_lr(self, factor: float) -> None:
        """All groups shrink together, so their ratios stay.

        Args:
            factor: ζ^{k+1}/ζ^k.
        """
        if factor != 1.0:
            for group in self.param_groups:
                group["lr"] = group["lr"] * factor

    @_disable_dynamo
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One gradient step; inside an epoch a short batch takes a shorter one.

        Args:
            closure: Computes the loss and its gradients, and returns the loss; it is called once.

        Returns:
            The closure's loss, or None.

        Raises:
            RuntimeError: If nothing was observed for this step, inside an epoch.
        """
        loss = None
        epoch = self.current_epoch
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            if epoch is not None and loss is not None and not epoch.window.counts.pending:
                epoch.observe(loss, epoch.size_of_last_batch())
        factor = 1.0
        if all(is_zero(group["lr"]) for group in self.param_groups):
            return loss  # torch.distributed.checkpoint builds an optimizer's state this way; there is none here
        if epoch is not None:
            window = epoch.window
            factor = window.counts.take()
            if (found_inf := getattr(self, "found_inf", None)) is not None:
                window.skips(found_inf)
            window.steps += 1
        elif self.known is not None:
            self.known = Known(self.known.f_0, self.known.phi, None)
        self._gradient_step(factor)
        return loss

    @torch.no_grad()
    def _gradient_step(self, factor: float) -> None:
        """By torch's own functional SGD: subclassing SGD would fire hooks twice."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None and p.requires_grad]
            if group["fused"]:
                for p in params:
                    _device_dtype_check_for_fused(p)
            sgd(
                params,
                [p.grad for p in params],
                [None] * len(params),
                has_sparse_grad=any(p.grad.is_sparse for p in params),
                foreach=group["foreach"],
                fused=group["fused"],
                grad_scale=getattr(self, "grad_scale", None),
                found_inf=getattr(self, "found_inf", None),
                weight_decay=group["weight_decay"],
                momentum=0.0,
                lr=group["lr"] * factor,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As in torch.

        Args:
            set_to_none: As in torch.
        """
        if self.current_epoch is not None:
            self.current_epoch.window.counts.cut()
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as in torch; follow it by `restart(objective)` where it changes the objective.

        Args:
            param_group: As in torch.

        Raises:
            RuntimeError: If it is called inside an epoch.
            ValueError: If it brings a setting of the whole optimizer, or a value is out of its range.
        """
        if "current_epoch" in self.__dict__:
            self.refuse_inside_epoch("add_param_group()")
        refuse_maximize([param_group])
        for name in self.settings:
            if name in param_group:
                raise ValueError(f"{name} belongs to the optimizer, not to a parameter group: pass it as a keyword")
        check_least("lr", float(param_group.get("lr", self.defaults["lr"])), 0)
        check_least("weight_decay", param_group.get("weight_decay", self.defaults["weight_decay"]), 0)
        super().add_param_group(param_group)

    def penalty(self) -> Tensor | None:
        """(weight_decay/2) ‖w‖², which belongs to every loss.

        Returns:
            The term, on the weights' device; None where there is no weight decay.
        """
        terms = [
            0.5 * group["weight_decay"] * sum_of_squares(params)
            for group in self.param_groups
            if group["weight_decay"] and (params := [p for p in group["params"] if p.requires_grad])
        ]
        return torch.stack([term.to(terms[0].device) for term in terms]).sum() if terms else None

    def refuse_inside_epoch(self, call: str) -> None:
        """Raise where an epoch is open.

        Args:
            call: What was called.

        Raises:
            RuntimeError: If an epoch is open.
        """
        if self.current_epoch is not None:
            raise RuntimeError(f"{call} was called inside an epoch: leave its `with` block first")

    def adopt(self, objective: Any) -> None:
        """Take the objective for this epoch and those that follow, and a window that was saved inside one.

        Args:
            objective: As given to `epoch`.
        """
        self._objective = objective
        self.watch(*modules_of(objective))
        self.unpack_window()
        if self.window is None or not self.window.steps:
            self.open_window()

    def forget_if_changed(self) -> None:
        """f(w^k) is not known any more where somebody else has changed the weights, or the weight decay."""
        if self.known is not None and self._seen not in (None, self._what_is_seen()):
            self.known = Known(self.known.f_0, self.known.phi, None)

    def remember_what_is_seen(self) -> None:
        """f(w^k) belongs to the weights and the weight decay as they are now."""
        self._seen = self._what_is_seen()

    def _what_is_seen(self) -> tuple[Any, ...]:
        weights = [*self.run_state.parameters, *(p for module in self.run_state.modules for p in module.parameters())]
        return sum(p._version for p in weights), *(group["weight_decay"] for group in self.param_groups)

    def warn_if_stalled(self, *, cycles: bool, advice: str) -> None:
        """Say once that epochs move nothing, or go round in a circle.

        Args:
            cycles: Whether to warn of epochs that change neither φ nor ζ.
            advice: What to try.
        """
        if self.unmoved == _STILL or (cycles and self.unchanged == _STILL):
            what = "was undone" if self.unmoved == _STILL else "changed neither the loss to beat nor the learning rate"
            warnings.warn(f"Each of the last {_STILL} epochs {what}: training has stalled. {advice}", stacklevel=4)

    def control_state(self) -> dict[str, Any]:
        """What is known between epochs, as plain numbers."""
        known = None if self.known is None else [self.known.f_0, self.known.phi, self.known.f_current]
        names = ("sample_first", "zeta_0", "epochs", "samples", "evaluations", "reported", "unmoved", "unchanged")
        return {"known": known, **{name: getattr(self, name) for name in names}, "settings": dict(self.settings)}

    def load_control_state(self, saved: dict[str, Any] | None) -> None:
        """Take what `control_state` gave."""
        self._control_begins()
        if saved is None:
            return
        known = saved.pop("known")
        self.known = None if known is None else Known(*known)
        self.settings = saved.pop("settings")
        for name, value in saved.items():
            setattr(self, name, value)

    def load_stepper(self, state_dict: dict[str, Any]) -> None:
        """Load the groups."""
        self.refuse_inside_epoch("load_state_dict()")
        refuse_maximize(state_dict["param_groups"])
        Optimizer.load_state_dict(self, state_dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**attributes_to_copy(self), "_objective": None, "current_epoch": None, "_seen": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)


def checked_settings(theta: float, tau: float, gamma: float, delta: float, max_extrapolations: int) -> dict[str, Any]:
    """Line 1 of the listing.

    Raises:
        ValueError: If a constant is out of its range.
    """
    check_fraction("theta", theta)
    check_positive("tau", tau)
    check_fraction("gamma", gamma)
    check_fraction("delta", delta)
    check_whole("max_extrapolations", max_extrapolations, least=0)
    return {"theta": theta, "tau": tau, "gamma": gamma, "delta": delta, "max_extrapolations": max_extrapolations}


def of_the_listing(settings: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a rule that follows the listing."""
    return {
        "constants": Constants(settings["theta"], settings["tau"], settings["gamma"]),
        "delta": settings["delta"],
        "max_extrapolations": settings["max_extrapolations"],
    }


def _are_alike(one: Any, other: Any) -> bool:
    return one is other or bool(getattr(one, "is_like", lambda _: False)(other))
