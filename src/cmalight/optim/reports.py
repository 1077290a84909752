"""Reports on windows and epochs, for logs and histories."""

from __future__ import annotations

from dataclasses import dataclass

from cmalight.rules.outcome import Outcome


@dataclass(frozen=True)
class WindowReport:
    """The report on a window of `Controlled`. Its losses are of the objective's sample, or of all data (`certified`).

    Attributes:
        steps: Steps in the window.
        outcome: `Outcome.KEPT`, `Outcome.UNDONE` or `Outcome.DIVERGED`; others where `certified` ran a plain epoch.
        loss_before: The loss at the start of the window.
        loss_after: The loss at its end, before a rollback.
        bound: The highest loss at which it is kept.
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
    """The report on an epoch of the paper's methods. Losses are means per sample and include the weight decay's term.

    Attributes:
        outcome: The exit of the listing that it took.
        lr: ζ^k, the learning rate it was run with: the largest of the groups.
        next_lr: ζ^{k+1}.
        alpha: α, how far the weights went along d; 0 if they were rolled back.
        f_tilde: f̃, the mean of the losses of its batches, each at the weights before its step.
        phi: φ^{k+1}, the loss that the next epoch has to beat.
        direction_norm: ‖d‖, in the paper's sum units.
        evaluations: Full evaluations for this epoch; the first epoch includes f(w⁰).
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
