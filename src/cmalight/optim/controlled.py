"""Controlled: the epoch bracket and its control around any torch optimizer."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import Any, Literal

import torch
from torch.optim.optimizer import Optimizer

from cmalight.optim.arguments import (
    check_choice,
    check_fraction,
    check_lr,
    check_positive,
    check_whole,
    refuse_maximize,
)
from cmalight.optim.base import UNKNOWN, EpochOptimizer
from cmalight.optim.inner_state import InnerState
from cmalight.optim.report import EpochReport
from cmalight.optim.rules import PaperRule, Rule, TolerantRule
from cmalight.parallel.ranks import Ranks
from cmalight.rules import paper
from cmalight.rules.tolerant import DEFAULTS

_RULES = ("tolerant", "light", "certified")
# What the control keeps in the first group, beside its state; all else there is the base's.
_SETTINGS = (
    "rule",
    "probe",
    "tolerance",
    "patience",
    "growth",
    "theta",
    "gamma",
    "tau",
    "delta",
    "max_extrapolations",
    "early_rejection",
    "safeguard",
)
# Once the step size is this far below its largest, the inner optimizer has nothing left to give.
_SAFEGUARD_BELOW = 1e-6
_SAFEGUARD_LR = 0.5
# Optimizers whose weight decay is decoupled, but for those that say so in their groups.
_DECOUPLED = ("AdamW", "Adafactor", "Muon", "RAdamScheduleFree")


class Controlled(EpochOptimizer):
    r"""Any torch optimizer under a watchdog: it finds its step size, and an epoch that went wrong is undone.

    ::

        best = f(w⁰)
        repeat:
            run an epoch of steps of the base;  f̃ = its mean loss
            f̃ ≤ min{c best, 2 f(w⁰)}      keep w̃;  a new best: lr ← g lr;  none for P epochs: lr ← θ lr
            else                           undo the epoch, with the base's state;  lr ← θ lr

    Right after a growth c is 1.2 at most, and 1 as long as every epoch was a new best; an epoch above that is undone
    with the growth.

    The whole listing, and what each of its parts is worth, is in docs/controlled.md.

    Args:
        base: the optimizer whose steps are taken; its `lr` is set by the control, and its groups are these groups.
        lr: where the search for the first step size begins; None takes the base's own.
        rule: "tolerant", the listing above; "light" or "certified", the paper's rule with that line search.
        probe: find the first step size by trials on the first batches, which `epoch.batches` then gives several times;
            False begins with `lr` itself.
        tolerance: c; an epoch stands as long as its loss is at most c times the best, or less right after a growth.
        patience: P; so many epochs without a new best shrink the step size.
        growth: g, by which the step size grows after a new best, on probation for one epoch; 1 never raises it.
        theta: θ, by which the step size shrinks; None is 0.5, or 0.75 under the paper's rule.
        gamma: γ, the share of the predicted decrease that counts as sufficient.
        tau, max_extrapolations: of the paper's rule, as in CMALight.
        delta: δ of its line search; None is 0.5 for the safeguard, which so needs far fewer evaluations, and 0.9, the
            paper's, under the paper's rule.
        early_rejection: end an epoch that cannot stand any more before its last batch.
        safeguard: once the step size has shrunk to a millionth of its largest, go on with CMALight's own epochs under
            the certified line search, for which convergence is proved (docs/theory.md).
    """

    base: Optimizer

    def __init__(
        self,
        base: Optimizer,
        *,
        lr: float | None = None,
        rule: Literal["tolerant", "light", "certified"] = "tolerant",
        probe: bool = True,
        tolerance: float = DEFAULTS["tolerance"],
        patience: int = int(DEFAULTS["patience"]),
        growth: float = DEFAULTS["growth"],
        theta: float | None = None,
        gamma: float = 1e-2,
        tau: float = 1e-2,
        delta: float | None = None,
        max_extrapolations: int = 100,
        early_rejection: bool = True,
        safeguard: bool = True,
    ) -> None:
        _check_base(base)
        check_choice("rule", rule, _RULES)
        _check_at_least_one("tolerance", tolerance)
        _check_at_least_one("growth", growth)
        check_whole("patience", patience, least=1)
        theta = (0.5 if rule == "tolerant" else 0.75) if theta is None else theta
        delta = (0.5 if rule == "tolerant" else 0.9) if delta is None else delta
        check_fraction("theta", theta)
        check_fraction("gamma", gamma)
        check_positive("tau", tau)
        check_fraction("delta", delta)
        check_whole("max_extrapolations", max_extrapolations)
        if lr is not None:
            check_lr(lr)
        settings = {
            "rule": rule,
            "probe": bool(probe),
            "tolerance": float(tolerance),
            "patience": int(patience),
            "growth": float(growth),
            "theta": theta,
            "gamma": gamma,
            "tau": tau,
            "delta": delta,
            "max_extrapolations": int(max_extrapolations),
            "early_rejection": bool(early_rejection),
            "safeguard": bool(safeguard),
        }
        own = {**settings, **self._fresh_state()}
        if not isinstance(base, EpochOptimizer) and (clash := sorted(own.keys() & base.defaults.keys())):
            raise ValueError(f"Controlled cannot watch a base that has settings of the same names: {', '.join(clash)}")
        Optimizer.__init__(self, [{"params": group["params"]} for group in base.param_groups], settings)
        self.defaults = {**base.defaults, **settings}  # the base's, too: schedulers of momentum look there
        base.param_groups[0].update(own)  # also over what an earlier control may have left there
        self._attach(base)
        self._complete_state()
        if lr is not None:
            self._scale_lr_to(float(lr))

    def _attach(self, base: Optimizer) -> None:
        """The groups and the state are the base's own objects, so that whoever changes one changes both."""
        self.base = base
        self.param_groups = base.param_groups
        self.state = base.state

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "base": self.base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From a copy or a pickle, which bring a base, or from load_state_dict, which brings the base's state."""
        base = state.get("base")
        if base is None:
            base = self.base
            base.__setstate__(state)
        defaults = state.get("defaults", self.__dict__.get("defaults", {}))
        Optimizer.__setstate__(self, {"defaults": defaults, "state": base.state, "param_groups": base.param_groups})
        self._attach(base)
        self._complete_state()

    def _settings_of_groups(self) -> list[dict[str, Any]]:
        return [{name: self.defaults[name] for name in _SETTINGS}]  # the first group's: others are the base's alone

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the base; follow it by `restart(objective)` where it changes the objective."""
        if "base" not in self.__dict__:  # while torch's constructor runs
            Optimizer.add_param_group(self, param_group)
            return
        if self._epoch is not None:
            raise RuntimeError("add_param_group() was called inside an epoch: leave its `with` block first")
        if param_group.get("maximize"):
            refuse_maximize()
        if not isinstance(self.base, EpochOptimizer) and (own := [name for name in _SETTINGS if name in param_group]):
            raise ValueError(f"{own[0]} belongs to the optimizer, not to a parameter group: pass it to Controlled")
        self.base.add_param_group(param_group)

    def train(self, mode: bool = True) -> None:
        """For steps outside an epoch of a base that trains at one point and is judged at another (schedule-free ones).

        An epoch switches by itself, and leaves the base where it is judged.
        """
        if (switch := getattr(self.base, "train" if mode else "eval", None)) is not None:
            switch()
            for p in [p for p, own in self.state.items() if not own]:
                del self.state[p]  # made by looking for it; distributed checkpoints would take it for built state

    def eval(self) -> None:
        self.train(False)

    def _to_training_point(self) -> None:
        self.train()

    def _to_judged_point(self) -> None:
        self.eval()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return bool(getattr(self.base, "_step_supports_amp_scaling", False)) and not self._control["safeguarded"]

    def _inner_step(self, scale: float) -> None:
        """The base's own step; a short batch is not scaled, because not every optimizer's step is linear in lr."""
        if self._control["safeguarded"]:
            super()._inner_step(scale)
            return
        if self._control.get("train_mode") is False and self._cannot_move():
            # torch.distributed.checkpoint steps with lr=0 to have the state built; schedule-free bases refuse that.
            self.train()
            self.base.step()
            self.eval()
            return
        if self._epoch is None and not self._cannot_move():
            self._control["f_current"] = UNKNOWN  # some bases change the weights past their version counters
        passed_on = [name for name in ("grad_scale", "found_inf") if hasattr(self, name)]  # GradScaler, fused steps
        for name in passed_on:
            setattr(self.base, name, getattr(self, name))
        try:
            self.base.step()
        finally:
            for name in passed_on:
                delattr(self.base, name)

    def _weight_decay_of(self, group: dict[str, Any]) -> float:
        """Decoupled weight decay is no term of the objective: it shrinks the weights beside the gradient step."""
        by_name = any(name in type(self.base).__name__ for name in _DECOUPLED)
        decoupled = group.get("decoupled_weight_decay", group.get("decouple", by_name))
        return 0.0 if decoupled else float(group.get("weight_decay", 0.0))

    def _inner_state(self) -> InnerState:
        return InnerState(self.base, apart={"lr", *_SETTINGS, *self._fresh_state()})

    def _wants_probe(self) -> bool:
        state = self._control
        return bool(state["probe"] and not state["probed"] and not state["epochs"])

    def _usual_lr(self) -> float:
        """The default of the base's class, for Adam and its kin.

        They step about lr in every coordinate: far above it they may gain most in a few batches, and ruin most.
        """
        lr = inspect.signature(type(self.base)).parameters.get("lr")
        if lr is None or not isinstance(lr.default, float) or "betas" not in self.param_groups[0]:
            return math.inf
        return lr.default

    def _rule(self) -> Rule:
        state = self._control
        if state["safeguarded"]:
            return PaperRule(state, certified=True)
        if state["rule"] == "tolerant":
            return TolerantRule(state)
        return PaperRule(state, certified=state["rule"] == "certified")

    def _begin(self, objective: Any, model: torch.nn.Module | None, ranks: Ranks) -> tuple[float, paper.Known]:
        if self.param_groups is not self.base.param_groups:  # somebody loaded a state into the base itself
            self._attach(self.base)
            self._complete_state()
        state = self._control
        entering_safeguard = state["safeguarded"] and state["f_0"] == UNKNOWN
        begun = super()._begin(objective, model, ranks)
        if entering_safeguard:  # the anchor made everything anew, but this
            state.update({"safeguarded": 1, "probed": 1})
        return begun

    def _commit(self, inner: paper.InnerCycle, decision: paper.Decision, *, samples: float) -> EpochReport:
        report = super()._commit(inner, decision, samples=samples)
        state = self._control
        state["largest_lr"] = max(state["largest_lr"], inner.zeta)
        if self._needs_safeguard():
            # What follows is a run of CMALight from these weights: f(w⁰) is evaluated when the next epoch begins.
            self._scale_lr_to(_SAFEGUARD_LR)
            state.update({"safeguarded": 1, "f_0": UNKNOWN})
            self.base.state.clear()  # it would only grow stale
            return replace(report, next_lr=self._zeta())
        return report

    def _needs_safeguard(self) -> bool:
        state = self._control
        active = state["safeguard"] and state["rule"] == "tolerant" and not state["safeguarded"]
        return bool(active and self._zeta() <= _SAFEGUARD_BELOW * state["largest_lr"])

    def _fresh_state(self) -> dict[str, float]:
        return {**super()._fresh_state(), "probed": 0, "largest_lr": 0.0, "safeguarded": 0}

    def __repr__(self) -> str:
        return f"Controlled({self.base!r})"


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


def _check_at_least_one(name: str, value: Any) -> None:
    check_positive(name, value)
    if value < 1.0:
        raise ValueError(f"Invalid {name} value: {value!r}; expected a number >= 1")
