"""CMALight: incremental gradient epochs under a watchdog that costs almost no full evaluations."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch.optim.optimizer import ParamsT

from cmalight.errors import check_choice
from cmalight.optim.control.arguments import checked_constants, of_the_listing
from cmalight.optim.host import EpochOptimizer
from cmalight.rules.paper import PaperRule


class CMALight(EpochOptimizer):
    r"""Mini-batch gradient epochs that are accepted, shortened, extended or undone by their own losses.

    ::

        φ = f(w⁰)
        repeat:
            run an epoch of steps w ← w − lr ∇f_p(w);  f̃ = its mean loss, d = (w̃ − w)/lr
            f̃ ≤ min{φ − γ lr/K, f(w⁰)}      keep w̃, φ = f̃
            else ‖d‖ ≤ τ lr                  lr ← θ lr
            else                             line search along d; keep its point, or undo the epoch and lr ← θ lr

    The whole listing, with the line numbers that `EpochReport.outcome` names, is in docs/understand/algorithm.md.

    What `line_search="light"`, the method as published, does not promise: f at the end of an epoch of several batches
    may lie far above f(w⁰), because no loss is taken after the last step; it may stop at a point that is not
    stationary; and it may go round in a circle at a constant step size, which is warned about
    (docs/understand/counterexamples.md). "certified" confirms what it keeps on f̃'s word alone.

    Args:
        params: Parameters or parameter groups; groups may differ in `lr` and `weight_decay`.
        lr: ζ⁰, the first step size; it never grows, and all groups shrink together.
        theta: θ, the factor by which the step size shrinks.
        tau: τ, below which a direction or a gain counts as small.
        gamma: γ, the share of the predicted decrease that counts as sufficient.
        delta: δ; a line search tries alpha/δ after alpha.
        line_search: "light" believes the epoch's own losses, as published; "certified" evaluates the objective
            once more where it matters and converges where "light" can stall.
        weight_decay: Adds (weight_decay/2) ‖w‖² to the objective.
        max_extrapolations: How often one line search may extend its step.
        early_rejection: End an epoch that cannot succeed any more before its last batch ("light" only).
        foreach: As in torch.optim.SGD.
        fused: As in torch.optim.SGD.
        maximize: Refused; negate the loss instead.

    Raises:
        ValueError: If a setting is out of its range.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from cmalight import CMALight, Objective, TensorBatches
        >>> _ = torch.manual_seed(0)
        >>> x = torch.rand(1000, 8)
        >>> loader = TensorBatches(x, x.sum(1, keepdim=True).sin(), batch_size=50)
        >>> model, loss_fn = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1)), nn.MSELoss()
        >>> optimizer = CMALight(model.parameters(), lr=0.5)
        >>> objective = Objective(model, loss_fn, loader)
        >>> with optimizer.epoch(objective) as epoch:
        ...     for inputs, target in epoch.batches(loader):
        ...         optimizer.zero_grad()
        ...         loss = loss_fn(model(inputs), target)
        ...         loss.backward()
        ...         epoch.observe(loss, len(target))
        ...         optimizer.step()
        >>> print(epoch.report.outcome.name, epoch.report.outcome.line)
        ACCEPTED 7
    """

    _shared: ClassVar[tuple[str, ...]] = (
        "theta",
        "tau",
        "gamma",
        "delta",
        "max_extrapolations",
        "certified",
        "early_rejection",
    )

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
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "fused": fused,
            **checked_constants(theta, tau, gamma, delta, max_extrapolations),  # line 1
            "certified": _is_certified(line_search),
            "early_rejection": bool(early_rejection),
        }
        super().__init__(params, defaults, maximize=maximize)

    @property
    def line_search(self) -> str:
        """The search, "light" or "certified"."""
        return "certified" if self.param_groups[0]["certified"] else "light"

    @line_search.setter
    def line_search(self, value: Literal["light", "certified"]) -> None:
        """A stalled run may go on with the other search; a loaded state brings the search it was saved with."""
        self.param_groups[0]["certified"] = _is_certified(value)

    def rule(self) -> PaperRule:
        """Lines 6 to 22 of the listing."""
        settings = self.param_groups[0]
        certified, early = bool(settings["certified"]), bool(settings["early_rejection"])
        return PaperRule(**of_the_listing(settings), certified=certified, early_rejection=early)


def _is_certified(line_search: str) -> bool:
    check_choice("line_search", line_search, ("light", "certified"))
    return line_search == "certified"
