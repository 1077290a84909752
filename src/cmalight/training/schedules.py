"""Learning rate schedules: functions from the share of the run that is done, 0 to 1, to a factor of lr."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[float], float]


def cosine(share: float, *, warmup: float = 0.05) -> float:
    """Linear warm-up, then half a cosine to zero.

    Args:
        share: Share of the run that is done.
        warmup: Share of the run over which the learning rate warms up.

    Returns:
        The factor of lr.
    """
    if share < warmup:
        return share / warmup
    since = min(1.0, (share - warmup) / (1.0 - warmup)) if warmup < 1.0 else 1.0
    return 0.5 * (1.0 + math.cos(math.pi * since))


def wsd(share: float, *, warmup: float = 0.05, decay: float = 0.4) -> float:
    """Warm-up, stable, decay: linear warm-up, constant, linear decay to zero.

    Args:
        share: Share of the run that is done.
        warmup: Share of the run over which the learning rate warms up.
        decay: Share of the run over which the learning rate decays.

    Returns:
        The factor of lr.
    """
    rising = share / warmup if share < warmup else 1.0
    falling = (1.0 - share) / decay if share > 1.0 - decay else 1.0
    return min(rising, falling)
