"""Norms over many tensors, in double precision, each with one wait for the device at most."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from cmalight.evaluation.ranks import local_parts, summed_over_shards

# A norm in double precision makes a double copy of its tensor, so it is taken over pieces of this length.
_PIECE = 1 << 20


def accumulation_dtype(device: torch.device) -> torch.dtype:
    """float64, or float32 on devices that have nothing wider."""
    return torch.float32 if device.type == "mps" else torch.float64


@torch.no_grad()
def sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    """Σ ‖t‖² as a 0-dim tensor on the device of the first tensor; shards are summed over their holders."""
    parts = _real(local_parts(tensors))
    norms = torch._foreach_norm(parts, 2, dtype=accumulation_dtype(parts[0].device))
    return summed_over_shards([n.to(parts[0].device).square() for n in norms], tensors)


@torch.no_grad()
def distance(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """‖left − right‖ over all tensors together; `right` holds local shards where `left` is sharded."""
    pairs = zip(_real(local_parts(left)), _real(right), strict=True)
    return math.sqrt(float(summed_over_shards([_squared_distance(a, b) for a, b in pairs], left)))


def _squared_distance(a: Tensor, b: Tensor) -> Tensor:
    dtype = accumulation_dtype(a.device)
    total = torch.zeros((), dtype=dtype, device=a.device)
    pieces = (torch.split(t.reshape(-1), _PIECE) for t in (a, b))
    for x, y in zip(*pieces, strict=True):
        difference = x.to(dtype) - y.to(dtype)
        total += torch.dot(difference, difference)
    return total


@torch.no_grad()
def finite_flags(tensors: Sequence[Tensor]) -> list[bool]:
    """Whether each tensor has finite numbers only; integers always do. One wait for all of them."""
    numbers = [i for i, t in enumerate(tensors) if (t.is_floating_point() or t.is_complex()) and t.numel()]
    flags = [True] * len(tensors)
    if numbers:
        counted = _real([tensors[i] for i in numbers])
        largest = torch._foreach_norm(counted, math.inf)
        device, dtype = largest[0].device, accumulation_dtype(largest[0].device)
        found = torch.isfinite(torch.stack([value.to(device, dtype) for value in largest])).tolist()
        for number, is_finite in zip(numbers, found, strict=True):
            flags[number] = is_finite
    return flags


def _real(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Complex numbers as pairs, sparse tensors as their values, numbers of one byte in a format that has norms."""
    dense = [t.detach() if t.layout is torch.strided else _values(t.detach()) for t in tensors]
    wide = [t.float() if t.dtype.itemsize == 1 else t for t in dense]
    return [torch.view_as_real(t) if t.is_complex() else t for t in wide]


def _values(sparse: Tensor) -> Tensor:
    return (sparse.coalesce() if sparse.is_sparse else sparse).values()
