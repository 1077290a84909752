"""How long a run is, as far as a control is told: the share of it that is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass
class Budget:
    """What `Controlled` knows of the length of its run; whichever limit is nearest counts.

    Attributes:
        max_epochs: So many epochs since w⁰.
        max_batches: So many steps since w⁰.
        reported: Gives the share done, from 0 to 1, of a limit that only the caller knows, such as a time limit.
        epochs_before: Gives how many epochs of the run were done before the one under way, where that is not the
            number since w⁰.
        steps_of_others: How many of the steps since w⁰ were those of an earlier run.
    """

    max_epochs: float | None = None
    max_batches: float | None = None
    reported: Callable[[], float] | None = None
    epochs_before: Callable[[], float] | None = None
    steps_of_others: float = 0.0

    def share(self, *, epochs: int, of_epoch: float, steps: float, reported: float | None = None) -> float | None:
        """What is done of the run.

        Args:
            epochs: That were concluded since w⁰.
            of_epoch: The share of the one under way.
            steps: That were taken since w⁰.
            reported: What several ranks have agreed on, in place of what each of them would report.

        Returns:
            From 0 to 1; None without any limit.
        """
        shares = []
        if self.max_epochs:
            before = epochs if self.epochs_before is None else self.epochs_before()
            shares.append((before + of_epoch) / self.max_epochs)
        if self.max_batches:
            shares.append((steps - self.steps_of_others) / self.max_batches)
        if self.reported is not None:
            shares.append(float(self.reported()) if reported is None else reported)
        return min(1.0, max(0.0, *shares)) if shares else None

    def lasting(self) -> Budget:
        """The part of it that can be copied and pickled: plain numbers."""
        reported = self.reported if isinstance(self.reported, Constant) else None
        return replace(self, reported=reported, epochs_before=None)


@dataclass(frozen=True)
class Constant:
    """A share that somebody reported once."""

    value: float

    def __call__(self) -> float:
        return self.value
