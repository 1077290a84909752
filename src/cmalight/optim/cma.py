"""CMA: as CMALight, but every epoch is judged by the objective itself."""

from __future__ import annotations

from torch.optim.optimizer import ParamsT

from cmalight.optim.epoch_optimizer import EpochOptimizer, checked_settings, of_the_listing
from cmalight.rules.baselines import MonotoneRule


class CMA(EpochOptimizer):
    """The monotone method that CMALight was made from: one full evaluation at the end of every epoch.

    Args:
        params: Parameters or parameter groups; groups may differ in `lr` and `weight_decay`.
        lr: ζ⁰, the first learning rate.
        theta: θ, the factor by which the learning rate shrinks.
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
        settings = checked_settings(theta, tau, gamma, delta, max_extrapolations)
        defaults = {"lr": lr, "weight_decay": weight_decay, "foreach": foreach, "fused": fused}
        super().__init__(params, defaults, settings, maximize=maximize)

    def rule(self) -> MonotoneRule:
        """The exits of the listing, decided by f(w̃) against f(w^k)."""
        return MonotoneRule(**of_the_listing(self.settings))
