"""How many threads a training is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

_PRODUCTS_WORTH_THREADS = 4_000_000  # multiplications in a step


@contextmanager
def one_thread_for_small_steps(network: nn.Module, batch_size: int) -> Iterator[None]:
    """Threads that wait for each other after every small product cost more than they bring."""
    before = torch.get_num_threads()
    products = batch_size * sum(parameter.numel() for parameter in network.parameters())
    if products < _PRODUCTS_WORTH_THREADS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
