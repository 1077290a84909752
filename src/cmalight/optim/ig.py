"""IG: the incremental gradient method, whose learning rate decays and whose epochs always stand."""

from __future__ import annotations

from typing import Any, ClassVar

from torch.optim.optimizer import ParamsT

from cmalight.errors import check_fraction, check_positive
from cmalight.optim.epoch import Epoch
from cmalight.optim.epoch_optimizer import EpochOptimizer
from cmalight.rules.baselines import DecayRule


class IG(EpochOptimizer):
    """Plain gradient epochs without a test.

    Args:
        params: Parameters or parameter groups; groups may differ in `lr` and `weight_decay`.
        lr: ζ⁰, the first learning rate.
        decay: ε of ζ^{k+1} = (1 − ε) ζ^k.
        relative: Decay as in the authors' public code, ζ^{k+1} = (1 − ε ζ^k) ζ^k.
        weight_decay: Adds (weight_decay/2) ‖w‖² to the objective.
        foreach: As in torch.optim.SGD.
        fused: As in torch.optim.SGD.
        maximize: Refused; negate the loss instead.

    Raises:
        ValueError: If a setting is out of its range.
    """

    needs_objective: ClassVar[bool] = False

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.5,
        *,
        decay: float = 0.5,
        relative: bool = False,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_positive("lr", float(lr))
        check_fraction("decay * lr" if relative else "decay", decay * float(lr) if relative else decay)
        settings = {"decay": decay, "relative": relative}
        super().__init__(
            params, settings, lr=lr, weight_decay=weight_decay, foreach=foreach, fused=fused, maximize=maximize
        )

    def epoch(self, objective: Any = None) -> Epoch:
        """As in CMALight; without an objective φ is NaN.

        Args:
            objective: Optional: nothing is judged.

        Returns:
            What to enter, once.
        """
        return super().epoch(objective)

    def rule(self) -> DecayRule:
        """The decay of the learning rate."""
        return DecayRule(self.settings["decay"], self.settings["relative"])
