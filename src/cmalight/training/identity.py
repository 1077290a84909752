"""What defines a run, in words: a checkpoint belongs to this run if all of it is equal."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, TensorDataset

from cmalight.evaluation.batches import TensorBatches
from cmalight.training.data import length_of

_PLAIN = bool | int | float | complex | str | bytes | None
_PARTS: dict[type, tuple[str, ...]] = {
    functools.partial: ("func", "args", "keywords"),
    CodeType: ("co_names", "co_consts"),
    FunctionType: ("__code__", "__defaults__", "__kwdefaults__", "__closure__"),
}


def identity_of(
    model: nn.Module,
    loss_fn: Any,
    optimizers: Sequence[Optimizer],
    batches: Any,
    validation: Any,
    settings: Mapping[str, Any],
) -> dict[str, str]:
    """What defines a run, one text per part. Limits are not in it, so a finished run may resume with larger ones.

    A loss counts by its name and its constants; what it computes with them is not seen. Tensors in memory count by
    their content, other data by length, batch size and sampler. The first of the optimizers has the options.
    """
    shapes = [(name, tuple(p.shape), p.dtype) for name, p in model.named_parameters()]
    shown = str(loss_fn) if isinstance(loss_fn, nn.Module) else _name(loss_fn)
    return {
        "model": f"{sum(p.numel() for p in model.parameters())} parameters #{_digest([str(model), str(shapes)])}",
        "loss": f"{shown} #{_digest(_constants(loss_fn))}",
        "optimizer": "/".join(dict.fromkeys(map(_name, optimizers))),
        **_options(optimizers),
        "data": _data(batches),
        "batches": _batching(batches),
        "validation data": _data(validation),
        **{name: str(value) for name, value in settings.items()},
    }


def _digest(parts: Iterable[Tensor | str]) -> str:
    """A short digest of tensors, by their bytes, and texts, in hexadecimal digits."""
    checksum = hashlib.blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, str):
            checksum.update(part.encode())
        elif part.numel():
            here = part.detach().cpu().contiguous()  # torch itself gives bytes only by way of NumPy
            checksum.update((ctypes.c_char * (here.numel() * here.element_size())).from_address(here.data_ptr()))
    return checksum.hexdigest()


def _options(optimizers: Sequence[Optimizer]) -> dict[str, str]:
    known = {name for optimizer in optimizers for name in optimizer.defaults} - {"params"}
    groups = optimizers[0].param_groups
    return {
        f"option {name}" + (f" of group {number}" if len(groups) > 1 else ""): str(value)
        for number, group in enumerate(groups)
        for name, value in group.items()
        if name in known
    }


def _data(batches: Any) -> str:
    if batches is None:
        return "none"
    inside = batches.dataset if isinstance(batches, DataLoader) else batches
    if isinstance(inside, TensorBatches | TensorDataset):
        return f"{[tuple(t.shape) for t in inside.tensors]} #{_digest(inside.tensors)}"
    if isinstance(inside, list | tuple):
        tensors = [leaf for leaf in tree_leaves(inside) if isinstance(leaf, Tensor)]
        return f"{len(inside)} batches #{_digest(tensors)}"
    return f"{_name(inside)} of {length_of(batches)} batches"


def _batching(batches: Any) -> str:
    if isinstance(batches, TensorBatches):
        return f"{batches.batch_size}, {batches.order}, seed {batches.seed}"
    return f"{batches.batch_size}, {_name(batches.sampler)}" if isinstance(batches, DataLoader) else _name(batches)


def _name(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))


def _constants(thing: Any, depth: int = 8) -> list[Tensor | str]:
    """Names and constants of a loss: defaults, closures, public attributes, numbers in its code.

    What training changes does not count: tensors that require a gradient, and buffers except the class weights of
    torch's losses.
    """
    if isinstance(thing, Tensor):
        return [] if thing.requires_grad else [thing]
    if isinstance(thing, _PLAIN):
        return [repr(thing)]
    kind = type(thing)
    parts: list[Any] = [getattr(thing, name, None) for name in _PARTS.get(kind, ())]
    if isinstance(thing, list | tuple):
        parts = list(thing)
    elif isinstance(thing, CellType):
        parts = [] if thing == CellType() else [thing.cell_contents]
    elif isinstance(thing, dict):
        parts = list(thing.items())
    elif isinstance(thing, nn.Module):
        buffers = list(thing.named_buffers()) if kind.__module__ == "torch.nn.modules.loss" else []
        parts = [_public(thing), buffers, kind.forward, *thing.children()]
    elif callable(thing) and not parts and not isinstance(thing, type):
        parts = [_public(thing), kind.__call__]
    return [_name(thing), *(found for part in parts for found in _constants(part, depth - 1))] if depth else []


def _public(thing: Any) -> list[tuple[str, Any]]:
    """The attributes that tell one loss from another: numbers and texts, also in containers."""
    attributes = getattr(thing, "__dict__", {}).items()
    public = [(name, value) for name, value in attributes if name != "training" and not name.startswith("_")]
    return [(name, value) for name, value in public if isinstance(value, _PLAIN | list | tuple | dict)]
