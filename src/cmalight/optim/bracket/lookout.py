"""Early rejection: a few times in an epoch, whether it can still succeed."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from cmalight.optim.bracket.judge import Judge
from cmalight.optim.bracket.window import Window
from cmalight.parallel.ranks import Ranks, Rows

logger = logging.getLogger("cmalight")

# The shares of an epoch after which it is asked.
_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)


class Lookout:
    """Losses are not negative, so the sum so far bounds f̃ from below.

    Args:
        judge: Who says what is lost.
        ranks: Who share the epoch.
        samples: N, as far as it is known before.
        is_active: Whether the rule rejects early at all.

    Attributes:
        moments: When to ask next: after so many samples; on several ranks, after so many batches.
        samples: N.
        lower_bound: Of f̃, once the epoch was found to be lost.
        announced: The samples in all the batches that the loop was given.
    """

    def __init__(self, judge: Judge, ranks: Ranks, *, samples: float, is_active: bool) -> None:
        self.moments = [share * samples for share in _SHARES] if is_active else []
        self.samples = samples
        self.lower_bound = -math.inf
        self.announced = 0.0
        self._judge = judge
        self._ranks = ranks
        self._answer: Callable[[], Rows] | None = None  # under way

    def expect(self, batches: int, samples: float | None, *, is_first: bool) -> None:
        """Several ranks ask after the same batch, and not after one that only some have: else somebody would wait."""
        self.samples = max(self.samples, samples or 0.0)
        known = self.moments and (samples is not None or not is_first)
        moments = [math.ceil(share * batches) for share in _SHARES] if known else []
        self.moments = sorted({float(moment) for moment in moments if moment < batches})

    def has_to_look(self, progress: float) -> bool:
        """Whether it is time to ask, or an answer is under way."""
        return self._answer is not None or bool(self.moments and progress >= self.moments[0])

    @property
    def doubtful_above(self) -> float:
        """For an engine: what the mean so far has to exceed for the epoch to be possibly lost."""
        return self._judge.doubtful_above if self.moments else math.inf

    def passed(self, samples: float) -> None:
        """For an engine, which comes back where there is doubt: the moments before `samples` gave none."""
        self.moments = [moment for moment in self.moments if moment > samples]

    def sees_it_lost(self, window: Window, *, progress: float, is_comparable: bool) -> bool:
        """After a step; several ranks hear the answer a batch later, so that they need not wait for each other.

        Args:
            window: What was collected.
            progress: In the units of `moments`.
            is_comparable: Whether the counts so far are in the units of N.
        """
        if self._answer is not None and self._is_lost(self._answer()):
            return True
        self._answer = None
        if not self.has_to_look(progress):
            return False
        self.moments = [moment for moment in self.moments if progress < moment]
        self._answer = self._ranks.begin_gather(window.counts.total, is_comparable, *window.losses.value_and_lowest())
        if not self._ranks.alone:
            return False
        return self.sees_it_lost(window, progress=progress, is_comparable=is_comparable)

    def _is_lost(self, rows: Rows) -> bool:
        """Asked while the number of samples still to come is known."""
        if not (sum(row[0] for row in rows) < self.samples and all(row[1] for row in rows)):
            return False
        if min(row[3] for row in rows) < 0.0:
            logger.warning(
                "A loss was negative, so half an epoch says nothing of the rest: epochs are not rejected early."
            )
            self._judge.saw_a_negative_loss()
            self.moments.clear()
            return False
        self.lower_bound = sum(row[2] for row in rows) / self.samples
        return not math.isfinite(self.lower_bound) or self._judge.is_lost(self.lower_bound, self.moments.clear)


def exhaust_sampler(loader: object, iterator: Any) -> None:
    """Let a DataLoader's sampler draw the random numbers it would have drawn, so that the next epoch's order stays."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return  # the "sampler" of an IterableDataset never ends
    try:
        batches = len(loader)
    except TypeError:
        return
    for _ in itertools.islice(getattr(iterator, "_sampler_iter", ()), batches + 1):
        pass
