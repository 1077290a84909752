"""The Vision Transformer: its count by hand, its shapes, its attention, and that it trains."""

import pytest
import torch
from torch import nn

from cmalight import CMALight, Objective
from cmalight.models import VisionTransformerSpec, vision_transformer
from cmalight.models.vision_transformer import Attention
from tests.helpers import run_epoch, split

TINY = {"image_size": 8, "patch_size": 4, "width": 12, "depth": 2, "heads": 3, "hidden": 20}


@pytest.mark.parametrize("options", [{}, {"channels": 1, "classes": 7}, {**TINY, "channels": 1}])
def test_parameters_are_those_counted_by_hand(options):
    spec = VisionTransformerSpec(**options)
    w, h = spec.width, spec.hidden
    tokens = 1 + (spec.image_size // spec.patch_size) ** 2
    embedding = (spec.channels * spec.patch_size**2 + 1) * w + w + tokens * w
    attention = 2 * w + 3 * (w * w + w) + (w * w + w)
    two_layers = 2 * w + (w * h + h) + (h * w + w)
    head = 2 * w + w * spec.classes + spec.classes
    assert spec.parameters == embedding + spec.depth * (attention + two_layers) + head


def test_the_default_is_small():
    assert VisionTransformerSpec().parameters == 2_693_578


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("image_size", [8, 28, 32])
def test_images_become_logits(image_size, channels):
    network = vision_transformer(**{**TINY, "image_size": image_size}, classes=7, channels=channels)
    assert network(torch.randn(2, channels, image_size, image_size)).shape == (2, 7)


def test_attention_is_the_softmax_of_scaled_products():
    torch.manual_seed(0)
    attention = Attention(6, heads=2).double()
    tokens = torch.randn(1, 4, 6, dtype=torch.float64)
    q, k, v = attention.queries_keys_values(tokens)[0].split(6, dim=-1)
    heads = [
        torch.softmax(q[:, part] @ k[:, part].T / 3**0.5, dim=-1) @ v[:, part] for part in (slice(0, 3), slice(3, 6))
    ]
    torch.testing.assert_close(attention(tokens)[0], attention.mix(torch.cat(heads, dim=-1)))


def test_patches_are_told_apart_by_their_positions():
    torch.manual_seed(0)
    network = vision_transformer(**TINY)
    left = torch.zeros(1, 3, 8, 8)
    left[..., :4] = 1.0
    assert not torch.allclose(network(left), network(left.flip(-1)), atol=1e-6, rtol=0)


def test_training_and_evaluation_give_the_same_outputs():
    network = vision_transformer(**TINY)
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(network.train()(images), network.eval()(images))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_size": 5}, "Invalid patch_size value: 5; expected a divisor of image_size=32"),
        ({"heads": 5}, "Invalid heads value: 5; expected a divisor of width=192"),
        ({"depth": 0}, "Invalid depth value: 0"),
        ({"width": 60_000, "depth": 10}, "parameters; expected at most"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        vision_transformer(**options)


@pytest.mark.parametrize("channels", [1, 3])
def test_an_epoch_of_cmalight_lowers_the_loss(channels):
    torch.manual_seed(0)
    network = vision_transformer(depth=2, channels=channels)
    labels = torch.arange(8) % 2  # both classes in each batch: with one class a batch, each step undoes the other
    images = torch.randn(8, channels, 32, 32) + labels.reshape(8, 1, 1, 1)
    batches = split(images, labels, 4)
    objective = Objective(network, nn.CrossEntropyLoss(), batches)
    before = objective()
    run_epoch(CMALight(network.parameters(), lr=0.001), objective, network, batches, loss_fn=nn.CrossEntropyLoss())
    assert objective() < before
