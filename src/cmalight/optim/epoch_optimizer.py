"""The paper's methods: plain gradient steps, judged once per epoch, because their estimate f̃ is the sum over one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.optim.optimizer import Optimizer, ParamsT

from cmalight.errors import check_fraction, check_least, check_positive, check_whole
from cmalight.evaluation.norms import sum_of_squares
from cmalight.optim.epoch import Epoch
from cmalight.optim.epoch_watch import EpochWatch
from cmalight.optim.plain import gradient_step
from cmalight.optim.steps import loss_of
from cmalight.optim.watched import WatchedOptimizer, is_zero, refuse_maximize
from cmalight.rules.paper import EpochRule, Known


class EpochOptimizer(WatchedOptimizer):
    """Plain gradient steps whose epochs are judged by the rule of a subclass.

    Outside an epoch `step()` is a plain step.

    Args:
        params: Parameters or parameter groups; groups may differ in `lr` and `weight_decay`.
        settings: Constants of the whole optimizer, by name.
        lr: ζ⁰, the first learning rate.
        weight_decay: Adds (weight_decay/2) ‖w‖² to the objective.
        foreach: As in torch.optim.SGD.
        fused: As in torch.optim.SGD.
        maximize: Refused; negate the loss instead.
    """

    needs_objective: ClassVar[bool] = True
    settings: dict[str, Any]

    def __init__(
        self,
        params: ParamsT,
        settings: dict[str, Any],
        *,
        lr: float,
        weight_decay: float,
        foreach: bool | None,
        fused: bool | None,
        maximize: bool,
    ) -> None:
        refuse_maximize([{"maximize": maximize}])
        check_positive("lr", float(lr))
        check_least("weight_decay", weight_decay, 0)
        if foreach and fused:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        self.settings = settings
        self._watch = EpochWatch(self)
        defaults = {"lr": float(lr), "weight_decay": weight_decay, "foreach": foreach, "fused": fused}
        super().__init__(params, {**defaults, "differentiable": False})
        self._watch.restart(None)

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
    def known(self) -> Known | None:
        """f(w⁰), φ^k and, if it is known, f(w^k); None before the first epoch."""
        return self._watch.known

    @property
    def evaluations(self) -> int:
        """Full evaluations so far."""
        return self._watch.evaluations

    @property
    def epochs(self) -> int:
        """Epochs so far."""
        return self._watch.epochs

    @property
    def has_converged(self) -> bool:
        """Whether the learning rate has shrunk so far below rounding that no epoch will move the weights any more."""
        finest = max(torch.finfo(p.dtype).eps for group in self.param_groups for p in group["params"])
        return self.known is not None and self.zeta < 1e-3 * finest * min(self._watch.zeta_0, 1.0)

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
        if objective is not None or self.needs_objective:
            if not callable(objective):
                raise TypeError(f"epoch() needs an Objective, or a callable that gives the loss, but got {objective!r}")
            self._watch.check_objective(objective)
        return Epoch(self._watch, objective)

    def restart(self, objective: Any = None, *, lr: float | None = None) -> None:
        """Take the current weights as the new w⁰, and reset φ and the learning rate.

        Args:
            objective: A new one; f(w⁰) is evaluated at the start of the next epoch.
            lr: The new learning rate; by default the one that the run began with.

        Raises:
            RuntimeError: If it is called inside an epoch.
        """
        self._watch.refuse_inside_epoch("restart()")
        if lr is not None:
            check_positive("lr", lr)
        self.multiply_lr((self._watch.zeta_0 if lr is None else lr) / self.zeta)
        self._watch.restart(objective)

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
        loss = loss_of(closure)
        if all(is_zero(group["lr"]) for group in self.param_groups):
            return loss  # torch.distributed.checkpoint builds an optimizer's state this way; there is none here
        scaler: dict[str, Any] = {name: vars(self).get(name) for name in ("grad_scale", "found_inf")}  # of GradScaler
        factor = self._watch.step_factor(loss, scaler["found_inf"])
        for group in self.param_groups:
            options: dict[str, Any] = {name: group[name] for name in ("weight_decay", "foreach", "fused")}
            gradient_step(group["params"], group["lr"] * factor, **options, **scaler)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As in torch.

        Args:
            set_to_none: As in torch.
        """
        if self._watch.open is not None:
            self._watch.open.counts.cut()
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as in torch; follow it by `restart(objective)` if it changes the objective.

        Args:
            param_group: As in torch.

        Raises:
            RuntimeError: If it is called inside an epoch.
            ValueError: If it brings a setting of the whole optimizer, or a value is out of its range.
        """
        self._watch.refuse_inside_epoch("add_param_group()")
        refuse_maximize([param_group])
        self._refuse_settings_in([param_group])
        check_least("lr", float(param_group.get("lr", self.defaults["lr"])), 0)
        check_least("weight_decay", param_group.get("weight_decay", self.defaults["weight_decay"]), 0)
        super().add_param_group(param_group)

    def penalty(self) -> Tensor | None:
        """(weight_decay/2) ‖w‖², which belongs to every loss.

        Returns:
            The term, on the weights' device; None if there is no weight decay.
        """
        terms = [
            0.5 * group["weight_decay"] * sum_of_squares(params)
            for group in self.param_groups
            if group["weight_decay"] and (params := [p for p in group["params"] if p.requires_grad])
        ]
        return torch.stack([term.to(terms[0].device) for term in terms]).sum() if terms else None

    def _refuse_settings_in(self, groups: list[dict[str, Any]]) -> None:
        for name in self.settings:
            if any(name in group for group in groups):
                raise ValueError(f"{name} belongs to the optimizer, not to a parameter group: pass it as a keyword")

    def _saved_control(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        numbers, packed = self._watch.state_dict()
        return {**numbers, "settings": dict(self.settings)}, packed

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # those of another optimizer may lack some
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def _load_control(self, numbers: dict[str, Any] | None, snapshots: dict[str, Any] | None) -> None:
        self._watch = EpochWatch(self)
        self._watch.restart(None)
        if numbers is not None:
            self.settings = numbers["settings"]
            self._watch.load_state_dict(numbers, snapshots)

    def _load_steps(self, state_dict: dict[str, Any]) -> None:
        self._watch.refuse_inside_epoch("load_state_dict()")
        refuse_maximize(state_dict["param_groups"])
        Optimizer.load_state_dict(self, state_dict)


class ListingOptimizer(EpochOptimizer):
    """An optimizer with the constants of the paper's listing, as `CMA`; its subclasses say which rule uses them."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.5,
        *,
        theta: float = 0.75,
        tau: float = 1e-2,
        gamma: float = 1e-2,
        delta: float = 0.9,
        weight_decay: float = 0.0,
        max_extrapolations: int = 100,
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_fraction("theta", theta)
        check_positive("tau", tau)
        check_fraction("gamma", gamma)
        check_fraction("delta", delta)
        check_whole("max_extrapolations", max_extrapolations, least=0)
        settings = {"theta": theta, "tau": tau, "gamma": gamma, "delta": delta}
        options: Any = {
            "lr": lr,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "fused": fused,
            "maximize": maximize,
        }
        super().__init__(params, {**settings, "max_extrapolations": max_extrapolations}, **options)
