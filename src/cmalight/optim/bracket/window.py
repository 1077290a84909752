"""What is judged at once: w^k, and what the steps since then have collected; an epoch, or a part of a long one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from cmalight.evaluation.snapshot import Snapshot
from cmalight.optim.control.evaluator import Evaluator
from cmalight.optim.inner.inner_state import InnerState, is_finite
from cmalight.optim.inner.settling import GradientWeights
from cmalight.optim.inner.steps import Steps
from cmalight.optim.inner.tally import BatchCounts, Gathered, LossSum


class Window:
    """The steps from w^k on.

    Args:
        params: Those that are trained.
        model: Whose buffers go back with them.
        steps: Of the inner optimizer, which may remember something.
        evaluator: Knows the weight decay's term.

    Attributes:
        losses: What was observed, on the device.
        counts: Of the samples behind it.
        steps_taken: Calls of `step()`.
        skipped: On the device: fused steps that GradScaler's found_inf made no steps.
        displacement: ‖w̃ − w^k‖ where an engine has taken it, infinite where the state is not finite.
    """

    def __init__(self, params: Sequence[Tensor], model: nn.Module | None, steps: Steps, evaluator: Evaluator) -> None:
        self.losses: LossSum = LossSum()
        self.counts = BatchCounts()
        self.steps_taken = 0
        self.skipped: Tensor | int = 0
        self.displacement: float | None = None
        self._total, self._lowest = 0.0, math.inf  # carried over from before an engine began to count anew
        self.snapshot = Snapshot(params, model)
        self._evaluator = evaluator
        self._is_regularised = evaluator.is_regularised()
        self._regularisation: list[tuple[float, Tensor]] | None = None  # at the weights as they are
        self._remembered: InnerState | None = steps.remembered()

    def observe(self, loss: Tensor | float, count: float, weights: GradientWeights | None) -> None:
        """Take the mean loss of a batch, with the weight decay's term, and its size."""
        self.losses.add(loss, count)
        if self._is_regularised:
            if self._regularisation is None:
                self._regularisation = self._evaluator.regularisation()
            for weight, squared_norm in self._regularisation:
                self.losses.add_term(squared_norm, weight * count)
        self.counts.add(count, None if weights is None else weights.observed(loss, count, self.counts))

    def begins_step(self, found_inf: Tensor | None) -> float:
        """The weights are about to change; gives n_p/n̄ of the batch that the step uses."""
        self._regularisation = None
        self.steps_taken += 1
        if found_inf is not None:
            self.skipped = self.skipped + (found_inf > 0)
        return self.counts.take()

    def go_back(self) -> None:
        """To w^k, in everything."""
        self.snapshot.move(0.0)
        if self._remembered is not None:
            self._remembered.restore()

    def displacement_norm(self) -> float:
        """‖w̃ − w^k‖; infinite where what the inner optimizer remembers is not finite."""
        if self.displacement is not None:
            return self.displacement
        if self._remembered is not None and not is_finite(self._remembered.optimizer):
            return math.inf
        return self.snapshot.displacement_norm()

    def was_run(
        self, *, total: float, lowest: float, samples: float, nominal: float, steps: int, displacement: float
    ) -> None:
        """What an engine that runs many batches in one call has done by now."""
        self.losses = Gathered(self._total + total, min(self._lowest, lowest))
        self.counts.total, self.counts.nominal = samples, nominal
        self.steps_taken = steps
        self.displacement = displacement if self._total == 0.0 else None

    def carry(self) -> None:
        """The engine begins to count anew, from other weights, though this window goes on."""
        self._total, self._lowest = self.losses.value_and_lowest()
