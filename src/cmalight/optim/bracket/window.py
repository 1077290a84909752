"""What is judged at once: w^k, and what the steps since then have collected; an epoch, a part of one, or several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from cmalight.evaluation.snapshot import Snapshot
from cmalight.optim.control.evaluator import Evaluator
from cmalight.optim.control.state import UNKNOWN
from cmalight.optim.inner.inner_state import InnerState, is_finite
from cmalight.optim.inner.settling import GradientWeights, Totals
from cmalight.optim.inner.steps import Steps
from cmalight.optim.inner.tally import BatchCounts, Gathered, LossSum


@dataclass(frozen=True)
class Earlier:
    """What the epochs have collected, on all ranks, that a window went through before the one under way.

    Attributes:
        loss: Σ count · loss.
        samples: N.
        steps: That were taken.
        nominal: n̄.
    """

    loss: float = 0.0
    samples: float = 0.0
    steps: float = 0.0
    nominal: float = 1.0

    def and_then(self, of_epoch: Totals) -> Totals:
        """With those of one epoch more."""
        return replace(
            of_epoch,
            loss=self.loss + of_epoch.loss,
            samples=self.samples + of_epoch.samples,
            steps=self.steps + of_epoch.steps,
            nominal=self.nominal if self.steps else of_epoch.nominal,
        )


class Window:
    """The steps from w^k on.

    Args:
        params: Those that are trained.
        model: Whose buffers go back with them.
        steps: Of the inner optimizer, which may remember something.
        evaluator: Knows the weight decay's term.

    Attributes:
        losses: What was observed in this epoch, on the device.
        counts: Of the samples behind it.
        steps_taken: Calls of `step()` in this epoch.
        skipped: On the device: fused steps that GradScaler's found_inf made no steps.
        earlier: The same of the epochs before it.
        sample_before: The sample's mean loss at w^k, where an epoch before this one began there.
        displacement: ‖w̃ − w^k‖ where an engine has taken it, infinite where the state is not finite.
    """

    def __init__(self, params: Sequence[Tensor], model: nn.Module | None, steps: Steps, evaluator: Evaluator) -> None:
        self.losses: LossSum = LossSum()
        self.counts = BatchCounts()
        self.steps_taken = 0
        self.skipped: Tensor | int = 0
        self.displacement: float | None = None
        self.earlier = Earlier()
        self.sample_before = UNKNOWN
        self._carried: tuple[float, float] | None = None  # sum and lowest from before an engine began to count anew
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

    @property
    def is_empty(self) -> bool:
        """Whether nothing was observed, in none of its epochs."""
        return not self.earlier.samples and not self.counts.total

    def leave_open(self, totals: Totals, sample_before: float) -> None:
        """The epoch is over, and the next one goes on from here."""
        self.earlier = Earlier(totals.loss, totals.samples, totals.steps, totals.nominal)
        self.sample_before = sample_before
        if self._remembered is not None:
            self._remembered.leave()
        self.losses, self.counts = LossSum(), BatchCounts(self.counts.nominal)
        self.steps_taken, self.skipped = 0, 0
        self.displacement, self._carried = None, None

    def go_on(self) -> None:
        """In another epoch."""
        if self._remembered is not None:
            self._remembered.go_on()

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
        before, lowest_before = self._carried or (0.0, math.inf)
        self.losses = Gathered(before + total, min(lowest_before, lowest))
        self.counts.total, self.counts.nominal = samples, nominal
        self.steps_taken = steps
        began_here = self._carried is None and not self.earlier.steps
        self.displacement = displacement if began_here else None

    def carry(self) -> None:
        """The engine begins to count anew, from other weights, though this window goes on."""
        self._carried = self.losses.value_and_lowest()

    def plain(self, params: Sequence[Tensor]) -> dict[str, Any]:
        """Of a window that was left open; `params` are all of the groups: tensors and numbers, for a state_dict."""
        return {
            "start": self.snapshot.plain(params),
            "remembered": None if self._remembered is None else self._remembered.plain(),
            "earlier": vars(self.earlier).copy(),
            "nominal": self.counts.nominal,
            "sample_before": self.sample_before,
        }

    def put(self, plain: dict[str, Any], params: Sequence[Tensor]) -> None:
        """Become the window that `plain` came from, over the same parameters and buffers."""
        try:
            self.snapshot.put(plain["start"], params)
            if self._remembered is not None:
                self._remembered.put(plain["remembered"])
            self.earlier = Earlier(**plain["earlier"])
            self.counts = BatchCounts(nominal=plain["nominal"])
            self.sample_before = plain["sample_before"]
        except (KeyError, ValueError, RuntimeError, TypeError, AttributeError) as error:
            raise ValueError(
                f"The state that was loaded has a window of epochs that does not fit this model: {error!r}. It was "
                "dropped; the next epoch begins another."
            ) from error
