"""Everything that some objects can reach: their attributes, what containers hold, what functions refer to."""

from __future__ import annotations

import functools
import itertools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

# Of a longer container only so many members are looked at: more is data, not machinery.
_MEMBERS = 1000
# A walk that has met so many objects has left what belongs to a training.
_OBJECTS = 50_000
# Objects of these libraries hold data, or refer to everything; an own subclass of one is looked into.
_CLOSED = frozenset(
    (sys.stdlib_module_names - {"__main__"})
    | {"numpy", "pandas", "pyarrow", "polars", "scipy", "PIL", "h5py", "tqdm", "rich"}
    | {"lightning", "lightning_fabric", "pytorch_lightning", "torchmetrics"}
)
_OF_OTHERS = _CLOSED | {"torch", "torchvision", "torchaudio", "cmalight", "accelerate"}
_CLOSED_PARTS_OF_TORCH = ("torch._dynamo", "torch._inductor", "torch.fx", "torch.distributed", "torch._C")
_LEAVES = (str, bytes, bytearray, int, float, complex, type(None), Tensor, torch.dtype, torch.device, torch.Size)
_QUICKLY_PASSED = frozenset((str, int, float, bool, type(None)))

Part = tuple[str, Any]


class MoreObjects:
    """Stands for what a walk did not look at any more."""


def reachable(roots: Mapping[str, object]) -> Iterator[Part]:
    """Every object that can be reached, once, with the path on which it was found; nearer ones come first.

    Looks at attributes, slots, containers, closures, defaults, partials, bound methods, and at the globals that own
    functions and the methods of own classes name. Calls nothing, so that properties do not run.

    Args:
        roots: the objects to begin with, by name.
    """
    met: dict[int, Any] = {}  # holds what was met, so that no id is given away again
    waiting = deque(roots.items())
    while waiting:
        path, thing = waiting.popleft()
        kind: Any = type(thing)
        if id(thing) in met or (parts := _parts_of(kind)) is _no_parts:
            continue
        if len(met) >= _OBJECTS:
            yield path, MoreObjects()
            return
        met[id(thing)] = thing
        yield path, thing
        waiting.extend(parts(path, thing))


@functools.lru_cache(maxsize=4096)
def _parts_of(kind: type) -> Callable[[str, Any], Iterable[Part]]:
    """How to look into objects of that type."""
    for base, parts in _SPECIAL.items():
        if issubclass(kind, base):
            return parts
    root = kind.__module__.partition(".")[0]
    if root in _CLOSED or kind.__module__.startswith(_CLOSED_PARTS_OF_TORCH):
        return _nothing
    return _of_object


def _no_parts(_path: str, _thing: Any) -> Iterable[Part]:
    """Of a leaf, which is not even met."""
    return ()


def _nothing(_path: str, _thing: Any) -> Iterable[Part]:
    return ()


def _of_dict(path: str, thing: dict[Any, Any]) -> Iterator[Part]:
    members = dict.items(thing) if isinstance(thing, dict) else thing.items()  # a mapping proxy has no own code
    for number, (key, value) in enumerate(itertools.islice(members, _MEMBERS)):
        yield f"{path}[{repr(key) if isinstance(key, str | int) else number}]", value


def _of_sequence(path: str, thing: Any) -> Iterator[Part]:
    # Not by an __iter__ of its own: that of a loader which is a list may do anything.
    kind: Any = next(base for base in (list, tuple, deque, set, frozenset) if isinstance(thing, base))
    members = itertools.islice(kind.__iter__(thing), _MEMBERS)
    return ((f"{path}[{number}]", member) for number, member in enumerate(members))


def _of_module(path: str, thing: nn.Module) -> Iterator[Part]:
    for name, value in tuple(vars(thing).items()):
        if type(value) in _QUICKLY_PASSED or (isinstance(value, dict) and not value):
            continue
        if name == "_modules":
            yield from ((f"{path}.{child}", module) for child, module in value.items())
        elif name not in ("_parameters", "_buffers"):
            yield f"{path}.{name}", value
    yield from _own_class(path, thing)


def _of_object(path: str, thing: Any) -> Iterator[Part]:
    for name, value in tuple(getattr(thing, "__dict__", {}).items()):
        if type(value) not in _QUICKLY_PASSED:
            yield f"{path}.{name}", value
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if isinstance(kind.__dict__.get(name), types.MemberDescriptorType) and hasattr(thing, name):
                yield f"{path}.{name}", getattr(thing, name)
    yield from _own_class(path, thing)


def _own_class(path: str, thing: object) -> Iterator[Part]:
    kind: Any = type(thing)
    if _is_partly_own(kind):
        yield f"{path}.{kind.__name__}", kind


@functools.lru_cache(maxsize=4096)
def _is_partly_own(kind: type) -> bool:
    return any(_is_own(base.__module__) for base in kind.__mro__)


def _of_type(path: str, thing: type) -> Iterator[Part]:
    """Of an own class what it and its own bases define."""
    for kind in thing.__mro__:
        if _is_own(kind.__module__):
            for name, value in kind.__dict__.items():
                if not name.startswith("__") or callable(value):
                    yield f"{path}.{name}", value


def _of_function(path: str, thing: types.FunctionType) -> Iterator[Part]:
    code = thing.__code__
    for name, cell in zip(code.co_freevars, thing.__closure__ or (), strict=True):
        try:
            yield f"{path}.{name}", cell.cell_contents
        except ValueError:  # not bound yet
            continue
    for number, default in enumerate(thing.__defaults__ or ()):
        yield f"{path}.default{number}", default
    yield from _of_dict(path, thing.__kwdefaults__ or {})
    yield from _of_dict(path, thing.__dict__)
    if _is_own(thing.__module__ or ""):
        yield from _globals_of(path, thing)


def _globals_of(path: str, thing: types.FunctionType) -> Iterator[Part]:
    names = _names_in(thing.__code__)
    for name in names:
        value = thing.__globals__.get(name)
        if isinstance(value, types.ModuleType) and _is_own(value.__name__):
            yield from ((f"{path}.{name}.{inner}", vars(value)[inner]) for inner in names if inner in vars(value))
        elif value is not None:
            yield f"{path}.{name}", value


@functools.lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """The names that a function and those inside it look up."""
    inner = (_names_in(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return tuple(dict.fromkeys((*code.co_names, *itertools.chain(*inner))))


def _is_own(module: str) -> bool:
    """Written by whoever trains: not part of Python, of torch, or of a library known to us."""
    return module.partition(".")[0] not in _OF_OTHERS


# In this order: the first that fits is taken.
_SPECIAL: dict[type | tuple[type, ...], Callable[[str, Any], Iterable[Part]]] = {
    (*_LEAVES, types.ModuleType): _no_parts,
    nn.Module: _of_module,
    dict: _of_dict,
    (list, tuple, deque, set, frozenset): _of_sequence,
    types.MappingProxyType: _of_dict,
    types.FunctionType: _of_function,
    types.MethodType: lambda path, thing: ((f"{path}.self", thing.__self__), (path, thing.__func__)),
    types.BuiltinMethodType: lambda path, thing: ((f"{path}.self", thing.__self__),),
    functools.partial: lambda path, thing: (
        (f"{path}.func", thing.func),
        (f"{path}.args", thing.args),
        (f"{path}.keywords", thing.keywords),
    ),
    (staticmethod, classmethod): lambda path, thing: ((path, thing.__func__),),
    property: lambda path, thing: ((path, thing.fget), (path, thing.fset)),
    types.SimpleNamespace: _of_object,
    type: _of_type,
}
