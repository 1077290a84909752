"""CMA: the monotone baseline, which evaluates the whole objective after every epoch."""

from __future__ import annotations

from typing import ClassVar

from torch.optim.optimizer import ParamsT

from cmalight.optim.control.arguments import checked_constants, of_the_listing
from cmalight.optim.host import EpochOptimizer
from cmalight.rules.baselines import MonotoneRule


class CMA(EpochOptimizer):
    """Mini-batch gradient epochs judged by the true objective: at least one full evaluation each.

    `report.phi` is f(w^{k+1}), with which the next epoch is compared.

    Args:
        params: Parameters or parameter groups; groups may differ in `lr` and `weight_decay`.
        lr: ζ⁰, the first step size; it never grows, and all groups shrink together.
        theta: θ, the factor by which the step size shrinks.
        tau: τ, below which a direction or a gain counts as small.
        gamma: γ, the share of the predicted decrease that counts as sufficient.
        delta: δ; a line search tries alpha/δ after alpha.
        weight_decay: Adds (weight_decay/2) ‖w‖² to the objective.
        max_extrapolations: How often one line search may extend its step.
        foreach: As in torch.optim.SGD.
        fused: As in torch.optim.SGD.
        maximize: Refused; negate the loss instead.

    Raises:
        ValueError: If a setting is out of its range.
    """

    _shared: ClassVar[tuple[str, ...]] = ("theta", "tau", "gamma", "delta", "max_extrapolations")

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
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "fused": fused,
            **checked_constants(theta, tau, gamma, delta, max_extrapolations),
        }
        super().__init__(params, defaults, maximize=maximize)

    def rule(self) -> MonotoneRule:
        """By the true objective."""
        return MonotoneRule(**of_the_listing(self.param_groups[0]))
