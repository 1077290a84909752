"""Every source of random numbers that a pass over a model and its loader may draw from, to be saved and put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

# The attributes of a loader behind which generators of its own are looked for.
_PARTS_OF_A_LOADER = (
    "loader",
    "dataloader",
    "sampler",
    "batch_sampler",
    "dataset",
    "datasets",
    "transform",
    "transforms",
)
_DEPTH = 4


@dataclass(frozen=True)
class Source:
    """A random number generator: `get` gives its state as plain data, `put` sets it."""

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], object]


def sources(model: nn.Module | None, loader: object) -> list[Source]:
    """The global generators of torch, Python, NumPy and the model's devices, and those of the model and the loader."""
    seen: set[int] = set()
    modules = () if model is None else model.modules()
    own = [s for owner in modules for s in _own_generators(owner, 1, seen)]
    own += _own_generators(loader, _DEPTH, seen)
    return [
        Source("torch", torch.get_rng_state, torch.set_rng_state),
        *(_of_device(d) for d in _devices_of(model)),
        Source("python", random.getstate, random.setstate),
        *_of_numpy(),
        *(replace(source, name=f"own {number}") for number, source in enumerate(own)),
    ]


def _devices_of(model: nn.Module | None) -> list[torch.device]:
    parameters = () if model is None else model.parameters()
    devices = {p.device for p in parameters if p.device.type not in ("cpu", "meta")}
    return sorted(devices, key=str)


def _of_device(device: torch.device) -> Source:  # pragma: no cover - needs an accelerator
    module = torch.get_device_module(device)
    where = () if device.type == "mps" else (device,)
    return Source(str(device), lambda: module.get_rng_state(*where), lambda state: module.set_rng_state(state, *where))


def _of_numpy() -> list[Source]:
    numpy: Any = sys.modules.get("numpy")
    return [] if numpy is None else [_of_legacy_numpy(numpy.random)]


def _of_legacy_numpy(generator: Any) -> Source:
    def get() -> tuple[Any, ...]:
        name, keys, *rest = generator.get_state()
        return (name, keys.tolist(), *rest)

    return Source("numpy", get, generator.set_state)


def _own_generators(owner: object, depth: int, seen: set[int]) -> Iterator[Source]:
    """The generators held by a loader, its samplers, its data set and its transforms."""
    if depth == 0 or id(owner) in seen or not hasattr(owner, "__dict__"):
        return
    seen.add(id(owner))
    for value in vars(owner).values():
        if id(value) not in seen and (source := _source_or_none(value)) is not None:
            seen.add(id(value))
            yield source
    for name in _PARTS_OF_A_LOADER:
        part = getattr(owner, name, None)
        for member in part if isinstance(part, list | tuple) else (part,):
            yield from _own_generators(member, depth - 1, seen)


def _source_or_none(value: Any) -> Source | None:
    if isinstance(value, torch.Generator):
        return Source("torch", value.get_state, value.set_state)
    if isinstance(value, random.Random):
        return Source("python", value.getstate, value.setstate)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        return Source("numpy", lambda: bits.state, lambda state: setattr(bits, "state", state))
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        return _of_legacy_numpy(value)
    return None
