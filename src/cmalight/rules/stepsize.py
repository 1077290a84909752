"""The search for a first step size on plain floats: which one to try next, and which one to begin with.

Step sizes are tried on the same few batches from the same weights, a factor of ten apart; f_0 is the loss of these
batches at these weights, because that of all the data differs from it by more than a small gain. Taken is the smallest
that gains nearly as much as the best, because what is too small grows within a few epochs, and what is too large may
end on a plateau that no epoch leaves again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

RATIO = 10.0
MOST_TRIALS = 9
# The share of the best gain that is enough.
NEARLY = 0.9
# Shares of f_0. A smaller gain says little about the step size: a deep network first finds the mean of the targets,
# whatever the step size. A smaller rise is no harm: so few batches are noisy.
GAIN, HARM = 0.1, 0.01


def next_trial(losses: Mapping[float, float], f_0: float, *, at_most: float = math.inf) -> float | None:
    """The next step size to try, or None once the best is bracketed; `losses` are those of the trials so far.

    at_most: no larger one is tried; what is too large may gain most within a few batches, and least in the end
    """
    if len(losses) >= MOST_TRIALS:
        return None
    smallest, largest = min(losses), max(losses)
    larger = largest * RATIO if largest * RATIO <= at_most * (1.0 + 1e-9) else None  # whatever powers of ten round to
    if _gains(losses, f_0):
        if _lowest(losses) == largest and larger:
            return larger
        return smallest / RATIO if choice(losses, f_0) == smallest else None
    if losses[smallest] > f_0 + HARM * f_0:
        return smallest / RATIO
    return larger if losses[largest] <= losses[_lowest(losses)] + HARM * f_0 else None


def choice(losses: Mapping[float, float], f_0: float) -> float:
    """The smallest step size that gains nearly as much as the best; where none gains, the largest that does no harm."""
    least = losses[_lowest(losses)]
    if _gains(losses, f_0):
        return min(zeta for zeta, loss in losses.items() if f_0 - loss >= NEARLY * (f_0 - least))
    if least == math.inf:
        return min(losses)
    return max(zeta for zeta, loss in losses.items() if loss <= least + HARM * f_0)


def tempered(zeta: float, usual: float) -> float:
    """Half-way, on a logarithmic scale, down to the usual step size: a few batches are not a long run."""
    return min(zeta, math.sqrt(zeta * usual))


def _gains(losses: Mapping[float, float], f_0: float) -> bool:
    return f_0 - losses[_lowest(losses)] > GAIN * f_0


def _lowest(losses: Mapping[float, float]) -> float:
    """The step size of the least loss; of equal ones the smallest."""
    return min(losses, key=lambda zeta: (losses[zeta], zeta))
