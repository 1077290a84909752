"""Parameters of which each rank holds a shard (DTensor, FSDP2): the local part, and sums over all parts.

torch.distributed.tensor takes a while to import, so it is looked at only where somebody else has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.parallel.exchange import begin_sum


def is_sharded(tensor: Tensor) -> bool:
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def are_whole(tensors: Sequence[Tensor]) -> bool:
    """Whether this rank holds all of each."""
    return "torch.distributed.tensor" not in sys.modules or not any(map(is_sharded, tensors))


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: its shard, by reference, or all of it."""
    if not is_sharded(tensor):
        return tensor
    shard: Any = tensor
    with torch.no_grad():
        part: Tensor = shard.to_local()
    return part


def sum_over_shards(tensors: Sequence[Tensor], sum_of: Callable[[Sequence[int]], Tensor]) -> Tensor:
    """A sum over the elements of all `tensors`, the same on every rank that holds a shard of one.

    Args:
        sum_of: the sum over what this rank holds of the tensors with the given numbers.
    """
    if are_whole(tensors):
        return sum_of(range(len(tensors)))
    sums = [_over_ranks(sum_of(numbers), place) for place, numbers in _by_place(tensors).items()]
    return torch.stack([s.to(sums[0]) for s in sums]).sum()


def _by_place(tensors: Sequence[Tensor]) -> dict[Any, list[int]]:
    """The numbers of the tensors that are spread over ranks in the same way; None stands for whole ones."""
    places: dict[Any, list[int]] = {}
    for number, tensor in enumerate(tensors):
        shard: Any = tensor
        place = (shard.device_mesh, shard.placements) if is_sharded(tensor) else None
        places.setdefault(place, []).append(number)
    return places


def _over_ranks(value: Tensor, place: Any) -> Tensor:
    if place is not None:
        mesh, placements = place
        for dimension, placement in enumerate(placements):
            if placement.is_shard():
                begin_sum(value, mesh.get_group(dimension))()
    return value


def group_of_shards(model: nn.Module) -> Any:
    """The process group over which the parameters are sharded; None where there is none, or more than one."""
    first: Any = next((p for p in model.parameters() if is_sharded(p)), None)
    return None if first is None or first.device_mesh.ndim != 1 else first.device_mesh.get_group()


def reshard(model: nn.Module | None) -> None:
    """Let go of whole parameters that FSDP2 keeps after a forward pass: once the shards move, they are stale."""
    module = sys.modules.get("torch.distributed.fsdp")
    kind: Any = getattr(module, "FSDPModule", ())
    for part in model.modules() if model is not None and kind else ():
        if isinstance(part, kind):
            part.reshard()


def communicates(model: nn.Module) -> bool:
    """Whether a forward pass talks to the other ranks, so that all must run equally many."""
    return any(is_sharded(p) for p in model.parameters()) or any(
        isinstance(m, nn.SyncBatchNorm) and m.training for m in model.modules()
    )
