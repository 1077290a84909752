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

_SIZE = re.compile(r"\s*(\[?)\s*([1-9][0-9]{0,4})\s*[xX×]\s*([1-9][0-9]{0,4})\s*(\]?)\s*", re.ASCII)


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
    layers, width = parse_size(size)
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
        name: Its size as the paper writes it: 1x50, 3x20, 5x50, 10x50, 12x300, 12x500 or 30x500.
        features: Number of columns of the data: the paper's d less one, its constant column.
        bias: Give every layer of a small network biases, as in the authors' public code; the large ones have them.

    Returns:
        An `nn.Sequential` of `nn.Linear` and `nn.Sigmoid`, with torch's initial weights.

    Raises:
        ValueError: There is no such network in the paper, or an argument is out of its range.
    """
    layers, width = parse_size(name)
    size = f"{layers}x{width}"
    if size not in PAPER_NETWORKS:
        raise ValueError(
            f"Invalid network of the paper: {name!r}; expected one of {', '.join(PAPER_NETWORKS)}; "
            "for other sizes use layered()"
        )
    check_whole("features", features, least=1)
    check_flag("bias", bias)
    if size not in _REPEATS:
        return _connected([features, *[width] * layers, 1], [True, *[bias] * layers], "sigmoid")
    widths = [features, _LARGE_ENDS, width, *[width] * _REPEATS[size], _LARGE_ENDS]
    network = _connected(widths, [True] * (len(widths) - 1), "sigmoid")
    return network.append(nn.Linear(_LARGE_ENDS, 1))


def parse_size(size: str) -> tuple[int, int]:
    """Read L and N of "3x20", "[3x20]" or "3×20".

    Args:
        size: LAYERSxNEURONS.

    Returns:
        The number of hidden layers and of neurons in each.

    Raises:
        ValueError: The size cannot be read.
    """
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None or bool(match[1]) != bool(match[4]):
        raise ValueError(f"Invalid network size: {size!r}; expected LAYERSxNEURONS such as '3x20' or '[3x20]'")
    return int(match[2]), int(match[3])


def _connected(widths: Sequence[int], biases: Sequence[bool], activation: str) -> nn.Sequential:
    """Connect layers of these widths, an activation between each two, none after the last."""
    network = nn.Sequential()
    for inputs, outputs, bias in zip(widths, widths[1:], biases, strict=False):
        if len(network):
            network.append(ACTIVATIONS[activation]())
        network.append(nn.Linear(inputs, outputs, bias=bias))
    return network
