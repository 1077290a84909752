"""CMA: as CMALight, but every epoch is judged by the objective itself."""

from __future__ import annotations

from cmalight.optim.epoch_optimizer import ListingOptimizer
from cmalight.rules.baselines import MonotoneRule


class CMA(ListingOptimizer):
    """The monotone method that CMALight was made from: one full evaluation at the end of every epoch.

    Args:
        params: Parameters or parameter groups; groups may differ in `lr` and `weight_decay`.
        lr: ζ⁰, the first learning rate.
        theta: θ, the factor by which the learning rate shrinks.
        tau: τ, below which a direction or a gain counts as small.
        gamma: γ, the fraction of the predicted decrease that counts as sufficient.
        delta: δ; a line search tries alpha/δ after alpha.
        weight_decay: Adds (weight_decay/2) ‖w‖² to the objective.
        max_extrapolations: How often one line search may extend its step.
        foreach: As in torch.optim.SGD.
        fused: As in torch.optim.SGD.
        maximize: Refused; negate the loss instead.

    Raises:
        ValueError: If a setting is out of its range.
    """

    def rule(self) -> MonotoneRule:
        """The exits of the listing, decided by f(w̃) against f(w^k)."""
        return MonotoneRule(**self.settings)
