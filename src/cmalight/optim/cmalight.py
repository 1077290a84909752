"""CMALight: incremental gradient epochs under a watchdog that costs almost no full evaluations."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch.optim.optimizer import ParamsT

from cmalight.optim.arguments import check_choice
from cmalight.optim.rules import PaperRule, Rule, TolerantRule
from cmalight.optim.watchdog import WatchdogOptimizer
from cmalight.rules.tolerant import DEFAULTS


class CMALight(WatchdogOptimizer):
    r"""Mini-batch gradient epochs that are accepted, shortened, extended or undone by their own losses.

    ::

        φ = f(w⁰)
        repeat:
            run an epoch of steps w ← w − lr ∇f_p(w);  f̃ = its mean loss, d = (w̃ − w)/lr
            f̃ ≤ min{φ − γ lr/K, f(w⁰)}      keep w̃, φ = f̃
            else ‖d‖ ≤ τ lr                  lr ← θ lr
            else                             line search along d; keep its point, or undo the epoch and lr ← θ lr

    The whole listing, with the line numbers that `EpochReport.outcome` names, is in docs/algorithm.md.

    Args:
        params: parameters or parameter groups; groups may differ in `lr` and `weight_decay`.
        lr: ζ⁰, the first step size; it never grows, and all groups shrink together.
        theta: θ, the factor by which the step size shrinks.
        tau: τ, below which a direction or a gain counts as small.
        gamma: γ, the share of the predicted decrease that counts as sufficient.
        delta: δ; a line search tries alpha/δ after alpha.
        line_search: "light" believes the epoch's own losses, as published; "certified" evaluates the objective
            once more where it matters and converges where "light" can stall.
        weight_decay: adds (weight_decay/2) ‖w‖² to the objective.
        max_extrapolations: how often one line search may extend its step.
        early_rejection: end an epoch that cannot succeed any more before its last batch ("light" only).
        rule: "paper", the listing above, or "tolerant", the rule of `Controlled` (docs/controlled.md).
        foreach, fused: as in torch.optim.SGD.
        maximize: refused; negate the loss instead.
    """

    _shared: ClassVar[tuple[str, ...]] = (*WatchdogOptimizer._shared, "certified", "early_rejection", "tolerant")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.5,
        *,
        theta: float = 0.75,
        tau: float = 1e-2,
        gamma: float = 1e-2,
        delta: float = 0.9,
        line_search: Literal["light", "certified"] = "light",
        weight_decay: float = 0.0,
        max_extrapolations: int = 100,
        early_rejection: bool = True,
        rule: Literal["paper", "tolerant"] = "paper",
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            theta=theta,
            tau=tau,
            gamma=gamma,
            delta=delta,
            weight_decay=weight_decay,
            max_extrapolations=max_extrapolations,
            foreach=foreach,
            fused=fused,
            maximize=maximize,
            certified=_is_certified(line_search),
            early_rejection=bool(early_rejection),
            tolerant=check_choice("rule", rule, ("paper", "tolerant")) == "tolerant",
            **DEFAULTS,
        )

    @property
    def line_search(self) -> str:
        return "certified" if self._control["certified"] else "light"

    @line_search.setter
    def line_search(self, value: Literal["light", "certified"]) -> None:
        """A stalled run may go on with the other search; a loaded state brings the search it was saved with."""
        self._control["certified"] = _is_certified(value)

    def _rule(self) -> Rule:
        state = self._control
        return TolerantRule(state) if state["tolerant"] else PaperRule(state, certified=state["certified"])

    def _advice_when_stalled(self) -> str:
        if self._control["certified"] or self._control["tolerant"]:
            return super()._advice_when_stalled()
        return (
            "Where the batches disagree, the light line search cannot go on: "
            "try line_search='certified' (here: optimizer.line_search = 'certified'), "
            "or optimizer.restart(objective, lr=...) with another lr."
        )


def _is_certified(line_search: str) -> bool:
    return check_choice("line_search", line_search, ("light", "certified")) == "certified"
