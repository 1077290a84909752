"""[L x N] networks: L fully connected hidden layers of N neurons and a linear output; the paper's seven among them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import nn

from cmalight.errors import check_choice, check_flag, check_whole

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}

# Repeats of the N -> N layer of the large networks, as the paper's n counts them.
_REPEATS = {"12x300": 10, "12x500": 10, "30x500": 30}
_LARGE_ENDS = 50

PAPER_NETWORKS = ("1x50", "3x20", "5x50", "10x50", *_REPEATS)

_SIZE = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})")


def layered(
    size: str, features: int, *, outputs: int = 1, bias: bool = True, activation: str = "sigmoid"
) -> nn.Sequential:
    """Build the network of a size such as "3x20": 3 hidden layers of 20 neurons.

    Args:
        size: LAYERSxNEURONS.
        features: Number of inputs per sample.
        outputs: Number of outputs.
        bias: Whether the layers have biases.
        activation: After each hidden layer: "sigmoid", "tanh", "relu", "gelu" or "silu".

    Returns:
        An `nn.Sequential` of `nn.Linear` and activation in turn, the last layer linear, with torch's initial weights.

    Raises:
        ValueError: The size cannot be read, or an argument is out of its range.

    Example:
        >>> from cmalight.models import layered
        >>> layered("1x2", features=8, activation="tanh")
        Sequential(
          (0): Linear(in_features=8, out_features=2, bias=True)
          (1): Tanh()
          (2): Linear(in_features=2, out_features=1, bias=True)
        )
    """
    layers, width = _parsed(size)
    check_whole("features", features, least=1)
    check_whole("outputs", outputs, least=1)
    check_flag("bias", bias)
    check_choice("activation", activation, ACTIVATIONS)
    return _connected([features, *[width] * layers, outputs], [bias] * (layers + 1), activation)


def paper_network(name: str, features: int, *, bias: bool = False) -> nn.Sequential:
    """Build one of the paper's seven networks, with its number of variables n (Table 2).

    The small networks ([1x50] to [10x50]) have no biases but a constant input 1 beside the features, whose weights are
    the biases of the first layer. The large ones are features -> 50 -> N -> (N -> N) x repeats -> 50 -> 1 with biases,
    a sigmoid after each layer but the last two.

    Args:
        name: Its size: 1x50, 3x20, 5x50, 10x50, 12x300, 12x500 or 30x500.
        features: Number of columns of the data: the paper's d less one, its constant column.
        bias: Give every layer of a small network biases, as in the authors' public code; the large ones have them.

    Returns:
        An `nn.Sequential` of `nn.Linear` and `nn.Sigmoid`, with torch's initial weights.

    Raises:
        ValueError: There is no such network in the paper, or an argument is out of its range.
    """
    if name not in PAPER_NETWORKS:
        known = ", ".join(PAPER_NETWORKS)
        raise ValueError(f"Invalid network of the paper: {name!r}; expected one of {known}; for others use layered()")
    check_whole("features", features, least=1)
    check_flag("bias", bias)
    layers, width = _parsed(name)
    if name not in _REPEATS:
        return _connected([features, *[width] * layers, 1], [True, *[bias] * layers], "sigmoid")
    widths = [features, _LARGE_ENDS, width, *[width] * _REPEATS[name], _LARGE_ENDS]
    network = _connected(widths, [True] * (len(widths) - 1), "sigmoid")
    return network.append(nn.Linear(_LARGE_ENDS, 1))


def _parsed(size: str) -> tuple[int, int]:
    """The number of hidden layers and of neurons in each."""
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        raise ValueError(f"Invalid network size: {size!r}; expected LAYERSxNEURONS such as '3x20'")
    return int(match[1]), int(match[2])


def _connected(widths: Sequence[int], biases: Sequence[bool], activation: str) -> nn.Sequential:
    """Connect layers of these widths, an activation between each two, none after the last."""
    layers: list[nn.Module] = []
    for inputs, outputs, bias in zip(widths, widths[1:], biases, strict=False):
        layers += [ACTIVATIONS[activation](), nn.Linear(inputs, outputs, bias=bias)]
    return nn.Sequential(*layers[1:])
