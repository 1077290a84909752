"""What a window came to, for logs and histories."""

from __future__ import annotations

from dataclasses import dataclass

from cmalight.rules.outcome import Outcome


@dataclass(frozen=True)
class WindowReport:
    """What a window of `Controlled` came to; losses are those of the objective's sample, or of all data (`certified`).

    Attributes:
        steps: Steps in the window.
        outcome: `Outcome.KEPT`, `Outcome.UNDONE` or `Outcome.DIVERGED`; others where `certified` ran a plain epoch.
        loss_before: The loss where the window began.
        loss_after: The loss where it ended, before anything was undone.
        bound: The highest loss at which it would have been kept.
        scale: The factor of the learning rate for the next window.
    """

    steps: int
    outcome: Outcome
    loss_before: float
    loss_after: float
    bound: float
    scale: float

    def __str__(self) -> str:
        return (
            f"window of {self.steps} steps {self.outcome.text}: loss {self.loss_before:.6g} -> {self.loss_after:.6g}, "
            f"bound {self.bound:.6g}, scale {self.scale:.4g}"
        )


@dataclass(frozen=True)
class EpochReport:
    """What an epoch of the paper's methods came to; losses are means per sample, weight decay's term included.

    Attributes:
        outcome: Which exit of the listing it took.
        lr: ζ^k, the learning rate it was run with: the largest of the groups.
        next_lr: ζ^{k+1}.
        alpha: α: how far the weights went along d; 0 where they were rolled back.
        f_tilde: f̃: the mean of the losses that its batches gave, each at the weights of its moment.
        phi: φ^{k+1}: what the next epoch has to beat.
        direction_norm: ‖d‖, in the paper's sum units.
        evaluations: Full evaluations that were made for this epoch; f(w⁰) is in the first.
    """

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
