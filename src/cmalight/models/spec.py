"""Networks described by plain numbers and words, so that a model file needs no code and no pickle."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from cmalight.errors import check_choice

# A file may ask for no more than this: 4 GB of float32 before the first gradient.
MAX_PARAMETERS = 1_000_000_000


@dataclass(frozen=True)
class NetworkSpec(ABC):
    """Checked when it is made, so that every spec can be built, wherever its values came from."""

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[NetworkSpec]]] = {}

    def __init_subclass__(cls) -> None:
        NetworkSpec.kinds[cls.kind] = cls

    def __post_init__(self) -> None:
        self._check()
        count = self.parameters
        if count > MAX_PARAMETERS:
            raise ValueError(f"Invalid network: {self} has {count:,} parameters; expected at most {MAX_PARAMETERS:,}")

    @abstractmethod
    def _check(self) -> None:
        """Raises ValueError for a field that is of the wrong type or out of its range."""

    @abstractmethod
    def _layers(self) -> nn.Module:
        """The network with torch's own initial values, which carries this spec as `.spec`."""

    def build(self) -> nn.Module:
        """The freshly initialised network."""
        return self._layers()

    @property
    def parameters(self) -> int:
        """How many numbers are trained, n in the paper; counted without allocating them."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in self._layers().parameters())

    def to_dict(self) -> dict[str, Any]:
        """What `spec_from_dict` takes."""
        return {"kind": self.kind, **dataclasses.asdict(self)}


def network_to_dict(network: nn.Module) -> dict[str, Any]:
    """The description that `network_from_dict` takes: numbers, words and flags, no weights.

    Args:
        network: One that a function of `cmalight.models` made.

    Returns:
        The description.

    Raises:
        ValueError: If it is another network.
    """
    spec = getattr(network, "spec", None)
    if not isinstance(spec, NetworkSpec):
        raise ValueError(
            f"{type(network).__name__} has no description to write down; expected a network built by cmalight.models"
        )
    return spec.to_dict()


def network_from_dict(plain: Mapping[str, Any]) -> nn.Module:
    """The network of a description.

    Args:
        plain: What `network_to_dict` gave.

    Returns:
        A network of random weights; load those it had with `load_state_dict`.

    Raises:
        ValueError: If it describes no network, or one that is too large.
    """
    return spec_from_dict(plain).build()


def spec_from_dict(plain: Mapping[str, Any]) -> NetworkSpec:
    """What is described, checked."""
    if not isinstance(plain, Mapping):
        raise ValueError(f"Invalid network description: {plain!r}; expected a dict with a 'kind'")
    values = dict(plain)
    kind = values.pop("kind", None)
    check_choice("network kind", kind, NetworkSpec.kinds)
    spec = NetworkSpec.kinds[kind]
    _check_names(spec, values)
    return spec(**values)


def _check_names(spec: type[NetworkSpec], values: Mapping[str, Any]) -> None:
    fields = dataclasses.fields(spec)
    known = [field.name for field in fields]
    missing = [f.name for f in fields if f.default is dataclasses.MISSING and f.name not in values]
    unknown = [str(name) for name in values if name not in known]
    if missing or unknown:
        wrong = "; ".join(
            f"{what} {', '.join(names)}" for what, names in (("missing", missing), ("unknown", unknown)) if names
        )
        raise ValueError(f"Invalid {spec.kind} network: {wrong}; its fields are {', '.join(known)}")
