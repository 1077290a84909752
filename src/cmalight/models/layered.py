"""[L x N] networks: L fully connected hidden layers of N neurons, and a linear output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from cmalight.errors import check_choice, check_flag, check_whole
from cmalight.models.spec import NetworkSpec

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}

MAX_LAYERS = 1_000
MAX_WIDTH = 100_000
MAX_FEATURES = 10_000_000

_SIZE = re.compile(r"([1-9][0-9]{0,5})\s*[xX×]\s*([1-9][0-9]{0,5})")
_BRACKETS = re.compile(r"\[(.*)\]")


class FullyConnected(nn.Sequential):
    """The layers in order; a part of it (`network[:-1]`) has no spec."""

    spec: NetworkSpec | None = None


class ConstantColumn(nn.Module):
    """Appends the constant 1 to the features, which gives the first layer its thresholds."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features

    def forward(self, x: Tensor) -> Tensor:
        """One column more."""
        if x.shape[-1] != self.features:
            raise ValueError(
                f"This network takes {self.features} features per sample, but got input of shape {tuple(x.shape)}; "
                "it appends the constant column itself, so pass the features alone"
            )
        return torch.cat((x, x.new_ones(*x.shape[:-1], 1)), dim=-1)

    def extra_repr(self) -> str:
        """As torch asks for it."""
        return f"features={self.features}"


@dataclass(frozen=True)
class LayeredSpec(NetworkSpec):
    """features -> N -> ... -> N -> outputs, an activation after each of the L hidden layers.

    With `constant_input` the first layer sees one input more, the constant 1.
    """

    kind: ClassVar[str] = "layered"

    layers: int
    width: int
    features: int
    outputs: int = 1
    bias: bool = True
    activation: str = "sigmoid"
    constant_input: bool = False

    def _check(self) -> None:
        check_whole("layers", self.layers, least=1, most=MAX_LAYERS)
        check_whole("width", self.width, least=1, most=MAX_WIDTH)
        check_whole("features", self.features, least=1, most=MAX_FEATURES)
        check_whole("outputs", self.outputs, least=1, most=MAX_WIDTH)
        check_flag("bias", self.bias)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_flag("constant_input", self.constant_input)

    def _layers(self) -> FullyConnected:
        network = FullyConnected()
        network.spec = self
        inputs = self.features
        if self.constant_input:
            network.append(ConstantColumn(self.features))
            inputs += 1
        for _ in range(self.layers):
            network.append(nn.Linear(inputs, self.width, bias=self.bias))
            network.append(ACTIVATIONS[self.activation]())
            inputs = self.width
        network.append(nn.Linear(inputs, self.outputs, bias=self.bias))
        return network


def layered(
    size: str,
    features: int,
    *,
    outputs: int = 1,
    bias: bool = True,
    activation: str = "sigmoid",
    constant_input: bool = False,
) -> FullyConnected:
    """The network of a size such as "3x20": 3 hidden layers of 20 neurons.

    Args:
        size: LAYERSxNEURONS.
        features: How many inputs it takes per sample.
        outputs: How many it gives.
        bias: Whether its layers have biases.
        activation: After each hidden layer: "sigmoid", "tanh", "relu", "gelu" or "silu".
        constant_input: Whether it appends the constant 1 to its inputs.

    Returns:
        A network of random weights.

    Raises:
        ValueError: If the size cannot be read, or a number is out of its range.

    Example:
        >>> from cmalight.models import layered
        >>> layered("1x2", features=8, activation="tanh")
        FullyConnected(
          (0): Linear(in_features=8, out_features=2, bias=True)
          (1): Tanh()
          (2): Linear(in_features=2, out_features=1, bias=True)
        )
    """
    layers, width = parse_size(size)
    return LayeredSpec(layers, width, features, outputs, bias, activation, constant_input)._layers()


def parse_size(size: str) -> tuple[int, int]:
    """L and N of "3x20", "[3x20]" or "3×20"."""
    match = _SIZE.fullmatch(_without_brackets(size)) if isinstance(size, str) else None
    if match is None:
        raise ValueError(f"Invalid network size: {size!r}; expected LAYERSxNEURONS such as '3x20' or '[3x20]'")
    return int(match[1]), int(match[2])


def _without_brackets(text: str) -> str:
    match = _BRACKETS.fullmatch(text.strip())
    return (match[1] if match else text).strip()
