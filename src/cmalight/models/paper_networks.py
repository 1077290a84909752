"""The seven networks of the paper, with its numbers of variables (Table 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from cmalight.errors import check_whole
from cmalight.models.layered import MAX_FEATURES, MAX_LAYERS, MAX_WIDTH, FullyConnected, LayeredSpec, parse_size
from cmalight.models.spec import NetworkSpec

# Repeats of the N -> N layer, as the table's n has them: the first number of the name is this plus two but for 30x500.
_REPEATS = {"12x300": 10, "12x500": 10, "30x500": 30}

PAPER_NETWORKS = ("1x50", "3x20", "5x50", "10x50", *_REPEATS)

_ENDS = 50


@dataclass(frozen=True)
class LargeSpec(NetworkSpec):
    """features -> 50 -> N -> (N -> N) x repeats -> 50 -> 1, a sigmoid after each layer but the last two."""

    kind: ClassVar[str] = "paper-large"

    width: int
    repeats: int
    features: int

    def _check(self) -> None:
        check_whole("width", self.width, least=1, most=MAX_WIDTH)
        check_whole("repeats", self.repeats, least=1, most=MAX_LAYERS)
        check_whole("features", self.features, least=1, most=MAX_FEATURES)

    def _layers(self) -> FullyConnected:
        network = FullyConnected()
        network.spec = self
        inputs = self.features
        for width in (_ENDS, self.width, *[self.width] * self.repeats):
            network.append(nn.Linear(inputs, width))
            network.append(nn.Sigmoid())
            inputs = width
        network.append(nn.Linear(inputs, _ENDS))
        network.append(nn.Linear(_ENDS, 1))
        return network


def paper_network(name: str, features: int) -> nn.Module:
    """One of the paper's seven networks.

    Args:
        name: Its size as the paper writes it: 1x50, 3x20, 5x50, 10x50, 12x300, 12x500 or 30x500.
        features: Of the data: the d of the paper's table less one, its constant column.

    Returns:
        A network of random weights.

    Raises:
        ValueError: If it is none of the seven, or the number of features is out of its range.
    """
    return paper_spec(name, features).build()


def paper_spec(name: str, features: int) -> LayeredSpec | LargeSpec:
    """What `paper_network` builds."""
    layers, width = parse_size(name)
    size = f"{layers}x{width}"
    if size not in PAPER_NETWORKS:
        raise ValueError(
            f"Invalid network of the paper: {name!r}; expected one of {', '.join(PAPER_NETWORKS)}; "
            "for other sizes use layered()"
        )
    if size in _REPEATS:
        return LargeSpec(width, _REPEATS[size], features)
    return LayeredSpec(layers, width, features, bias=False, constant_input=True)
