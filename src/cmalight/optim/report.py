"""What an epoch did and why, for logs and histories."""

from __future__ import annotations

from dataclasses import dataclass

from cmalight.rules.outcome import Outcome


@dataclass(frozen=True)
class EpochReport:
    """Losses are means per sample, regularisation included; `alpha` and `direction_norm` are the paper's."""

    outcome: Outcome
    lr: float
    next_lr: float
    alpha: float
    f_tilde: float
    phi: float
    direction_norm: float
    evaluations: int

    def __str__(self) -> str:
        return (
            f"loss {self.f_tilde:.6g}  to beat {self.phi:.6g}  lr {self.lr:.4g} -> {self.next_lr:.4g}  "
            f"evaluations {self.evaluations}  {self.outcome}"
        )
