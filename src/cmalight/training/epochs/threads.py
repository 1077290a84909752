"""How many threads a training is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_PRODUCTS_WORTH_THREADS = 4_000_000  # multiplications in a step


@contextmanager
def limited_threads(threads: int | None, model: nn.Module, feed: Any) -> Iterator[None]:
    """Sets the threads of torch for a training; at the end there are as many as before.

    Args:
        threads: None takes one for small steps over a table: threads that wait for each other after every small
            product cost more than they bring. Else as many as torch has.
        model: that is trained.
        feed: the data, as `fit` iterates it.
    """
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    elif _has_small_steps(model, feed):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _has_small_steps(model: nn.Module, feed: Any) -> bool:
    """Only where the work can be counted: rows of numbers, and no weight that is used more than once for a row."""
    tensors = getattr(feed, "tensors", getattr(getattr(feed, "dataset", None), "tensors", None))
    batch_size = getattr(feed, "batch_size", None)
    if not tensors or not isinstance(tensors[0], Tensor) or tensors[0].dim() != 2 or not isinstance(batch_size, int):
        return False
    if any(parameter.dim() > 2 for parameter in model.parameters()):
        return False
    return batch_size * sum(parameter.numel() for parameter in model.parameters()) < _PRODUCTS_WORTH_THREADS
