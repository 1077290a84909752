"""COFF: as CMALight, but its search trusts the epoch's losses further, and the learning rate may grow."""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import ParamsT

from cmalight.optim.epoch_optimizer import ListingOptimizer
from cmalight.rules.baselines import CoffRule


class COFF(ListingOptimizer):
    """COFF_IG, the current method of CMALight's authors.

    It was read from their public repository, https://github.com/corradocoppola97/CMA_Light (Corrado Coppola and
    others, 2025 and 2026), and written anew. It differs from `CMALight` in four places: the line search starts where
    f̃ ≤ min{f(w^k), f(w⁰)}, without a term in γ; what it finds is kept without a test against f(w⁰); where the gain is
    not small, the learning rate becomes the step that was found, **so it may grow**; and φ is the least loss of all
    epochs so far. There f is a mean per sample and d a sum; here both are in the units of docs/understand/algorithm.md.

    Nothing is proved for it here: it is a method to compare with.

    Args:
        params: Parameters or parameter groups; groups may differ in `lr` and `weight_decay`.
        lr: ζ⁰, the first learning rate; all groups shrink and grow together.
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

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.05,
        *,
        theta: float = 0.5,
        tau: float = 1e-2,
        gamma: float = 1e-6,
        delta: float = 0.9,
        weight_decay: float = 0.0,
        max_extrapolations: int = 100,
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        settings: Any = {"theta": theta, "tau": tau, "gamma": gamma, "delta": delta, "weight_decay": weight_decay}
        options: Any = {"foreach": foreach, "fused": fused, "maximize": maximize}
        super().__init__(params, lr, max_extrapolations=max_extrapolations, **settings, **options)

    def rule(self) -> CoffRule:
        """The listing with the four changes."""
        return CoffRule(**self.settings)
