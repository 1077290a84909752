"""Random numbers of a training's own: from its seed alone, and the caller's go on as if none had been drawn."""

from __future__ import annotations

import logging
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from cmalight.evaluation.randomness import randomness_of, sources

logger = logging.getLogger("cmalight")

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def own_randomness(model: nn.Module, seed: int) -> Iterator[None]:
    """Random numbers that depend on the seed alone; the caller's go on afterwards as if nothing had been drawn.

    The generators are those of the whole process, so one thread at a time has them; a `fit` inside a callback has its
    own within those.
    """
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        logger.warning("Another fit is under way in a thread of this process: this one waits for its end.")
        _ONE_AT_A_TIME.acquire()
    try:
        before = [(source, source.get()) for source in sources(model, None)]
        torch.manual_seed(seed)
        random.seed(seed)
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(seed % (1 << 32))
        try:
            yield
        finally:
            for source, state in before:
                source.put(state)
    finally:
        _ONE_AT_A_TIME.release()


def warn_of_uncovered(model: nn.Module, feed: Any, loss_fn: Callable[..., Any]) -> None:
    """Of what measuring may change, and a checkpoint cannot hold."""
    found = randomness_of(model, loader=feed, loss_fn=loss_fn).uncovered
    if found:
        logger.warning(
            "%s: what measuring draws from it is not put back, and a checkpoint does not hold its state. "
            "Use a generator of torch, NumPy or Python, made before fit begins.",
            ", ".join(found),
        )
