"""Evaluations of the regularised objective, full and of a sample, for one optimizer."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

from torch import Tensor

from cmalight.evaluation.norms import sum_of_squares
from cmalight.optim.control.state import finite_or_unknown
from cmalight.optim.inner.steps import Stepping, trainable
from cmalight.parallel.ranks import Ranks


class Evaluator:
    """Adds the weight decay's term to what an objective gives.

    Args:
        optimizer: Whose groups have a weight decay.
        counted: Called once per full evaluation.
    """

    def __init__(self, optimizer: Stepping, counted: Callable[[], None]) -> None:
        self._optimizer = optimizer
        self._counted = counted
        self._sample: tuple[Any, Callable[[], float]] | None = None

    def full(self, objective: Any, ranks: Ranks) -> float:
        """One full evaluation, averaged over the ranks; +inf where it is not finite."""
        value = objective()
        if not isinstance(value, Tensor | numbers.Real):
            raise ValueError(f"Invalid objective: expected it to return the mean loss, but it returned {value!r}")
        self._counted()
        return self._regularised(sum(row[0] for row in ranks.gather(float(value))) / ranks.size)

    def of_sample(self, objective: Any, ranks: Ranks) -> float:
        """The same of a fixed sample; of an objective that cannot give one, of all there is."""
        if not hasattr(objective, "sample"):
            return self.full(objective, ranks)
        if self._sample is None or self._sample[0] is not objective:
            self._sample = objective, objective.sample()
        return self._regularised(self._sample[1]())

    def _regularised(self, value: float) -> float:
        penalty = sum(weight * float(squared_norm) for weight, squared_norm in self.regularisation())
        return finite_or_unknown(value + penalty)

    def regularisation(self) -> list[tuple[float, Tensor]]:
        """(weight_decay/2, ‖w‖²) of each group: together the function whose gradient is the weight decay."""
        return [
            (0.5 * weight_decay, sum_of_squares(params))
            for group in self._optimizer.param_groups
            if (weight_decay := self._optimizer.steps.weight_decay_of(group)) and (params := trainable(group))
        ]

    def is_regularised(self) -> bool:
        """Whether there is a weight decay."""
        return any(map(self._optimizer.steps.weight_decay_of, self._optimizer.param_groups))
