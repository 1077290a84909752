"""What is judged at once: w^k, and what the steps since then have collected; an epoch, or a part of a long one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from cmalight.evaluation.snapshot import Snapshot
from cmalight.optim.inner_state import InnerState, is_finite
from cmalight.optim.steps import Steps
from cmalight.optim.tally import BatchCounts, Gathered, LossSum


class Window:
    """The steps from w^k on.

    Args:
        params: Those that are trained.
        model: Whose buffers go back with them.
        steps: Of the inner optimizer, which may remember something.

    Attributes:
        losses: What was observed, on the device.
        counts: Of the samples behind it.
        steps_taken: Calls of `step()`.
        skipped: On the device: fused steps that GradScaler's found_inf made no steps.
        displacement: ‖w̃ − w^k‖ where an engine has taken it.
    """

    def __init__(self, params: Sequence[Tensor], model: nn.Module | None, steps: Steps) -> None:
        self.losses: LossSum = LossSum()
        self.counts = BatchCounts()
        self.steps_taken = 0
        self.skipped: Tensor | int = 0
        self.displacement: float | None = None
        self._total, self._lowest = 0.0, math.inf  # carried over from before an engine began to count anew
        self.snapshot = Snapshot(params, model)
        self._remembered: InnerState | None = steps.remembered()

    def go_back(self) -> None:
        """To w^k, in everything."""
        self.snapshot.move(0.0)
        if self._remembered is not None:
            self._remembered.restore()

    def displacement_norm(self) -> float:
        """‖w̃ − w^k‖; infinite where what the inner optimizer remembers is not finite."""
        if self._remembered is not None and not is_finite(self._remembered.optimizer):
            return math.inf
        return self.snapshot.displacement_norm() if self.displacement is None else self.displacement

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
