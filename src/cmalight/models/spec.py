"""A network described by plain numbers and words: what a model file holds in place of code."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

# A file may ask for no more than this: 4 GB of float32 before the first gradient.
MAX_PARAMETERS = 1_000_000_000


@dataclass(frozen=True)
class NetworkSpec(ABC):
    """Checked when it is made, so that every spec can be built, wherever its values came from."""

    kind: ClassVar[str]

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

    @abstractmethod
    def build(self) -> nn.Module:
        """The freshly initialised network."""

    @property
    def parameters(self) -> int:
        """How many numbers are trained, n in the paper; counted without allocating them."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in self._layers().parameters())

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **dataclasses.asdict(self)}


def check_whole(name: str, value: object, *, at_most: int) -> None:
    if not (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= at_most):
        raise ValueError(f"Invalid {name} value: {value!r}; expected a whole number from 1 to {at_most}")


def check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"Invalid {name} value: {value!r}; expected True or False")


def check_choice(name: str, value: object, choices: Collection[str | int]) -> None:
    if not (isinstance(value, str | int) and not isinstance(value, bool) and value in choices):
        raise ValueError(f"Invalid {name} value: {value!r}; expected one of {', '.join(map(str, choices))}")
