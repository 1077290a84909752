"""Residual networks for small images: a 3x3 stem without pooling keeps a 32x32 image at 32x32 (He et al. 2016)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from cmalight.errors import check_choice, check_whole

_WIDENING = 4  # a bottleneck's output is that many times as wide as its 3x3 convolution

# Depth: whether its blocks are bottlenecks, and how many of them each of the four stages has.
_PLANS = {
    18: (False, (2, 2, 2, 2)),
    34: (False, (3, 4, 6, 3)),
    50: (True, (3, 4, 6, 3)),
    101: (True, (3, 4, 23, 3)),
    152: (True, (3, 8, 36, 3)),
}
RESNET_DEPTHS = tuple(_PLANS)


class Residual(nn.Module):
    """relu(branch(x) + shortcut(x)), where the shortcut is the identity if the shapes agree, else a 1x1 convolution.

    Args:
        inputs: Number of channels that come in.
        width: Number of channels of the 3x3 convolutions.
        stride: 2 halves the image.
        bottleneck: Put the 3x3 convolution between two 1x1 convolutions, rather than a second 3x3 one after it.
    """

    def __init__(self, inputs: int, width: int, *, stride: int = 1, bottleneck: bool = False) -> None:
        super().__init__()
        self.outputs = _WIDENING * width if bottleneck else width
        if bottleneck:
            plan = [(inputs, width, 1, 1), (width, width, 3, stride), (width, self.outputs, 1, 1)]
        else:
            plan = [(inputs, width, 3, stride), (width, width, 3, 1)]
        self.branch = nn.Sequential()
        for place, (before, after, kernel, step) in enumerate(plan):
            if place:
                self.branch.append(nn.ReLU(inplace=True))
            self.branch.extend(_convolution(before, after, kernel, step))
        same_shape = stride == 1 and inputs == self.outputs
        self.shortcut = nn.Sequential(*([] if same_shape else _convolution(inputs, self.outputs, 1, stride)))

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of the same size, or half of it under stride 2."""
        return functional.relu(self.branch(x) + self.shortcut(x))


class ChannelsLastConv2d(nn.Conv2d):
    """A convolution that puts its input into torch's `channels_last` order, which later layers keep.

    On a processor a step of ResNet-18 then takes 0.6 to 0.8 of the time (widths 4 to 64). The weights stay in the usual
    order, because some optimizers, L-BFGS among them, need it.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the maps in `channels_last` order."""
        return super().forward(x.contiguous(memory_format=torch.channels_last))


def resnet(depth: int, *, classes: int = 10, channels: int = 3, width: int = 64) -> nn.Sequential:
    """Build a ResNet-18, -34, -50, -101 or -152 for images (batch, channels, height, width).

    Args:
        depth: Number of layers.
        classes: Number of logits.
        channels: Number of channels of the images.
        width: Number of channels of the first stage, which the later ones double; 64 for the networks of that name.

    Returns:
        An `nn.Sequential` of convolution, BatchNorm, ReLU, `Residual` blocks, pooling, flattening and a linear head,
        with He's initial weights for convolutions and torch's for the rest.

    Raises:
        ValueError: There is no such depth, or an argument is out of its range.
    """
    check_choice("depth", depth, RESNET_DEPTHS)
    check_whole("classes", classes, least=1)
    check_whole("channels", channels, least=1)
    check_whole("width", width, least=1)
    bottleneck, repeats = _PLANS[depth]
    stem = ChannelsLastConv2d(channels, width, 3, padding=1, bias=False)
    network = nn.Sequential(stem, nn.BatchNorm2d(width), nn.ReLU(inplace=True))
    inputs = width
    for stage, count in enumerate(repeats):
        for stride in [2 if stage else 1, *[1] * (count - 1)]:
            block = Residual(inputs, width << stage, stride=stride, bottleneck=bottleneck)
            network.append(block)
            inputs = block.outputs
    network.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)])
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
    """Return a convolution that keeps the image's size under stride 1, and BatchNorm, which makes a bias pointless."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]
