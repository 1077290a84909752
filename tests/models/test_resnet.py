"""ResNets for small images: their counts by hand, their shapes, and that they train."""

import pytest
import torch
from torch import nn

from cmalight import CMALight, Objective
from cmalight.models import RESNET_DEPTHS, ResNetSpec, resnet
from tests.helpers import run_epoch, split

COUNTS = {18: 11_173_962, 34: 21_282_122, 50: 23_520_842, 101: 42_512_970, 152: 58_156_618}


def convolution(inputs: int, outputs: int, kernel: int) -> int:
    return kernel * kernel * inputs * outputs + 2 * outputs  # the weights, and BatchNorm's scale and shift


def basic(inputs: int, width: int) -> int:
    return convolution(inputs, width, 3) + convolution(width, width, 3)


def bottleneck(inputs: int, width: int) -> int:
    return convolution(inputs, width, 1) + convolution(width, width, 3) + convolution(width, 4 * width, 1)


def count_by_hand(depth: int) -> int:
    block, widening, repeats = {
        18: (basic, 1, (2, 2, 2, 2)),
        34: (basic, 1, (3, 4, 6, 3)),
        50: (bottleneck, 4, (3, 4, 6, 3)),
        101: (bottleneck, 4, (3, 4, 23, 3)),
        152: (bottleneck, 4, (3, 8, 36, 3)),
    }[depth]
    total = convolution(3, 64, 3)
    inputs = 64
    for width, count in zip((64, 128, 256, 512), repeats, strict=True):
        outputs = widening * width
        shortcut = convolution(inputs, outputs, 1) if inputs != outputs else 0
        total += block(inputs, width) + shortcut + (count - 1) * block(outputs, width)
        inputs = outputs
    return total + (inputs + 1) * 10


def layers_with_weights(depth: int) -> int:
    modules = ResNetSpec(depth)._layers().named_modules()
    return sum(isinstance(m, nn.Conv2d | nn.Linear) and "shortcut" not in name for name, m in modules)


@pytest.fixture
def on_meta():
    """Shapes without arithmetic."""
    with torch.device("meta"):
        yield


@pytest.mark.parametrize("depth", RESNET_DEPTHS)
def test_parameters_are_the_commonly_reported_ones_and_those_by_hand(depth):
    assert ResNetSpec(depth).parameters == COUNTS[depth] == count_by_hand(depth)


@pytest.mark.parametrize("depth", RESNET_DEPTHS)
def test_the_depth_is_the_number_of_layers_with_weights_on_the_longest_path(depth, on_meta):
    assert layers_with_weights(depth) == depth


@pytest.mark.parametrize("depth", RESNET_DEPTHS)
@pytest.mark.parametrize("channels", [1, 3])
def test_images_become_logits(depth, channels, on_meta):
    network = ResNetSpec(depth, classes=7, channels=channels)._layers()
    assert network(torch.empty(2, channels, 32, 32)).shape == (2, 7)


def test_one_channel_saves_two_thirds_of_the_stem():
    assert ResNetSpec(18).parameters - ResNetSpec(18, channels=1).parameters == 2 * 64 * 9


def test_the_stem_keeps_the_image_and_the_stages_end_at_an_eighth(on_meta):
    network = ResNetSpec(18)._layers()
    stem = network.stem(torch.empty(2, 3, 32, 32))
    assert stem.shape == (2, 64, 32, 32)
    assert network.stages(stem).shape == (2, 512, 4, 4)


def test_odd_image_sizes_work():
    assert resnet(18, channels=1)(torch.randn(2, 1, 28, 28)).shape == (2, 10)


def test_convolutions_start_with_the_variance_of_kaiming():
    torch.manual_seed(0)
    convolutions = [m for m in resnet(18).modules() if isinstance(m, nn.Conv2d)]
    for layer in convolutions:
        fan_out = layer.out_channels * layer.kernel_size[0] ** 2
        assert layer.weight.var().item() == pytest.approx(2 / fan_out, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 20}, "Invalid depth value: 20; expected one of 18, 34, 50, 101, 152"),
        ({"depth": "18"}, "Invalid depth value: '18'"),
        ({"depth": 18, "classes": 0}, "Invalid classes value: 0"),
        ({"depth": 18, "channels": 10**9}, "Invalid channels value"),
    ],
)
def test_bad_options_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        resnet(**arguments)


@pytest.mark.parametrize(("depth", "channels"), [(18, 1), (18, 3), (50, 3)])
def test_an_epoch_of_cmalight_lowers_the_loss(depth, channels):
    torch.manual_seed(0)
    network = resnet(depth, channels=channels)
    labels = torch.arange(8) % 2  # both classes in each batch: with one class per batch, each step undoes the other
    images = torch.randn(8, channels, 16, 16) + labels.reshape(8, 1, 1, 1)
    batches = split(images, labels, 4)
    objective = Objective(network, nn.CrossEntropyLoss(), batches)
    before = objective()
    run_epoch(CMALight(network.parameters(), lr=0.001), objective, network, batches, loss_fn=nn.CrossEntropyLoss())
    assert objective() < before


def test_an_eighth_of_the_width_is_a_64th_of_the_inner_weights():
    narrow, usual = resnet(18, width=8), resnet(18)
    for thin, wide in zip(narrow.stages, usual.stages, strict=True):
        assert thin.branch[2][0].weight.numel() * 64 == wide.branch[2][0].weight.numel()
    assert narrow(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
