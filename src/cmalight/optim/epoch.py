"""The boundary of one epoch under the paper's methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cmalight.evaluation.counting import batch_size
from cmalight.optim.epoch_judge import EpochJudge
from cmalight.optim.reports import EpochReport
from cmalight.optim.window import EpochWindow, as_count
from cmalight.rules.epochs import Known

if TYPE_CHECKING:
    from cmalight.optim.epoch_optimizer import EpochOptimizer

# An epoch that saw fewer samples than this share of the objective's was left early.
_WHOLE = 0.999


class Epoch:
    """The boundary of one epoch; made by `optimizer.epoch(objective)` and used in a `with` statement.

    An error inside the block judges nothing and leaves the weights where they are. Leaving the block before the whole
    loader was seen rolls back the weights and raises; `abandon()` rolls back without an error.

    Args:
        optimizer: Whose epoch it is.
        objective: Gives the mean loss per sample at the current weights; None for an optimizer that judges nothing.

    Attributes:
        report: The report on the epoch; None before its end, and if it was abandoned.
    """

    def __init__(self, optimizer: EpochOptimizer, objective: Any) -> None:
        self.report: EpochReport | None = None
        self._optimizer = optimizer
        self._objective = objective
        self._is_new = True
        self._abandoned = False
        self._last_batch: Any = None

    @property
    def window(self) -> EpochWindow:
        """The optimizer's window, which this epoch fills.

        Raises:
            RuntimeError: If the epoch is not under way.
        """
        window = self._optimizer.window
        if self._abandoned:
            raise RuntimeError("The epoch was abandoned: leave its `with` block")
        if not isinstance(window, EpochWindow) or self._optimizer.current_epoch is not self:
            raise RuntimeError("The epoch is not under way: use `with optimizer.epoch(objective) as epoch:`")
        return window

    def __enter__(self) -> Epoch:
        optimizer = self._optimizer
        optimizer.refuse_inside_epoch("epoch()")
        if not self._is_new:
            raise RuntimeError("This epoch is over: begin another with `with optimizer.epoch(objective) as epoch:`")
        self._is_new = False
        self._judge = EpochJudge(optimizer, self._objective)
        optimizer.adopt(self._objective)
        self._judge.begin()
        optimizer.current_epoch = self  # last, so that an epoch that could not begin is not in the way of another
        return self

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
        window, samples = self.window, as_count(count)
        if not window.counts.total:
            window.first_loss = loss.detach() if isinstance(loss, Tensor) else loss
        window.losses.add(loss, samples)
        if (penalty := self._optimizer.penalty()) is not None:
            window.losses.add(penalty, samples)
        window.counts.add(samples)

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
        window = self.window
        factors = []
        for size in sizes:
            window.counts.add(float(size))
            factors.append(window.counts.take())
        losses = run(factors)
        weights = torch.tensor(sizes, dtype=losses.dtype)
        window.losses.add(torch.dot(losses, weights), 1.0)
        window.steps += len(sizes)
        return losses

    def abandon(self) -> None:
        """Roll back to the start of the epoch; nothing is judged, and `report` stays None."""
        _ = self.window
        self._optimizer.roll_back()
        self._abandoned = True

    def size_of_last_batch(self) -> float:
        """The size of the batch that `batches` gave last, for a closure that observes nothing itself.

        Returns:
            How many samples it has.

        Raises:
            RuntimeError: If that is not known.
        """
        size = batch_size(self._last_batch)
        if size is None:
            raise RuntimeError("The size of the batch is not known: call epoch.observe(loss, count) in the closure")
        return size

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None and not self._abandoned:
                self._refuse_part_of_an_epoch()
                self.report = self._judge.conclude(self.window)
            self._close(failed=kind is not None)
        except BaseException:  # also an interrupt while the epoch is closed
            self._close(failed=True)
            raise

    def _close(self, *, failed: bool) -> None:
        optimizer = self._optimizer
        optimizer.current_epoch = None
        optimizer.window = None
        if failed and optimizer.known is not None:  # f at the current weights is not known
            optimizer.known = Known(optimizer.known.f_0, optimizer.known.phi, None)
        optimizer.remember_what_is_seen()

    def _refuse_part_of_an_epoch(self) -> None:
        seen = self.window.counts.total
        if not seen:
            raise RuntimeError(
                "The epoch saw no batch: call epoch.observe(loss, len(target)) for each batch, "
                "and check that the loader is not empty"
            )
        whole = self._optimizer.samples
        if whole and seen < _WHOLE * whole:
            self._optimizer.roll_back()
            raise RuntimeError(
                f"The epoch was left after {seen:.0f} of {whole:.0f} samples, so it was not judged, and the weights "
                "were rolled back. Run through all data of the objective, or call epoch.abandon() before leaving early"
            )
