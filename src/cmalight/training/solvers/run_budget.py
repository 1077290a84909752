"""How much of a run is done: what a schedule and a control that know their budget follow, batch by batch."""

from __future__ import annotations

from collections.abc import Callable


class RunBudget:
    """The share of a run that is behind it, by its epochs or by its clock: whichever ends first has the larger share.

    `fit` makes one, moves it on before every batch, and gives it to every optimizer that has an attribute `budget`.
    A run that is resumed goes on from its share; one that is resumed with more epochs, or more time, falls back to
    the share that its epochs have in the larger budget.

    Attributes:
        epochs: How many are done; 2.5 is the middle of the third.
        max_epochs: The end in epochs, if there is one.
    """

    def __init__(
        self, *, max_epochs: int | None = None, time_limit: float | None = None, seconds: Callable[[], float]
    ) -> None:
        """Make a budget of which nothing is used.

        Args:
            max_epochs: the end in epochs, if there is one.
            time_limit: the end in seconds of training, if there is one.
            seconds: gives the seconds of training so far.
        """
        self.epochs = 0.0
        self.max_epochs = max_epochs
        self._time_limit = time_limit
        self._seconds = seconds

    def __call__(self) -> float:
        """What is done, from 0 at the start to 1 at the end."""
        return self.share_at(self.epochs)

    def share_at(self, epochs: float) -> float:
        """What would be done now if so many epochs were.

        Args:
            epochs: those before a batch that is to come, say.

        Returns:
            From 0 to 1.
        """
        seconds = 0.0 if self._time_limit is None else self._seconds()
        return share_done(epochs, seconds, max_epochs=self.max_epochs, time_limit=self._time_limit)

    @property
    def clock_share(self) -> Callable[[], float] | None:
        """Gives what is done by the clock alone; None without a time limit."""
        if self._time_limit is None:
            return None
        return lambda: share_done(0.0, self._seconds(), max_epochs=None, time_limit=self._time_limit)


def share_done(epochs: float, seconds: float, *, max_epochs: int | None, time_limit: float | None) -> float:
    """How much of a run is behind it, by the limit that will end it first.

    Args:
        epochs: done so far.
        seconds: of training so far.
        max_epochs: the end in epochs, if there is one.
        time_limit: the end in seconds, if there is one.

    Returns:
        From 0 to 1; 0 where there is no end.
    """
    shares = [(epochs, max_epochs), (seconds, time_limit)]
    return max(0.0 if whole is None else min(1.0, done / whole) if whole > 0 else 1.0 for done, whole in shares)
