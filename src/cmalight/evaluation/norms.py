"""Sums of squares over many tensors, accumulated in double precision without a flat copy of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch._C._nn import flatten_dense_tensors

from cmalight.parallel.shards import are_whole, local, sum_over_shards

# A difference of two tensors is formed piece by piece, so that its memory stays below this many elements.
PIECE = 1 << 18
# A large tensor is summed up in rows of this length, and only the rows' sums in double precision.
_ROW = 1 << 10
_LONG = 32 * _ROW


def accumulation_dtype(device: torch.device) -> torch.dtype:
    """float64, or float32 on devices that have nothing wider."""
    return torch.float32 if device.type == "mps" else torch.float64


@torch.no_grad()
def sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    """Σ ‖t‖² as a 0-dim tensor on the device of the first tensor; waits for nothing, but for the holders of shards."""
    if are_whole(tensors):
        return _sum_of_squares(tensors)
    return sum_over_shards(tensors, lambda own: _sum_of_squares([local(tensors[i]) for i in own]))


def _sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    if (flat := _in_one(tensors)) is not None:
        return _squared(flat)
    device, dtype = tensors[0].device, tensors[0].dtype
    short: list[Tensor] = []
    norms: list[Tensor] = []
    alike = dtype in (torch.float32, torch.float64)
    for t in tensors:
        if t.numel() >= _LONG and t.dtype is torch.float32 and t.is_contiguous():
            norms.append(_norm_by_rows(t))
        else:
            short.append(torch.view_as_real(t) if t.is_complex() else t)
        alike = alike and t.dtype is dtype and t.device == device
    wide = accumulation_dtype(device)
    if short:
        # Norms of short tensors are exact enough in their own precision, and much cheaper than in double.
        norms += torch._foreach_norm(short, 2, dtype=None if alike else wide)
    if not alike or len(short) != len(tensors):
        norms = [n.to(device, wide) for n in norms]
    stacked = torch.stack(norms).to(wide)
    return torch.dot(stacked, stacked)


def _squared(flat: Tensor) -> Tensor:
    wide = flat.to(accumulation_dtype(flat.device))
    return torch.dot(wide, wide)


def _in_one(tensors: Sequence[Tensor], at_most: int = _LONG) -> Tensor | None:
    """Few numbers in one tensor, not to be changed: an operation on it takes a fraction of one on each of them."""
    if not tensors or (dtype := tensors[0].dtype) not in (torch.float32, torch.float64):
        return None
    device, elements = tensors[0].device, 0
    for t in tensors:
        elements += t.numel()
        if elements > at_most or t.dtype is not dtype or t.device != device or t.layout is not torch.strided:
            return None
    return flatten_dense_tensors(list(tensors))


def _norm_by_rows(tensor: Tensor) -> Tensor:
    """A norm in double precision would first make a double copy of the tensor; rows are exact enough in single."""
    flat = tensor.view(-1)
    whole = len(flat) // _ROW * _ROW
    dtype = accumulation_dtype(tensor.device)
    rows = torch.linalg.vector_norm(flat[:whole].view(-1, _ROW), dim=1).to(dtype)
    rest = torch.linalg.vector_norm(flat[whole:], dtype=dtype)
    together: Tensor = torch.linalg.vector_norm(torch.cat([rows, rest.unsqueeze(0)]))
    return together


@torch.no_grad()
def distance(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """‖left − right‖ over all tensors together."""
    if are_whole(left) and (a := _in_one(left)) is not None and (b := _in_one(right)) is not None:
        return math.sqrt(_squared(a - b).item())

    def over(own: Sequence[int]) -> Tensor:
        squares = [
            _sum_of_squares(pieces)
            for pieces in _differences([local(left[i]) for i in own], [local(right[i]) for i in own])
        ]
        return torch.stack([s.to(squares[0].device) for s in squares]).sum()

    return math.sqrt(float(sum_over_shards(left, over).item()))


def _differences(left: Sequence[Tensor], right: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    lefts: list[Tensor] = []
    rights: list[Tensor] = []
    elements = 0
    for a, b in _pieces(left, right):
        if lefts and elements + a.numel() > PIECE:
            yield list(torch._foreach_sub(lefts, rights))
            lefts, rights, elements = [], [], 0
        lefts.append(a)
        rights.append(b)
        elements += a.numel()
    if lefts:
        yield list(torch._foreach_sub(lefts, rights))


def _pieces(left: Sequence[Tensor], right: Sequence[Tensor]) -> Iterable[tuple[Tensor, Tensor]]:
    for a, b in zip(left, right, strict=True):
        if a.numel() <= PIECE or not (a.is_contiguous() and b.is_contiguous()):
            yield _wide(a), _wide(b)
            continue
        for x, y in zip(torch.split(a.view(-1), PIECE), torch.split(b.view(-1), PIECE), strict=True):
            yield _wide(x), _wide(y)


def _wide(tensor: Tensor) -> Tensor:
    """The difference of two half-precision numbers is not one itself: take it in float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


@torch.no_grad()
def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether every number in what this rank holds of them is: one pass, and one wait."""
    if are_whole(tensors) and (flat := _in_one(tensors, PIECE)) is not None and math.isfinite(flat.sum().item()):
        return True  # a finite sum has finite terms
    parts = [local(t) for t in tensors if t.is_floating_point() or t.is_complex()]
    parts = [t.coalesce().values() if t.is_sparse else t for t in parts]
    parts = [torch.view_as_real(t) if t.is_complex() else t for t in parts if t.numel()]
    small: dict[torch.device, list[Tensor]] = {}
    for t in parts:
        if t.numel() <= _LONG:
            small.setdefault(t.device, []).append(t.reshape(-1))
    # Many small tensors are looked at in one go; and a norm would take twenty times as long as the extremes.
    looked_at = [torch.cat(tensors) for tensors in small.values()] + [t for t in parts if t.numel() > _LONG]
    extremes = [value.to(accumulation_dtype(t.device)) for t in looked_at for value in torch.aminmax(t)]
    return not extremes or bool(torch.isfinite(torch.stack([e.to(extremes[0].device) for e in extremes])).all())
