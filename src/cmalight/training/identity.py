"""What defines a run, in words: a checkpoint is of this run where all of it is equal."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.evaluation.batches import TensorBatches
from cmalight.training.data import length_of


def identity_of(
    model: nn.Module, loss_fn: Any, optimizer: Optimizer, batches: Any, validation: Any, settings: Mapping[str, Any]
) -> dict[str, str]:
    """One text per part; limits are not in it, so a finished run may resume with larger ones.

    Args:
        model: By its layers and the shapes of its parameters.
        loss_fn: A module by its layers, a function by its name.
        optimizer: By its type and the options of its groups.
        batches: Tensors in memory by their content, other loaders by length, batch size and sampler.
        validation: Likewise.
        settings: Further parts by name.
    """
    shapes = [(name, tuple(p.shape), p.dtype) for name, p in model.named_parameters()]
    return {
        "model": f"{sum(p.numel() for p in model.parameters())} parameters #{_digest([str(model), str(shapes)])}",
        "loss": repr(loss_fn) if isinstance(loss_fn, nn.Module) else _name(loss_fn),
        "optimizer": "/".join(_name(one) for one in (optimizer, getattr(optimizer, "base", None)) if one is not None),
        **_options(optimizer),
        "data": _data(batches),
        "batches": _batching(batches),
        "validation data": _data(validation),
        **{name: str(value) for name, value in settings.items()},
    }


def _options(optimizer: Optimizer) -> dict[str, str]:
    known = {*optimizer.defaults, *getattr(getattr(optimizer, "base", None), "defaults", ())}
    groups = optimizer.param_groups
    return {
        f"option {name}" + (f" of group {number}" if len(groups) > 1 else ""): str(value)
        for number, group in enumerate(groups)
        for name, value in group.items()
        if name in known and name != "params"
    }


def _data(batches: Any) -> str:
    if batches is None:
        return "none"
    tensors = getattr(batches, "tensors", getattr(getattr(batches, "dataset", None), "tensors", None))
    if tensors is not None:
        return f"{[tuple(t.shape) for t in tensors]} #{_digest(tensors)}"
    return f"{_name(batches)} of {length_of(batches)} batches"


def _batching(batches: Any) -> str:
    if isinstance(batches, TensorBatches):
        return f"{batches.batch_size}, {batches.order}, seed {batches.seed}"
    return f"{getattr(batches, 'batch_size', None)}, {_name(getattr(batches, 'sampler', None))}"


def _name(thing: object) -> str:
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))


def _digest(parts: Iterable[Tensor | str]) -> str:
    checksum = hashlib.blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, str):
            checksum.update(part.encode())
        elif part.numel():
            here = part.detach().cpu().contiguous()  # torch itself gives bytes only by way of NumPy
            checksum.update((ctypes.c_char * (here.numel() * here.element_size())).from_address(here.data_ptr()))
    return checksum.hexdigest()
