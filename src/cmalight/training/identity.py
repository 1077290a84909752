"""What defines a run, in words: a checkpoint belongs to this run if all of it is equal."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Iterable, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, TensorDataset

from cmalight.evaluation.batches import TensorBatches
from cmalight.training.data import length_of
from cmalight.training.steps import PlainSteps

_PLAIN = bool | int | float | complex | str | bytes | None


def identity_of(
    model: nn.Module, loss_fn: Any, steps: PlainSteps, batches: Any, validation: Any, settings: Mapping[str, Any]
) -> dict[str, str]:
    """One text per part; limits are not in it, so a finished run may resume with larger ones.

    A loss counts by its name and its constants; what it computes with them is not seen. Tensors in memory count by
    their content, other data by length, batch size and sampler.
    """
    shapes = [(name, tuple(p.shape), p.dtype) for name, p in model.named_parameters()]
    optimizers = [steps.optimizer] if steps.base is steps.optimizer else [steps.optimizer, steps.base]
    shown = str(loss_fn) if isinstance(loss_fn, nn.Module) else _name(loss_fn)
    return {
        "model": f"{sum(p.numel() for p in model.parameters())} parameters #{digest([str(model), str(shapes)])}",
        "loss": f"{shown} #{digest(_constants(loss_fn))}",
        "optimizer": "/".join(_name(one) for one in optimizers),
        **_options(steps),
        "data": _data(batches),
        "batches": _batching(batches),
        "validation data": _data(validation),
        **{name: str(value) for name, value in settings.items()},
    }


def digest(parts: Iterable[Tensor | str]) -> str:
    """A short digest of tensors, by their bytes, and texts, in hexadecimal digits."""
    checksum = hashlib.blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, str):
            checksum.update(part.encode())
        elif part.numel():
            here = part.detach().cpu().contiguous()  # torch itself gives bytes only by way of NumPy
            checksum.update((ctypes.c_char * (here.numel() * here.element_size())).from_address(here.data_ptr()))
    return checksum.hexdigest()


def _options(steps: PlainSteps) -> dict[str, str]:
    known = {*steps.optimizer.defaults, *steps.base.defaults} - {"params"}
    groups = steps.optimizer.param_groups
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
        return f"{[tuple(t.shape) for t in inside.tensors]} #{digest(inside.tensors)}"
    if isinstance(inside, list | tuple):
        tensors = [leaf for leaf in tree_leaves(inside) if isinstance(leaf, Tensor)]
        return f"{len(inside)} batches #{digest(tensors)}"
    return f"{_name(inside)} of {length_of(batches)} batches"


def _batching(batches: Any) -> str:
    if isinstance(batches, TensorBatches):
        return f"{batches.batch_size}, {batches.order}, seed {batches.seed}"
    return f"{getattr(batches, 'batch_size', None)}, {_name(getattr(batches, 'sampler', None))}"


def _name(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))


def _constants(thing: Any, depth: int = 8) -> list[Tensor | str]:
    """Names and constants of a loss: defaults, closures, attributes, numbers in its code.

    What training changes does not count: tensors that require a gradient, and buffers except the class weights of
    torch's losses.
    """
    kind = type(thing)
    name = f"{getattr(thing, '__module__', kind.__module__)}.{_name(thing)}"
    parts: list[Any] = []
    if isinstance(thing, Tensor):
        return [] if thing.requires_grad else [thing]
    if isinstance(thing, _PLAIN):
        return [repr(thing)]
    if isinstance(thing, list | tuple):
        parts = list(thing)
    elif isinstance(thing, dict):
        parts = [*thing.items()]
    elif isinstance(thing, functools.partial):
        parts = [thing.func, thing.args, thing.keywords]
    elif isinstance(thing, CodeType):
        parts = [thing.co_names, thing.co_consts]
    elif isinstance(thing, FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or () if cell != CellType()]
        parts = [thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells]
    elif isinstance(thing, nn.Module):
        plain = {k: v for k, v in vars(thing).items() if k != "training" and _is_told(k, v)}
        is_torchs_loss = kind.__module__ == "torch.nn.modules.loss"
        parts = [plain, dict(thing.named_buffers()) if is_torchs_loss else {}, kind.forward, *thing.children()]
    elif callable(thing) and not isinstance(thing, type) and hasattr(thing, "__dict__"):
        parts = [{k: v for k, v in vars(thing).items() if _is_told(k, v)}, kind.__call__]
    return [name, *(found for part in parts for found in _constants(part, depth - 1))] if depth else [name]


def _is_told(name: str, value: Any) -> bool:
    """Whether an attribute of a loss tells one loss from another: public numbers and texts, also in containers."""
    return not name.startswith("_") and isinstance(value, _PLAIN | list | tuple | dict)
