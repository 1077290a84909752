"""What a step depends on beside tensors, as far as it is easily found: if it changes, the step is recorded anew."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import nn

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_TORCHS = frozenset(vars(nn.Module())) - {"training"}
_DEPTH = 3
# A vocabulary is not looked through before every epoch.
_MOST = 1000


def surroundings(model: nn.Module, loss_fn: object) -> list[object]:
    """Modules, their buffers, and numbers and texts, alone or in containers, that they or the loss function read."""
    modules = [*model.modules(), *(loss_fn.modules() if isinstance(loss_fn, nn.Module) else ())]
    found: list[object] = []
    for module in modules:
        kind = type(module)
        found += [kind, id(module), *map(id, module._buffers.values())]
        found += [(name, _seen(value, _DEPTH)) for name, value in vars(module).items() if name not in _TORCHS]
        if not kind.__module__.startswith("torch."):
            found += _around(kind.forward)
    if not isinstance(loss_fn, nn.Module):
        found += _around(loss_fn)
    return found


def _around(function: Any) -> Iterator[tuple[str, object]]:
    """What a function finds outside of itself."""
    if not isinstance(function, FunctionType):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, _seen(cell.cell_contents, _DEPTH)
        except ValueError:  # it is empty
            continue
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield name, _seen(function.__globals__[name], _DEPTH)


def _seen(value: object, depth: int) -> object:
    """A copy of what is plain in it."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict | list | tuple | set | frozenset) and depth:
        if len(value) > _MOST:
            return len(value)
        if isinstance(value, dict):
            return tuple((_seen(key, depth - 1), _seen(one, depth - 1)) for key, one in value.items())
        return tuple(_seen(one, depth - 1) for one in value)
    return None
