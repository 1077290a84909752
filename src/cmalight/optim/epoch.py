"""The boundary of one epoch under the paper's methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor

from cmalight.optim.epoch_watch import EpochWatch
from cmalight.optim.reports import EpochReport


class Epoch:
    """The boundary of one epoch; made by `optimizer.epoch(objective)` and used in a `with` statement.

    An error inside the block judges nothing and leaves the weights where they are. Leaving the block before the whole
    loader was seen rolls back the weights and raises; `abandon()` rolls back without an error.

    Args:
        watch: The control of the optimizer whose epoch it is.
        objective: Gives the mean loss per sample at the current weights; None for an optimizer that judges nothing.

    Attributes:
        report: The report on the epoch; None before its end, and if it was abandoned.
    """

    def __init__(self, watch: EpochWatch, objective: Any) -> None:
        self.report: EpochReport | None = None
        self._watch = watch
        self._objective = objective
        self._is_new = True

    def __enter__(self) -> Epoch:
        if not self._is_new:
            raise RuntimeError("This epoch is over: begin another with `with optimizer.epoch(objective) as epoch:`")
        self._watch.refuse_inside_epoch("epoch()")
        self._is_new = False
        try:
            self._watch.begin(self._objective)
            return self
        except BaseException:  # an epoch that could not begin must not block the next one
            self._watch.close(failed=True)
            raise

    def observe(self, loss: Tensor | float, count: float) -> None:
        """Record the mean loss of a batch at the current weights, and its size. The loss stays on its device.

        Several observations before one `step()` are gradient accumulation: together they are one batch.

        Args:
            loss: The mean loss of the batch, a scalar.
            count: The samples behind that mean.

        Raises:
            ValueError: If the loss is no real scalar, or the count not positive.
            RuntimeError: If the epoch is not under way.
        """
        self._watch.observe(loss, count)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of `loader`, until the epoch is abandoned; a closure need not say how large each is.

        Args:
            loader: Anything that can be iterated once.

        Yields:
            Its batches.
        """
        opened = self._watch.opened
        for batch in loader:
            opened.last_batch = batch
            yield batch
            if opened.is_abandoned:
                return

    def advance(self, sizes: Sequence[int], run: Callable[[list[float]], Tensor]) -> Tensor:
        """Take several steps by an engine.

        Args:
            sizes: The sizes of the next batches.
            run: `run(factors)` takes len(factors) gradient steps, step i with every group's lr times factors[i], and
                returns the losses of their batches, weight decay's term included.

        Returns:
            The losses.
        """
        return self._watch.advance(sizes, run)

    def abandon(self) -> None:
        """Roll back to the start of the epoch; nothing is judged, and `report` stays None."""
        self._watch.abandon()

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None:
                self.report = self._watch.judge()
            self._watch.close(failed=kind is not None)
        except BaseException:  # also an interrupt while the epoch is closed
            self._watch.close(failed=True)
            raise
