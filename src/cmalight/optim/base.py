"""What CMALight, CMA and IG share: a plain gradient step, the epoch bracket, and control state that travels."""

from __future__ import annotations

import logging
import math
import numbers
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.optim.optimizer import Optimizer, ParamsT, _device_dtype_check_for_fused
from torch.optim.sgd import sgd

from cmalight.evaluation.norms import sum_of_squares
from cmalight.optim.arguments import check_lr, check_not_negative, refuse_maximize
from cmalight.optim.epoch import Epoch
from cmalight.optim.inner_state import InnerState
from cmalight.optim.report import EpochReport
from cmalight.optim.rules import Rule, as_state
from cmalight.optim.settling import refuse_outer_join, require_same_state
from cmalight.optim.wrappers import teach_wrappers
from cmalight.parallel.ranks import Ranks, ranks_for
from cmalight.parallel.shards import local
from cmalight.rules import paper
from cmalight.rules.tolerant import Watch

logger = logging.getLogger("cmalight")

UNKNOWN = math.inf  # stands for a function value that is not known; unlike NaN it equals itself after a round trip

# What the control remembers from epoch to epoch, in param_groups[0]: there it is saved, loaded and copied by torch.
_FRESH_STATE: dict[str, float] = {
    "f_0": UNKNOWN,  # f(w⁰)
    "phi": UNKNOWN,  # φ^k
    "f_current": UNKNOWN,  # f(w^k)
    "zeta_0": UNKNOWN,  # ζ⁰
    "epochs": 0,  # how many epochs were concluded
    "samples": 0,  # N
    "epochs_still": 0,  # how many epochs in a row ended at w^k
    "stall_reported": 0,
    "negative_loss_seen": 0,
    "evaluations": 0,
    "evaluations_reported": 0,
    **as_state(Watch.from_start(UNKNOWN)),
}
_STALL_PATIENCE = 30


class EpochOptimizer(Optimizer):
    """A torch optimizer whose epochs are judged; subclasses say how by `_decide`.

    Outside an epoch `step()` is a plain gradient step.
    """

    # Settings of the whole optimizer, not of a parameter group.
    _shared: ClassVar[tuple[str, ...]] = ()
    # Whether lr is the control's, so that a scheduler that raises it undoes what the control decided.
    _owns_lr: ClassVar[bool] = True

    def __init__(self, params: ParamsT, defaults: dict[str, Any], *, maximize: bool = False) -> None:
        if maximize:
            refuse_maximize()
        if defaults["foreach"] and defaults["fused"]:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        super().__init__(params, {**defaults, "differentiable": False})
        self._complete_state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._complete_state()

    def _complete_state(self) -> None:
        """Everything that a fresh, a copied and a loaded optimizer need and torch does not carry along."""
        for group, settings in zip(self.param_groups, self._settings_of_groups(), strict=False):
            for name, value in settings.items():
                group.setdefault(name, value)
        for name, value in self._fresh_state().items():
            self._control.setdefault(name, value)
        self._epoch: Epoch | None = None
        self._fused_checked = False
        self._circumstances: tuple[float, ...] | None = None
        self._join_mark: object = None
        self._lr_left: list[float] = []  # as the last epoch left it
        self._lr_warned = False
        teach_wrappers()

    def _settings_of_groups(self) -> list[dict[str, Any]]:
        return [self.defaults] * len(self.param_groups)

    def _fresh_state(self) -> dict[str, float]:
        return _FRESH_STATE

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """What GradScaler asks: whether step() itself unscales and skips, which torch's fused step alone does."""
        return all(group["fused"] for group in self.param_groups)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._epoch is not None:
            raise RuntimeError("load_state_dict() was called inside an epoch: leave its `with` block first")
        if any(group.get("maximize") for group in state_dict["param_groups"]):
            refuse_maximize()
        super().load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as in torch; follow it by `restart(objective)` where it changes the objective."""
        if getattr(self, "_epoch", None) is not None:
            raise RuntimeError("add_param_group() was called inside an epoch: leave its `with` block first")
        if param_group.get("maximize"):
            refuse_maximize()
        for name in self._shared:
            if param_group.get(name, self.defaults[name]) != self.defaults[name]:
                raise ValueError(f"{name} belongs to the optimizer, not to a parameter group: pass it as a keyword")
        check_lr(param_group.get("lr", self.defaults["lr"]), zero_allowed=True)
        check_not_negative("weight_decay", param_group.get("weight_decay", self.defaults["weight_decay"]))
        super().add_param_group(param_group)
        self._fused_checked = False

    @property
    def evaluations(self) -> int:
        """How many full evaluations of the objective have been made so far."""
        return int(self._control["evaluations"])

    def epoch(self, objective: Any, *, model: nn.Module | None = None, process_group: Any = None) -> Epoch:
        """The bracket for one epoch: `with optimizer.epoch(objective) as epoch:`.

        Args:
            objective: an `Objective`, or any callable that gives the mean loss per sample at the current weights.
            model: whose buffers go back with the weights; by default `objective.model`, where there is one.
            process_group: the ranks that share the epoch; by default the objective's (docs/distributed.md).
        """
        self._require_objective(objective)
        return Epoch(self, objective, model, process_group)

    def restart(self, objective: Any, *, lr: float | None = None) -> None:
        """Anchor anew at the current weights: f(w⁰), φ, and the step size, by default the one it began with."""
        if self._epoch is not None:
            raise RuntimeError(
                "restart() was called inside an epoch: leave the `with optimizer.epoch(...)` block first"
            )
        self._require_objective(objective)
        if lr is not None:
            check_lr(lr)
        self._to_judged_point()
        f_0 = self._evaluate_start(objective, ranks_for(objective))
        begun_with = self._control["zeta_0"] if self._control["zeta_0"] != UNKNOWN else self._zeta()
        self._scale_lr_to(begun_with if lr is None else float(lr))
        self._lr_left = []
        self._anchor(f_0, objective)

    def _require_objective(self, objective: Any) -> None:
        if not callable(objective):
            raise TypeError(
                f"{type(self).__name__} needs an objective, for example Objective(model, loss_fn, loader), "
                f"but got {objective!r}"
            )

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        if self._epoch is not None:
            self._epoch._gradients_cleared()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on the gradients as they are; inside an epoch a short batch takes a shorter step."""
        loss = None
        if closure is not None:
            loss = self._run_closure(closure)
            if loss is None and self._batch_was_left_out():
                return None
        scale = self._step_scale()
        if scale is not None:
            self._inner_step(scale)
        return loss

    def _inner_step(self, scale: float) -> None:
        """A plain gradient step, `scale` times as long as `lr` says."""
        for group in self.param_groups:
            if not group["lr"]:
                continue
            params: list[Tensor] = []
            grads: list[Tensor] = []
            has_sparse_grad = self._collect(group, params, grads)
            sgd(
                params,
                grads,
                [],
                has_sparse_grad=has_sparse_grad,
                foreach=group.get("foreach"),
                fused=group.get("fused"),
                grad_scale=getattr(self, "grad_scale", None),
                found_inf=getattr(self, "found_inf", None),
                weight_decay=self._weight_decay_of(group),
                momentum=0.0,
                lr=group["lr"] * scale,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
        self._fused_checked = True

    def _collect(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> bool:
        has_sparse_grad = False
        for p in group["params"]:
            if p.grad is None or not p.requires_grad:
                continue
            if group.get("fused") and not self._fused_checked:
                _device_dtype_check_for_fused(p)
            params.append(p)
            grads.append(p.grad)
            has_sparse_grad = has_sparse_grad or p.grad.is_sparse
        return has_sparse_grad

    def _run_closure(self, closure: Callable[[], Any]) -> Any:
        with torch.enable_grad():
            if self._epoch is None:
                return closure()
            return self._epoch._observe_closure(closure)

    def _step_scale(self) -> float | None:
        return self._step_scale_untraced() if torch.compiler.is_compiling() else self._take_step()

    # Bookkeeping in Python is kept out of what torch.compile traces: it would recompile at every step. This is the
    # decorator of torch's own optimizers; torch.compiler.disable would import the whole compiler with the package.
    @_disable_dynamo
    def _step_scale_untraced(self) -> float | None:
        return self._take_step()

    def _take_step(self) -> float | None:
        return 1.0 if self._epoch is None else self._epoch._take_step(getattr(self, "found_inf", None))

    def _rule(self) -> Rule:
        """By what an epoch is judged."""
        raise NotImplementedError

    def _decide(self, inner: paper.InnerCycle, known: paper.Known, epoch: Epoch) -> paper.Decision:
        """What the epoch leads to; `epoch._f_start()` and `epoch._f_at(alpha)` evaluate the objective."""
        return self._rule().decide(inner, known, epoch)

    def _rejects_early(self) -> bool:
        state = self._control
        return bool(
            state.get("early_rejection") and not state["negative_loss_seen"] and self._rule().can_reject_early()
        )

    def _stop_rejecting_early(self) -> None:
        logger.warning("A loss was negative, so half an epoch says nothing of the rest: epochs are not rejected early.")
        self._control["negative_loss_seen"] = 1

    def _begin(self, objective: Any, model: nn.Module | None, ranks: Ranks) -> tuple[float, paper.Known]:
        """Everything that may fail comes first, so that an epoch that cannot begin changes nothing."""
        if self._epoch is not None:
            raise RuntimeError("An epoch is under way already: leave its `with` block before you begin another")
        for group in self.param_groups:
            check_lr(group["lr"], zero_allowed=True)
        if not self._zeta() > 0.0:
            raise ValueError("Invalid lr values: the lr of every parameter group is 0; at least one must be positive")
        if not self._parameters():
            raise ValueError("There is nothing to train: no parameter of the optimizer requires a gradient")
        lrs = self._lrs()
        if self._lr_left and lrs != self._lr_left:
            self._control["raised"] = 1.0  # what somebody else set is not on the growth's probation
        if any(now > left for now, left in zip(lrs, self._lr_left, strict=False)):
            self._warn_about_lr("was raised between two epochs", stacklevel=4)
        self._to_judged_point()
        self._join_mark = refuse_outer_join(model, self._join_mark)
        state = self._control
        known = state["f_current"] != UNKNOWN and self._circumstances is not None
        changed = known and self._circumstances != self._describe_circumstances(model)
        rows = ranks.gather(changed, self._zeta(), state["f_0"], state["phi"], state["f_current"], state["epochs"])
        require_same_state([row[1:] for row in rows])
        if self._control["f_0"] == UNKNOWN and objective is not None:
            self._anchor(self._evaluate_start(objective, ranks), objective)
            changed, rows = False, []
        f_current = _none_if_unknown(self._control["f_current"])
        if changed or any(row[0] for row in rows):
            f_current = None  # somebody changed the function, or the weights, between the epochs
        # What is saved or copied in mid-epoch has other weights than w^k.
        self._control["f_current"] = UNKNOWN
        return self._zeta(), paper.Known(self._control["f_0"], self._control["phi"], f_current)

    def _evaluate_start(self, objective: Any, ranks: Ranks) -> float:
        f_0 = self._evaluate(objective, ranks)  # line 3
        if f_0 == UNKNOWN:
            raise ValueError(
                "The objective is not finite at the starting weights, so there is nothing to improve on: "
                "check the data for NaN and Inf, and the initial weights"
            )
        return f_0

    def _anchor(self, f_0: float, objective: Any) -> None:
        self._control.update(
            self._fresh_state()
            | {
                "f_0": f_0,
                "phi": f_0,
                "f_current": f_0,
                **as_state(Watch.from_start(f_0)),
                "zeta_0": self._zeta(),
                "samples": getattr(objective, "samples", 0),
                "evaluations": self._control["evaluations"],
                "evaluations_reported": self._control["evaluations_reported"],
            }
        )
        self._circumstances = self._describe_circumstances(getattr(objective, "model", None))

    def _commit(self, inner: paper.InnerCycle, decision: paper.Decision, *, samples: float) -> EpochReport:
        """Write the decision down; nothing here can fail."""
        for group in self.param_groups:
            group["lr"] *= decision.zeta_factor
        state = self._control
        report = EpochReport(
            outcome=decision.outcome,
            lr=inner.zeta,
            next_lr=self._zeta(),
            alpha=decision.alpha,
            f_tilde=inner.f_tilde,
            phi=decision.phi,
            direction_norm=inner.direction_norm,
            evaluations=int(state["evaluations"] - state["evaluations_reported"]),
        )
        state["phi"] = UNKNOWN if math.isnan(decision.phi) else decision.phi
        state["f_current"] = UNKNOWN if decision.f_next is None else decision.f_next
        state["epochs"] += 1
        state["samples"] = max(state["samples"], samples)
        state["epochs_still"] = 0 if decision.alpha else state["epochs_still"] + 1
        state["evaluations_reported"] = state["evaluations"]
        return report

    def _end(self, model: nn.Module | None, *, f_current: float | None, decided: bool) -> None:
        self._epoch = None
        self._lr_left = self._lrs()
        self._join_mark = getattr(model, "_join_config", None)
        if not decided:
            self._control["f_current"] = UNKNOWN if f_current is None else f_current
        is_known = self._control["f_current"] != UNKNOWN
        self._circumstances = self._describe_circumstances(model) if is_known else None

    def _warn_if_stalled(self) -> None:
        state = self._control
        if state["stall_reported"] or not paper.has_stalled(
            zeta=self._zeta(),
            zeta_0=state["zeta_0"],
            rounding=torch.finfo(self._parameters()[0].dtype).eps,
            epochs_still=int(state["epochs_still"]),
            patience=_STALL_PATIENCE,
        ):
            return
        state["stall_reported"] = 1
        still = int(state["epochs_still"])
        moved = f"and the last {still} epochs did not move the weights" if still else "below what can move the weights"
        warnings.warn(
            f"{type(self).__name__} has stalled: lr is {self._zeta():.3g}, {moved}. {self._advice_when_stalled()}",
            RuntimeWarning,
            stacklevel=4,
        )

    def _warn_about_lr(self, what: str, *, stacklevel: int) -> None:
        if self._owns_lr and not self._lr_warned:
            self._lr_warned = True
            warnings.warn(
                f"lr {what}, which undoes what {type(self).__name__} decided: its control shrinks lr by itself and "
                "needs no schedule. A scheduler that only lowers lr, once an epoch, does no harm "
                "(docs/distributed.md); optimizer.restart(objective, lr=...) sets another lr.",
                RuntimeWarning,
                stacklevel=stacklevel,
            )

    def _advice_when_stalled(self) -> str:
        return "Try optimizer.restart(objective, lr=...) with another lr."

    def _evaluate(self, objective: Any, ranks: Ranks) -> float:
        """One full evaluation of the regularised objective, averaged over the ranks; +inf where it is not finite."""
        value = objective()
        if not isinstance(value, Tensor | numbers.Real):
            raise ValueError(f"Invalid objective: expected it to return the mean loss, but it returned {value!r}")
        value = sum(row[0] for row in ranks.gather(float(value))) / ranks.size
        self._control["evaluations"] += 1
        value += sum(weight * float(squared_norm) for weight, squared_norm in self._regularisation_terms())
        return value if math.isfinite(value) else UNKNOWN

    def _regularisation_terms(self) -> list[tuple[float, Tensor]]:
        """(weight_decay/2, ‖w‖²) of each group: together the function whose gradient is the weight decay."""
        return [
            (0.5 * weight_decay, sum_of_squares(params))
            for group in self.param_groups
            if (weight_decay := self._weight_decay_of(group)) and (params := _trainable(group))
        ]

    def _weight_decay_of(self, group: dict[str, Any]) -> float:
        """The factor whose half weighs ‖w‖² in the objective."""
        return float(group["weight_decay"])

    def _inner_state(self) -> InnerState | None:
        """A copy of what the inner cycle remembers from step to step; a plain gradient step remembers nothing."""
        return None

    def _to_training_point(self) -> None:
        """Before the steps of an epoch; a plain gradient step is judged where it trains."""

    def _to_judged_point(self) -> None:
        """After the steps of an epoch, and before any evaluation."""

    def _drop_gradients(self) -> None:
        for p in self._parameters():
            p.grad = None

    def _wants_probe(self) -> bool:
        """Whether the first batches should first be used to find a step size."""
        return False

    def _usual_lr(self) -> float:
        """What a probe should not go far beyond; infinite where nothing is known."""
        return math.inf

    @property
    def _control(self) -> dict[str, Any]:
        return self.param_groups[0]

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in _trainable(group)]

    def _describe_circumstances(self, model: nn.Module | None) -> tuple[float, ...]:
        """What a known f(w^k) depends on: changes of any weight of the model show in its version counter."""
        weights = self._parameters() if model is None else model.parameters()
        return (*map(self._weight_decay_of, self.param_groups), *(local(p)._version for p in weights))

    def _lrs(self) -> list[float]:
        return [float(group["lr"]) for group in self.param_groups]

    def _zeta(self) -> float:
        return float(max(group["lr"] for group in self.param_groups))

    def _batch_was_left_out(self) -> bool:
        """A closure without loss and without gradients, as Lightning has where `training_step` returns None."""
        return self._epoch is not None and self._epoch._is_waiting() and all(p.grad is None for p in self._parameters())

    def _cannot_move(self) -> bool:
        return not any(group["lr"] for group in self.param_groups)

    def _scale_lr_to(self, zeta: float) -> None:
        """All groups together, so that their ratios stay."""
        largest = self._zeta()
        for group in self.param_groups:
            group["lr"] = zeta if group["lr"] == largest else zeta * (group["lr"] / largest)


def _trainable(group: dict[str, Any]) -> list[Tensor]:
    return [p for p in group["params"] if p.requires_grad]


def _none_if_unknown(value: float) -> float | None:
    return None if value == UNKNOWN else value
