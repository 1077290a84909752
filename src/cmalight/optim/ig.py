"""IG: the plain incremental gradient method, the baseline without a control."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn
from torch.optim.optimizer import ParamsT

from cmalight.errors import check_fraction
from cmalight.optim.bracket.epoch import Epoch
from cmalight.optim.host import EpochOptimizer, require_objective
from cmalight.rules.baselines import DecayRule


class IG(EpochOptimizer):
    """Mini-batch gradient epochs that all stand; the step size becomes (1 − decay) of itself after each.

    `report.phi` is the least of f(w⁰) and the epochs' losses, or NaN where no objective was given.

    Args:
        params: Parameters or parameter groups; groups may differ in `lr` and `weight_decay`.
        lr: The first step size.
        decay: ε, by which the step size decays.
        weight_decay: Adds (weight_decay/2) ‖w‖² to the objective.
        foreach: As in torch.optim.SGD.
        fused: As in torch.optim.SGD.
        maximize: Refused; negate the loss instead.

    Raises:
        ValueError: If a setting is out of its range.
    """

    _shared: ClassVar[tuple[str, ...]] = ("decay",)
    owns_lr: ClassVar[bool] = False
    needs_objective: ClassVar[bool] = False

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.5,
        *,
        decay: float = 0.5,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_fraction("decay", decay)
        defaults = {"lr": lr, "weight_decay": weight_decay, "foreach": foreach, "fused": fused, "decay": decay}
        super().__init__(params, defaults, maximize=maximize)

    def epoch(self, objective: Any = None, *, model: nn.Module | None = None, process_group: Any = None) -> Epoch:
        """The bracket for one epoch; an objective is optional and evaluated at the first weights only."""
        if objective is not None:
            require_objective(self, objective)
        return Epoch(self, objective, model, process_group)

    def rule(self) -> DecayRule:
        """Every epoch stands."""
        return DecayRule(self.param_groups[0]["decay"])
