"""The processes that train one model together, and the shards of parameters that each of them holds.

Everything here does nothing in a single process, so callers need no special case.
torch.distributed.tensor is slow to import, so it is used only if another module has imported it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cmalight.evaluation.randomness import current_accelerator

_SECONDS = 1.0  # to wait at most for gloo to release a tensor; microseconds as a rule


@dataclass(frozen=True)
class Ranks:
    """One process, with number `rank`, of the `size` that train together."""

    size: int
    rank: int
    group: Any
    device: torch.device

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.size == 1

    def gather(self, *values: float) -> list[tuple[float, ...]]:
        """Everybody's values in double precision, one row per rank: the same table on every rank."""
        if self.alone:
            return [values]
        # A sum of tables in which only the own row is not 0 is one message, and exact.
        count = len(values)
        table = torch.zeros(self.size, count, dtype=torch.float64)
        table[self.rank] = torch.tensor(values, dtype=torch.float64)
        table = table.to(self.device)
        _sum_over(table, self.group)
        return [tuple(row) for row in table.tolist()]

    def lengths(self, data: Any) -> list[int]:
        """Everybody's numbers of batches, each of them once; -1 stands for a stream."""
        try:
            own = len(data)
        except TypeError:
            own = -1
        return sorted({int(row[0]) for row in self.gather(own)})


ALONE = Ranks(1, 0, None, torch.device("cpu"))


def ranks_of(model: nn.Module | None, process_group: Any = None) -> Ranks:
    """Who shares the training of `model`.

    Args:
        model: May be wrapped in DDP or sharded by FSDP2, and then names the process group itself.
        process_group: Given, it decides; False means nobody. Without it and without such a model: everybody, where
            torch.distributed is initialised.
    """
    if process_group is False or not (dist.is_available() and dist.is_initialized()):
        return ALONE
    group = process_group if process_group is not None else _group_of(model)
    size = dist.get_world_size(group)
    if size <= 1:
        return ALONE
    return Ranks(size, dist.get_rank(group), group, _device_for(group))


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside DDP: calling it broadcasts no buffers, which an evaluation on one rank must not do."""
    inner = getattr(model, "_orig_mod", model)
    return inner.module if isinstance(inner, DistributedDataParallel) else model


def is_distributed(model: nn.Module) -> bool:
    """Whether the model is wrapped in DDP, or sharded."""
    return unwrapped(model) is not model or any(is_sharded(p) for p in model.parameters())


def communicates(model: nn.Module) -> bool:
    """Whether a forward pass talks to the other ranks, so that all must run equally many."""
    return any(is_sharded(p) for p in model.parameters()) or any(
        isinstance(m, nn.SyncBatchNorm) and m.training for m in model.modules()
    )


def is_sharded(tensor: Tensor) -> bool:
    """Whether it is a DTensor, of which each rank holds a part."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_parts(tensors: Sequence[Tensor]) -> list[Tensor]:
    """What this rank holds of each tensor: its shard, by reference, or all of it."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None:
        return list(tensors)
    with torch.no_grad():
        return [t.to_local() if isinstance(t, module.DTensor) else t for t in tensors]


def reshard(model: nn.Module | None) -> None:
    """Release the whole parameters that FSDP2 keeps after a forward pass: once the shards move, they are stale."""
    module = sys.modules.get("torch.distributed.fsdp")
    kind: Any = getattr(module, "FSDPModule", ())
    for part in model.modules() if model is not None and kind else ():
        if isinstance(part, kind):
            part.reshard()


def summed_over_shards(values: Sequence[Tensor], tensors: Sequence[Tensor]) -> Tensor:
    """The sum of one number per tensor; that of a sharded tensor is of the own shard only."""
    if not any(is_sharded(t) for t in tensors):
        return torch.stack([value.to(values[0].device) for value in values]).sum()
    total = torch.zeros((), dtype=values[0].dtype, device=values[0].device)
    by_place: dict[Any, Tensor] = {}
    for value, tensor in zip(values, tensors, strict=True):
        shard: Any = tensor
        place = (shard.device_mesh, shard.placements) if is_sharded(tensor) else None
        by_place[place] = by_place.get(place, torch.zeros_like(total)) + value.to(total)
    for place, value in by_place.items():
        if place is not None:
            mesh, placements = place
            for dimension, placement in enumerate(placements):
                if placement.is_shard():
                    _sum_over(value, mesh.get_group(dimension))
        total = total + value
    return total


def _sum_over(tensor: Tensor, group: Any) -> None:
    """Sums `tensor` over the ranks, in place.

    A thread of gloo's releases the tensor a moment after the sum is known, which aborts an interpreter that is just
    ending (pytorch issue 190489). So this waits for the release, which the reference count shows (torch 2.13).
    """
    references = sys.getrefcount(tensor)
    work: Any = dist.all_reduce(tensor, group=group, async_op=True)
    work.wait()
    del work  # it refers to the tensor, too
    if tensor.device.type == "cpu":
        deadline = time.monotonic() + _SECONDS
        while sys.getrefcount(tensor) > references and time.monotonic() < deadline:
            time.sleep(0)


def _group_of(model: nn.Module | None) -> Any:
    if model is None:
        return None
    inner = getattr(model, "_orig_mod", model)
    if isinstance(inner, DistributedDataParallel):
        return inner.process_group
    first: Any = next((p for p in model.parameters() if is_sharded(p)), None)
    return None if first is None or first.device_mesh.ndim != 1 else first.device_mesh.get_group()


def _device_for(group: Any) -> torch.device:
    """Where a collective of that group wants its tensors."""
    if any(name in dist.get_backend(group) for name in ("gloo", "mpi")):
        return torch.device("cpu")
    return current_accelerator() or torch.device("cpu")  # pragma: no cover - needs an accelerator
