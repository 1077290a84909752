"""What a run sets in its process and puts back at its end: random numbers and threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.evaluation.randomness import random_state_kept, seed_everything

_PRODUCTS_WORTH_THREADS = 4_000_000  # multiplications in a step
_ONE_AT_A_TIME = threading.RLock()


def one_at_a_time() -> AbstractContextManager[bool]:
    """Generators are process-wide, so a second fit() in another thread waits."""
    return _ONE_AT_A_TIME


@contextmanager
def seeded(model: nn.Module, seed: int) -> Iterator[None]:
    """Random numbers that depend on the seed alone; afterwards the caller's go on as if nothing had been drawn."""
    with random_state_kept(model):
        seed_everything(seed)
        yield


@contextmanager
def limited_threads(threads: int | None, model: nn.Module, batches: Any) -> Iterator[None]:
    """Sets the number of torch's threads for a training; at the end there are as many as before.

    None takes one for small steps over a table, because threads that wait for each other after every small product
    cost more than they bring; else as many as torch has.
    """
    before = torch.get_num_threads()
    if threads is None and _has_small_steps(model, batches):
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _has_small_steps(model: nn.Module, batches: Any) -> bool:
    """Only if the work can be counted: rows of numbers, and no weight that is used more than once for a row."""
    tensors = getattr(batches, "tensors", getattr(getattr(batches, "dataset", None), "tensors", None))
    batch_size = getattr(batches, "batch_size", None)
    if not tensors or not isinstance(tensors[0], Tensor) or tensors[0].dim() != 2 or not isinstance(batch_size, int):
        return False
    if any(parameter.dim() > 2 for parameter in model.parameters()):
        return False
    return batch_size * sum(parameter.numel() for parameter in model.parameters()) < _PRODUCTS_WORTH_THREADS
