"""Residual networks for small images: a 3x3 stem without pooling keeps a 32x32 image at 32x32 (He et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from cmalight.errors import check_choice, check_whole
from cmalight.models.spec import NetworkSpec

_WIDENING = 4  # of a bottleneck: what leaves it is this many times wider than its 3x3 convolution


class Residual(nn.Module):
    """relu(branch(x) + shortcut(x)); the shortcut is the identity where the shapes agree."""

    def __init__(self, branch: nn.Module, *, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        same_shape = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same_shape else _convolution(inputs, outputs, kernel=1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """Maps of the same size, but for the stride."""
        return functional.relu(self.branch(x) + self.shortcut(x))


def _basic(inputs: int, width: int, stride: int) -> tuple[Residual, int]:
    branch = nn.Sequential(
        _convolution(inputs, width, kernel=3, stride=stride),
        nn.ReLU(inplace=True),
        _convolution(width, width, kernel=3),
    )
    return Residual(branch, inputs=inputs, outputs=width, stride=stride), width


def _bottleneck(inputs: int, width: int, stride: int) -> tuple[Residual, int]:
    outputs = _WIDENING * width
    branch = nn.Sequential(
        _convolution(inputs, width, kernel=1),
        nn.ReLU(inplace=True),
        _convolution(width, width, kernel=3, stride=stride),
        nn.ReLU(inplace=True),
        _convolution(width, outputs, kernel=1),
    )
    return Residual(branch, inputs=inputs, outputs=outputs, stride=stride), outputs


def _convolution(inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the image's size but for the stride, then BatchNorm, which makes a bias pointless."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


Block = Callable[[int, int, int], tuple[Residual, int]]

# Depth: the kind of block, and how many of them each of the four stages has.
_PLANS: dict[int, tuple[Block, tuple[int, int, int, int]]] = {
    18: (_basic, (2, 2, 2, 2)),
    34: (_basic, (3, 4, 6, 3)),
    50: (_bottleneck, (3, 4, 6, 3)),
    101: (_bottleneck, (3, 4, 23, 3)),
    152: (_bottleneck, (3, 8, 36, 3)),
}

RESNET_DEPTHS = tuple(_PLANS)


@dataclass(frozen=True)
class ResNetSpec(NetworkSpec):
    """A ResNet by the arguments of `resnet`."""

    kind: ClassVar[str] = "resnet"

    depth: int
    classes: int = 10
    channels: int = 3
    width: int = 64

    def _check(self) -> None:
        check_choice("depth", self.depth, RESNET_DEPTHS)
        check_whole("classes", self.classes, least=1, most=100_000)
        check_whole("channels", self.channels, least=1, most=1_000)
        check_whole("width", self.width, least=1, most=10_000)

    def build(self) -> ResNet:
        """The network, with He's initial values."""
        network = self._layers()
        network.apply(_initialise)
        return network

    def _layers(self) -> ResNet:
        return ResNet(self)


class ResNet(nn.Module):
    """Images (batch, channels, height, width) to logits (batch, classes); stages 2 to 4 halve the image."""

    def __init__(self, spec: ResNetSpec) -> None:
        super().__init__()
        self.spec = spec
        self.stem = nn.Sequential(_convolution(spec.channels, spec.width, kernel=3), nn.ReLU(inplace=True))
        self.stages = nn.Sequential()
        block, repeats = _PLANS[spec.depth]
        inputs = spec.width
        for stage, count in enumerate(repeats):
            width = spec.width << stage
            for position in range(count):
                halves = stage > 0 and position == 0
                residual, inputs = block(inputs, width, 2 if halves else 1)
                self.stages.append(residual)
        self.head = nn.Linear(inputs, spec.classes)

    def forward(self, images: Tensor) -> Tensor:
        """The logits."""
        maps: Tensor = self.stages(self.stem(images))
        logits: Tensor = self.head(maps.mean(dim=(-2, -1)))
        return logits


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def resnet(depth: int, *, classes: int = 10, channels: int = 3, width: int = 64) -> ResNet:
    """ResNet-18, -34, -50, -101 or -152.

    Args:
        depth: Its layers.
        classes: How many logits it gives.
        channels: Of the images.
        width: Of the first stage, which the others double; 64 for the networks of that name.

    Returns:
        A network of random weights.

    Raises:
        ValueError: If there is no such depth, or a number is out of its range.
    """
    return ResNetSpec(depth, classes, channels, width).build()
