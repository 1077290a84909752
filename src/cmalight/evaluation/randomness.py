"""Every source of random numbers that a pass over a model and its data may draw from, to be saved and put back."""

from __future__ import annotations

import contextlib
import functools
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from cmalight.evaluation.reachable import MoreObjects, reachable

# Positions in the memory of NumPy's generators, and flags: what is beyond them is not checked by NumPy.
_LIMITS = {"pos": 625, "buffer_pos": 5, "has_gauss": 2, "has_uint32": 2, "uinteger": 1 << 32, "key": 1 << 64}


@dataclass(frozen=True)
class RandomSource:
    """A random number generator.

    Attributes:
        name: where it was found, the same in every process that builds the same objects.
        get: gives its state as plain data.
        put: sets the state; of one from a file `check` has to be asked first.
        seed: sets the state that belongs to a number.
        check: raises ValueError for a state that `put` would take, and should not.
    """

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], object]
    seed: Callable[[int], object]
    check: Callable[[Any], object] = lambda _: None


@dataclass(frozen=True)
class Randomness:
    """What was found.

    Attributes:
        sources: what can be saved and put back.
        uncovered: where there is something that cannot, and what it is.
    """

    sources: tuple[RandomSource, ...]
    uncovered: tuple[str, ...]


def sources(model: nn.Module | None, loader: object, loss_fn: object = None) -> tuple[RandomSource, ...]:
    """What a pass over a loader may draw from: the sources of `randomness_of`."""
    return randomness_of(model, loader=loader, loss_fn=loss_fn).sources


def randomness_of(model: nn.Module | None, **others: object) -> Randomness:
    """Looks for all random numbers that these objects may use.

    Args:
        model: its devices have generators, too.
        **others: what else is used, by name: a loader with its samplers, its data set, its collate function and its
            transforms; a loss function; ...

    Returns:
        The generators of torch, Python, NumPy and the model's devices, and those that can be reached from the objects.
    """
    own: list[RandomSource] = []
    uncovered: list[str] = []
    known = _global_generators()
    for path, thing in reachable({"model": model, **others}):
        kind: Any = type(thing)
        if _is_uncovered(kind):
            uncovered.append(f"{path} ({kind.__name__})")
        elif (found := _source_or_none(path, thing)) is not None and id(found[0]) not in known:
            known.add(id(found[0]))
            own.append(found[1])
    shared = [
        # Not torch.manual_seed: it seeds the generators of all devices, and is slow where there are none.
        RandomSource("torch", torch.get_rng_state, torch.set_rng_state, torch.default_generator.manual_seed),
        *(_of_device(d) for d in _devices_of(model)),
        RandomSource("python", random.getstate, random.setstate, random.seed),
    ]
    if (numpy := sys.modules.get("numpy")) is not None:
        shared.append(_of_legacy_numpy("numpy", numpy.random))
    return Randomness((*shared, *own), tuple(uncovered))


# Modules of torch's that draw no random numbers in a forward pass: most networks have no others.
_STILL = frozenset(
    kind
    for kind in (*vars(nn.modules.activation).values(), *vars(nn.modules.loss).values())
    if isinstance(kind, type) and issubclass(kind, nn.Module)
) - {nn.Module, nn.RReLU, nn.MultiheadAttention, nn.TripletMarginWithDistanceLoss} | {
    nn.Linear,
    nn.Flatten,
    nn.Identity,
}


def draws_nothing(model: nn.Module, *functions: object) -> bool:
    """Whether it is certain that a forward pass of the model, and calling the functions, draws no random numbers."""
    if nn.modules.module._global_forward_hooks or nn.modules.module._global_forward_pre_hooks:
        return False
    return all(map(_is_plain, (*model.modules(), *functions)))


@functools.lru_cache(maxsize=4096)
def _is_still(kind: Any) -> bool:
    """One of these, or what only calls its parts, one after the other."""
    if not issubclass(kind, nn.Sequential):
        return kind in _STILL
    return all(getattr(kind, name) is getattr(nn.Sequential, name) for name in ("forward", "__call__", "__iter__"))


def _is_plain(module: Any) -> bool:
    kind: Any = type(module)
    return _is_still(kind) and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _devices_of(model: nn.Module | None) -> list[torch.device]:
    parameters = () if model is None else model.parameters()
    devices = {p.device for p in parameters if p.device.type not in ("cpu", "meta")}
    return sorted(devices, key=str)


def _of_device(device: torch.device) -> RandomSource:  # pragma: no cover - needs an accelerator
    module = torch.get_device_module(device)
    where = () if device.type == "mps" else (device,)
    return RandomSource(
        str(device),
        lambda: module.get_rng_state(*where),
        lambda state: module.set_rng_state(state, *where),
        module.manual_seed_all if hasattr(module, "manual_seed_all") else module.manual_seed,
    )


def _global_generators() -> set[int]:
    """Those that the global functions draw from: they are sources by themselves."""
    generators: list[Any] = [torch.default_generator, getattr(random, "_inst", None)]
    if (numpy := sys.modules.get("numpy")) is not None:
        generators.append(getattr(numpy.random.mtrand, "_rand", None))
    return {id(generator) for generator in generators}


def _source_or_none(path: str, thing: Any) -> tuple[object, RandomSource] | None:
    """With the object that holds the state: two of NumPy's generators may share one."""
    if isinstance(thing, torch.Generator):
        return thing, RandomSource(path, thing.get_state, thing.set_state, thing.manual_seed)
    if isinstance(thing, random.Random):
        return thing, RandomSource(path, thing.getstate, thing.setstate, thing.seed)
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(thing, numpy.random.RandomState):
        return thing, _of_legacy_numpy(path, thing)
    bits = thing.bit_generator if isinstance(thing, numpy.random.Generator) else thing
    if isinstance(bits, numpy.random.BitGenerator):
        return bits, _of_bits(path, bits)
    return None


def _of_bits(name: str, bits: Any) -> RandomSource:
    def get() -> Any:
        return _plain(bits.state)

    def put(state: Any) -> None:
        bits.state = _arrays(state)

    def seed(number: int) -> None:
        bits.state = type(bits)(number).state

    return RandomSource(name, get, put, seed, lambda state: _check(state, get()))


def _of_legacy_numpy(name: str, generator: Any) -> RandomSource:
    def get() -> Any:
        return _plain(generator.get_state(legacy=False))

    def put(state: Any) -> None:
        generator.set_state(_arrays(state))

    def seed(number: int) -> None:
        with contextlib.suppress(TypeError):  # on another bit generator than its own it has no seed
            generator.seed(number % (1 << 32))

    return RandomSource(name, get, put, seed, lambda state: _check(state, get()))


def _plain(state: Any) -> Any:
    """NumPy's arrays and numbers in a state as lists and numbers, which a file can hold without pickling code."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if hasattr(state, "tolist") else state


def _arrays(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _arrays(value) for key, value in state.items()}
    return sys.modules["numpy"].array(state, dtype="uint64") if isinstance(state, list) else state


def _check(state: Any, own: Any, key: str = "state") -> None:
    """NumPy takes any numbers, and then reads beyond its memory."""
    if isinstance(own, dict):
        if not isinstance(state, dict) or state.keys() != own.keys():
            raise ValueError(f"the {key} of a NumPy generator has the keys {sorted(own)}")
        for name in own:
            _check(state[name], own[name], name)
    elif isinstance(own, list):
        if not isinstance(state, list) or len(state) != len(own):
            raise ValueError(f"the {key} of a NumPy generator is {len(own)} numbers")
        for one, other in zip(state, own, strict=True):
            _check(one, other, key)
    elif type(state) is not type(own) or (isinstance(own, str) and state != own):
        raise ValueError(f"the {key} of a NumPy generator is {own!r} or the like")
    elif isinstance(own, int) and not 0 <= state < _LIMITS.get(key, 1 << 128):
        raise ValueError(f"the {key} of a NumPy generator is too large or negative")


@functools.lru_cache(maxsize=4096)
def _is_uncovered(kind: type) -> bool:
    """Has a state that no one can read: an iterator under way, the system's random numbers, Sobol's sequence."""
    if issubclass(kind, random.SystemRandom | torch.quasirandom.SobolEngine | MoreObjects):
        return True
    return hasattr(kind, "__next__") and kind.__module__ in ("builtins", "itertools")
