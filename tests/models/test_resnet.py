"""ResNets for small images: their counts by hand, their shapes, and that they train."""

import pytest
import torch
from torch import nn

from cmalight.models import RESNET_DEPTHS, Residual, resnet

COUNTS = {18: 11_173_962, 34: 21_282_122, 50: 23_520_842, 101: 42_512_970, 152: 58_156_618}


def on_meta(depth, **options):
    """Shapes without arithmetic."""
    with torch.device("meta"):
        return resnet(depth, **options)


@pytest.mark.parametrize("depth", RESNET_DEPTHS)
def test_parameters_are_the_commonly_reported_ones_in_as_many_layers(depth):
    network = on_meta(depth)
    assert sum(parameter.numel() for parameter in network.parameters()) == COUNTS[depth]
    longest = [m for name, m in network.named_modules() if "shortcut" not in name]
    assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in longest) == depth


@pytest.mark.parametrize("depth", [18, 50])
def test_images_become_logits(depth):
    images = torch.empty(2, 1, 28, 28, device="meta")
    assert on_meta(depth, classes=7, channels=1, width=4)(images).shape == (2, 7)


def test_the_stem_keeps_the_image_and_the_stages_end_at_an_eighth():
    network = on_meta(18)
    maps = network[:3](torch.empty(2, 3, 32, 32, device="meta"))
    assert maps.shape == (2, 64, 32, 32)
    assert all(type(block) is Residual for block in network[3:-3])
    assert network[3:-3](maps).shape == (2, 512, 4, 4)


def test_a_block_adds_its_branch_to_its_shortcut():
    x = torch.randn(2, 3, 8, 8)
    for block in (Residual(3, 3).eval(), Residual(3, 4, stride=2, bottleneck=True).eval()):
        shortcut = block.shortcut(x) if len(block.shortcut) else x
        torch.testing.assert_close(block(x), torch.relu(block.branch(x) + shortcut))


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
        ({"depth": 18, "classes": 0}, "Invalid classes value: 0"),
    ],
)
def test_bad_options_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        resnet(**arguments)


def test_maps_are_in_the_order_in_which_convolutions_are_fast_and_weights_in_the_usual_one():
    network = resnet(18, width=4)
    maps = network[:-3](torch.randn(2, 3, 32, 32))
    assert maps.is_contiguous(memory_format=torch.channels_last)
    assert not maps.is_contiguous()
    network(torch.randn(2, 3, 32, 32)).sum().backward()
    assert all(p.is_contiguous() and p.grad.is_contiguous() for p in network.parameters())
    torch.nn.utils.parameters_to_vector(p.grad for p in network.parameters())  # as L-BFGS has them
