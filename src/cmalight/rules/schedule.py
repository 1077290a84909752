"""The schedule of the learning rate: warm-up, constant, linear decay.

The constants of its shape are those under which the recommended base was chosen (docs/results/auto.md).
"""

from __future__ import annotations

WARMUP = 0.05  # fraction of the run, at its start
DECAY = 0.4  # fraction of the run, at its end
LEAST_SCALE = 1e-30  # of a rule that lowers the learning rate: stays a normal number in single precision
_FLOOR = 1e-3  # least factor: of the first step, and of steps past the end


def warmed_up(progress: float) -> float:
    """Return the fraction of the peak learning rate that the warm-up has reached; 1 after it."""
    return min(1.0, max(_FLOOR, progress / WARMUP))


def factor(progress: float) -> float:
    """Return the factor of the learning rate when the fraction `progress` of the run is done."""
    return max(_FLOOR, min(warmed_up(progress), (1.0 - progress) / DECAY))
