"""Reports on windows and epochs, for logs and histories."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cmalight.rules.outcome import Outcome


@dataclass(frozen=True)
class WindowReport:
    """The report on a window of `Controlled`, or on an epoch of `Certified`.

    Attributes:
        steps: Steps in the window.
        outcome: What was decided.
        loss: Mean of the losses of its steps; of `Certified`, f at its end.
        bound: The highest such loss that is kept without a question.
        scale: The factor of the learning rate for the next window.
        evaluations: How often f was evaluated to decide.
        f_end: f at its end; None if it was not evaluated.
        f_confirmed: f at the point that an undo leads to; None if it was not evaluated.
        reason: Which loss was not finite, and why the scale changed, in words; empty if all was usual.
    """

    steps: int
    outcome: Outcome
    loss: float
    bound: float
    scale: float
    evaluations: int = 0
    f_end: float | None = None
    f_confirmed: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        text = f"window of {self.steps} steps {self.outcome.text}: loss {self.loss:.6g}"
        text += f", bound {self.bound:.6g}" if self.bound < math.inf else ""
        if self.f_end is not None and self.f_confirmed is not None:
            text += f", f {self.f_end:.6g} at its end, {self.f_confirmed:.6g} at the point to go back to"
        return f"{text}, scale {self.scale:.4g}" + (f" ({self.reason})" if self.reason else "")


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
            f"loss {self.f_tilde:.6g}  {self.outcome}  lr {self.lr:.4g} -> {self.next_lr:.4g}  "
            f"evaluations {self.evaluations}  next to beat {self.phi:.6g}"
        )
