"""What CMALight and CMA share: the constants of the listing."""

from __future__ import annotations

from typing import Any, ClassVar

from torch.optim.optimizer import ParamsT

from cmalight.optim.arguments import check_fraction, check_lr, check_not_negative, check_positive, check_whole
from cmalight.optim.base import EpochOptimizer


class WatchdogOptimizer(EpochOptimizer):
    """An optimizer with θ, τ, γ, δ and a line search; `settings` are further ones of its own."""

    _shared: ClassVar[tuple[str, ...]] = ("theta", "tau", "gamma", "delta", "max_extrapolations")

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        theta: float,
        tau: float,
        gamma: float,
        delta: float,
        weight_decay: float,
        max_extrapolations: int,
        foreach: bool | None,
        fused: bool | None,
        maximize: bool,
        **settings: Any,
    ) -> None:
        check_lr(lr)
        check_fraction("theta", theta)  # line 1
        check_positive("tau", tau)
        check_fraction("gamma", gamma)
        check_fraction("delta", delta)
        check_not_negative("weight_decay", weight_decay)
        check_whole("max_extrapolations", max_extrapolations)
        defaults = {
            "lr": float(lr),
            "weight_decay": weight_decay,
            "foreach": foreach,
            "fused": fused,
            "theta": theta,
            "tau": tau,
            "gamma": gamma,
            "delta": delta,
            "max_extrapolations": int(max_extrapolations),
            **settings,
        }
        super().__init__(params, defaults, maximize=maximize)
