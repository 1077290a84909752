"""What an epoch did and why, for logs and histories."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cmalight.rules.outcome import Outcome

# The first of these that a part had is its epoch's: a report that ends well is not to hide what was undone before.
_TELLING = (Outcome.DIVERGED, Outcome.REFUSED, Outcome.STAGNATED, Outcome.GROWN, Outcome.KEPT)


@dataclass(frozen=True)
class EpochReport:
    """What an epoch came to; losses are means per sample, regularisation included.

    Attributes:
        outcome: Which exit of the listing it took; of an epoch of several windows, an undone one's where there is any.
        lr: The step size it was run with: the largest of the groups.
        next_lr: The step size of the next epoch.
        alpha: α of the paper: how far the weights went along d; 0 where they were put back, in all windows.
        f_tilde: f̃: the mean of the losses that its batches gave, each at the weights of its moment. After an early
            rejection a lower bound of it.
        phi: φ: what the next epoch has to beat.
        direction_norm: ‖d‖ of the paper, in sum units; NaN after an early rejection.
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


class Reports:
    """Of the parts in which an epoch was judged."""

    def __init__(self) -> None:
        self._parts: list[tuple[EpochReport, float]] = []

    def add(self, report: EpochReport, samples: float) -> None:
        """Of one part, with the samples it saw."""
        self._parts.append((report, samples))

    @property
    def samples(self) -> float:
        """In all parts."""
        return sum(samples for _, samples in self._parts)

    @property
    def last(self) -> EpochReport | None:
        """Of the last part."""
        return self._parts[-1][0] if self._parts else None

    @property
    def moved(self) -> bool | None:
        """Whether any part was kept; None where none was judged yet."""
        judged = [report.outcome for report, _ in self._parts if report.outcome is not Outcome.OPEN]
        return any(outcome.keeps for outcome in judged) if judged else None

    def together(self) -> EpochReport:
        """The last one's, with the whole epoch's loss and evaluations, its first step size and most telling outcome."""
        last = self._parts[-1][0]
        if len(self._parts) == 1:
            return last
        outcomes = {report.outcome for report, _ in self._parts}
        return replace(
            last,
            outcome=next((outcome for outcome in _TELLING if outcome in outcomes), last.outcome),
            lr=self._parts[0][0].lr,
            alpha=next((report.alpha for report, _ in self._parts if report.outcome.keeps), 0.0),
            f_tilde=sum(report.f_tilde * samples for report, samples in self._parts) / self.samples,
        )

    def __bool__(self) -> bool:
        return bool(self._parts)
