"""Run something on a model and its loader, and leave no trace of it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from cmalight.snapshot import ModuleState

Restore = Callable[[], object]

# The attributes of a loader behind which random generators of its own are looked for.
_PARTS_OF_A_LOADER = ("sampler", "batch_sampler", "dataset", "datasets", "transform", "transforms")
_DEPTH = 4


@contextmanager
def undisturbed(model: nn.Module, loader: object) -> Iterator[None]:
    """Restores buffers, train/eval modes and random states, the loader's own generators included, at the end."""
    with ExitStack() as undo:
        undo.callback(_restore_modes, [(m, m.training) for m in model.modules()])
        undo.callback(ModuleState(model).restore)
        for restore in _random_states(model, loader):
            undo.callback(restore)
        yield


def _restore_modes(modes: list[tuple[nn.Module, bool]]) -> None:
    for module, training in modes:
        module.training = training


def _random_states(model: nn.Module, loader: object) -> Iterator[Restore]:
    """One call per source of randomness that puts it back to where it is now."""
    state = torch.get_rng_state()
    yield lambda: torch.set_rng_state(state)
    for device in {p.device for p in model.parameters() if p.device.type not in ("cpu", "meta")}:
        yield _device_state(device)
    python = random.getstate()
    yield lambda: random.setstate(python)
    if "numpy" in sys.modules:
        numpy_random: Any = sys.modules["numpy"].random
        legacy = numpy_random.get_state()
        yield lambda: numpy_random.set_state(legacy)
    yield from _own_generators(loader, _DEPTH, set())


def _device_state(device: torch.device) -> Restore:  # pragma: no cover - needs an accelerator
    module = torch.get_device_module(device)
    where = () if device.type == "mps" else (device,)
    state = module.get_rng_state(*where)
    return lambda: module.set_rng_state(state, *where)


def _own_generators(owner: object, depth: int, seen: set[int]) -> Iterator[Restore]:
    """The generators held by a loader, its samplers, its data set and its transforms."""
    if depth == 0 or id(owner) in seen or not hasattr(owner, "__dict__"):
        return
    seen.add(id(owner))
    for value in vars(owner).values():
        if id(value) not in seen and (restore := _generator_state(value)) is not None:
            seen.add(id(value))
            yield restore
    for name in _PARTS_OF_A_LOADER:
        part = getattr(owner, name, None)
        for member in part if isinstance(part, list | tuple) else (part,):
            yield from _own_generators(member, depth - 1, seen)


def _generator_state(value: Any) -> Restore | None:
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return lambda: value.set_state(state)
    if isinstance(value, random.Random):
        python = value.getstate()
        return lambda: value.setstate(python)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator.state
        return lambda: setattr(value.bit_generator, "state", bits)
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        legacy = value.get_state()
        return lambda: value.set_state(legacy)
    return None
