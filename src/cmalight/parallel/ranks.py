"""The processes that train one model together: who they are, and how they come to the same figures.

Everything here does nothing in a single process, so that nobody else needs a special case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from cmalight.parallel.exchange import begin_sum
from cmalight.parallel.shards import group_of_shards, is_sharded

Rows = list[tuple[float, ...]]


@dataclass(frozen=True)
class Ranks:
    """One process of `size` that share an epoch; the one with number `rank`."""

    size: int
    rank: int
    group: Any
    device: torch.device

    @property
    def alone(self) -> bool:
        return self.size == 1

    def gather(self, *values: float) -> Rows:
        """Everybody's values in double precision, one row per rank: the same table everywhere, so the same decision."""
        return self.begin_gather(*values)()

    def begin_gather(self, *values: float) -> Callable[[], Rows]:
        """The same without waiting: what it gives is to be called once on every rank, or on none, and waits."""
        if self.alone:
            return lambda: [values]
        # A sum over tables in which only the own row is not 0: one message, and exact.
        count = len(values)
        numbers = [0.0] * (self.rank * count) + [*values] + [0.0] * ((self.size - 1 - self.rank) * count)
        table = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        summed = begin_sum(table, self.group)

        def wait() -> Rows:
            summed()
            flat = table.tolist()
            return [tuple(flat[first : first + count]) for first in range(0, len(flat), count)]

        return wait


ALONE = Ranks(1, 0, None, torch.device("cpu"))


def ranks_of(model: nn.Module | None, process_group: Any = None) -> Ranks:
    """Who shares the training of `model`.

    Args:
        process_group: given, it decides; False means nobody. By default it is the group of the model where that is
            wrapped in DDP or sharded by FSDP2, and else everybody, where torch.distributed is initialised.
    """
    if process_group is False or not (dist.is_available() and dist.is_initialized()):
        return ALONE
    group = process_group if process_group is not None else _group_of(model)
    size = dist.get_world_size(group)
    if size <= 1:
        return ALONE
    return Ranks(size, dist.get_rank(group), group, _device_for(group))


def ranks_for(objective: Any, model: nn.Module | None = None, process_group: Any = None) -> Ranks:
    """Who shares an epoch under `objective`, which may say so itself by an attribute `process_group`."""
    if process_group is None:
        process_group = getattr(objective, "process_group", None)
    return ranks_of(model if model is not None else getattr(objective, "model", None), process_group)


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside DDP: calling it broadcasts no buffers, which a pass of its own on each rank must not."""
    inner = getattr(model, "_orig_mod", model)
    return inner.module if isinstance(inner, DistributedDataParallel) else model


def is_distributed(model: nn.Module) -> bool:
    """Whether the model itself is made for several ranks: wrapped in DDP, or sharded."""
    return unwrapped(model) is not model or any(is_sharded(p) for p in model.parameters())


def _group_of(model: nn.Module | None) -> Any:
    if model is None:
        return None
    inner = getattr(model, "_orig_mod", model)
    if isinstance(inner, DistributedDataParallel):
        return inner.process_group
    return group_of_shards(inner)


def _device_for(group: Any) -> torch.device:
    """Where a collective of that group wants its tensors."""
    if any(name in dist.get_backend(group) for name in ("gloo", "mpi")):
        return torch.device("cpu")
    return torch.accelerator.current_accelerator() or torch.device("cpu")  # pragma: no cover - needs an accelerator
