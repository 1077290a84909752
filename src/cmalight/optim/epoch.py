"""The boundary of one epoch under the paper's methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor

from cmalight.evaluation.counting import batch_size
from cmalight.optim.epoch_watch import EpochWatch
from cmalight.optim.reports import EpochReport


class Epoch:
    """The boundary of one epoch; made by `optimizer.epoch(objective)` and used in a `with` statement.

    An error inside the block judges nothing and leaves the weights where they are. Leaving the block before the whole
    loader was seen rolls back the weights and raises; `abandon()` rolls back without an error.

    Args:
        watch: The control of the optimizer whose epoch it is.
        objective: Gives the mean loss per sample at the current weights; None for an optimizer that judges nothing.
        opened: Called with the epoch when it begins, and with None when it is over.

    Attributes:
        report: The report on the epoch; None before its end, and if it was abandoned.
    """

    def __init__(self, watch: EpochWatch, objective: Any, opened: Callable[[Epoch | None], None]) -> None:
        self.report: EpochReport | None = None
        self._watch = watch
        self._objective = objective
        self._opened = opened
        self._is_new = True
        self._abandoned = False
        self._last_batch: Any = None

    def __enter__(self) -> Epoch:
        if not self._is_new:
            raise RuntimeError("This epoch is over: begin another with `with optimizer.epoch(objective) as epoch:`")
        self._watch.refuse_inside_epoch("epoch()")
        self._is_new = False
        try:
            self._watch.begin(self._objective)
            self._opened(self)
            return self
        except BaseException:  # an epoch that could not begin must not block the next one
            self._close(failed=True)
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
        self._refuse_abandoned()
        self._watch.observe(loss, count)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of `loader`, until the epoch is abandoned; a closure need not say how large each is.

        Args:
            loader: Anything that can be iterated once.

        Yields:
            Its batches.
        """
        for batch in loader:
            self._last_batch = batch
            yield batch
            if self._abandoned:
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
        self._refuse_abandoned()
        return self._watch.advance(sizes, run)

    def abandon(self) -> None:
        """Roll back to the start of the epoch; nothing is judged, and `report` stays None."""
        self._refuse_abandoned()
        self._watch.undo()
        self._abandoned = True

    def step_factor(self, closure_loss: Any, found_inf: Tensor | None) -> float:
        """A step is taken: the factor of its length.

        Args:
            closure_loss: The loss of a closure, which is observed if nothing else was; or None.
            found_inf: Of GradScaler: 1 if a fused step is skipped.

        Returns:
            n_p/n̄.

        Raises:
            RuntimeError: If nothing was observed for this step.
        """
        self._refuse_abandoned()
        if closure_loss is not None and not self._watch.pending_samples():
            size = batch_size(self._last_batch)
            if size is None:
                raise RuntimeError("The size of the batch is not known: call epoch.observe(loss, count) in the closure")
            self._watch.observe(closure_loss, size)
        return self._watch.step_factor(found_inf)

    def _refuse_abandoned(self) -> None:
        if self._abandoned:
            raise RuntimeError("The epoch was abandoned: leave its `with` block")

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None and not self._abandoned:
                self.report = self._watch.judge()
            self._close(failed=kind is not None)
        except BaseException:  # also an interrupt while the epoch is closed
            self._close(failed=True)
            raise

    def _close(self, *, failed: bool) -> None:
        self._opened(None)
        self._watch.close(failed=failed)
