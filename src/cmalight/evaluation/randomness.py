"""The global random number generators: torch's, those of the devices in use, Python's and NumPy's.

Generators that a data set or a transform keeps for itself are not looked for: seed those in the data set.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_NUMPY_SEEDS = 1 << 32


def devices_of(model: nn.Module | None) -> tuple[torch.device, ...]:
    """The accelerators that hold its parameters: their generators draw dropout masks."""
    found = {p.device for p in model.parameters()} if model is not None else set()
    return tuple(sorted((d for d in found if d.type not in ("cpu", "meta")), key=str))


def get_random_state(devices: tuple[torch.device, ...] = ()) -> dict[str, Any]:
    """The states of the global generators as tensors and plain numbers, which a checkpoint can hold."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    for device in devices:  # pragma: no cover - needs an accelerator
        state[str(device)] = torch.get_device_module(device).get_rng_state(*_where(device))
    if (numpy := sys.modules.get("numpy")) is not None:
        name, keys, *rest = numpy.random.get_state()
        state["numpy"] = [name, keys.tolist(), *rest]
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Put back what `get_random_state` gave; a generator that is not in it is left alone.

    Args:
        state: Also one that went through a file, where tuples may have become lists.

    Raises:
        ValueError: If a state is not one.
    """
    for name, value in state.items():
        if name == "torch":
            torch.set_rng_state(value)
        elif name == "python":
            version, numbers, following = value
            random.setstate((version, tuple(numbers), following))
        elif name == "numpy":
            if (numpy := sys.modules.get("numpy")) is not None:
                kind, keys, position, *rest = value
                if kind != "MT19937" or len(keys) != 624 or not 0 <= position <= 624:  # NumPy checks none of them
                    raise ValueError("the state of NumPy's generator is damaged")
                numpy.random.set_state((kind, numpy.array(keys, dtype="uint32"), position, *rest))
        else:  # pragma: no cover - needs an accelerator
            device = torch.device(name)
            torch.get_device_module(device).set_rng_state(value, *_where(device))


def current_accelerator() -> torch.device | None:
    """The accelerator of this process; None if there is none, or torch is too old to tell (2.6 raises)."""
    try:
        return torch.accelerator.current_accelerator()
    except RuntimeError:  # pragma: no cover - torch 2.6
        return None


def seed_everything(seed: int) -> None:
    """Seed all global generators."""
    # Not torch.manual_seed: where there is no accelerator it formats a stack trace for later, which takes long.
    torch.default_generator.manual_seed(seed)
    if (accelerator := current_accelerator()) is not None:  # pragma: no cover - needs one
        device_module = torch.get_device_module(accelerator)
        getattr(device_module, "manual_seed_all", device_module.manual_seed)(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % _NUMPY_SEEDS)


@contextmanager
def random_state_kept(model: nn.Module | None = None, *generators: torch.Generator) -> Iterator[None]:
    """At the end of the block the global generators, and those given, are as they were before it."""
    state = get_random_state(devices_of(model))
    own = [(generator, generator.get_state()) for generator in generators]
    try:
        yield
    finally:
        set_random_state(state)
        for generator, before in own:
            generator.set_state(before)


def _where(device: torch.device) -> tuple[torch.device, ...]:  # pragma: no cover - needs an accelerator
    return () if device.type == "mps" else (device,)
