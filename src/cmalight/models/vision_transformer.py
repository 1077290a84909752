"""A small Vision Transformer (Dosovitskiy et al. 2021): an image as a row of patches, read through a class token.

It has no dropout, so that f(w) depends on the weights alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from cmalight.models.spec import NetworkSpec, check_whole

_INIT_STD = 0.02


@dataclass(frozen=True)
class VisionTransformerSpec(NetworkSpec):
    """`width` numbers a token, `depth` blocks, each with `heads` attention heads and a hidden layer of `hidden`."""

    kind: ClassVar[str] = "vision-transformer"

    image_size: int = 32
    patch_size: int = 4
    width: int = 192
    depth: int = 6
    heads: int = 3
    hidden: int = 768
    classes: int = 10
    channels: int = 3

    def _check(self) -> None:
        check_whole("image_size", self.image_size, at_most=10_000)
        check_whole("patch_size", self.patch_size, at_most=10_000)
        check_whole("width", self.width, at_most=100_000)
        check_whole("depth", self.depth, at_most=100)
        check_whole("heads", self.heads, at_most=1_000)
        check_whole("hidden", self.hidden, at_most=100_000)
        check_whole("classes", self.classes, at_most=100_000)
        check_whole("channels", self.channels, at_most=1_000)
        if self.image_size % self.patch_size:
            raise ValueError(
                f"Invalid patch_size value: {self.patch_size}; expected a divisor of image_size={self.image_size}"
            )
        if self.width % self.heads:
            raise ValueError(f"Invalid heads value: {self.heads}; expected a divisor of width={self.width}")

    def build(self) -> VisionTransformer:
        network = self._layers()
        network.apply(_initialise)
        return network

    def _layers(self) -> VisionTransformer:
        return VisionTransformer(self)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        split = self.queries_keys_values(tokens).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = (
            part.transpose(1, 2) for part in split.unbind(2)
        )  # (batch, head, token, width / heads)
        attended = functional.scaled_dot_product_attention(queries, keys, values)
        mixed: Tensor = self.mix(attended.transpose(1, 2).flatten(2))
        return mixed


class Block(nn.Module):
    """Attention between tokens, then two layers on each token, both normalised before and added to what came in."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.across_tokens = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
        self.within_token = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        attended = tokens + self.across_tokens(tokens)
        transformed: Tensor = attended + self.within_token(attended)
        return transformed


class VisionTransformer(nn.Module):
    """Images (batch, channels, image_size, image_size) to logits (batch, classes)."""

    def __init__(self, spec: VisionTransformerSpec) -> None:
        super().__init__()
        self.spec = spec
        patches = (spec.image_size // spec.patch_size) ** 2
        self.patches = nn.Conv2d(spec.channels, spec.width, spec.patch_size, stride=spec.patch_size)
        self.class_token = nn.Parameter(torch.zeros(spec.width))
        self.positions = nn.Parameter(torch.zeros(1 + patches, spec.width))
        self.blocks = nn.Sequential(*(Block(spec.width, spec.heads, spec.hidden) for _ in range(spec.depth)))
        self.head = nn.Sequential(nn.LayerNorm(spec.width), nn.Linear(spec.width, spec.classes))

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        class_tokens = self.class_token.expand(len(images), 1, -1)
        tokens = torch.cat((class_tokens, patches), dim=1) + self.positions
        logits: Tensor = self.head(self.blocks(tokens)[:, 0])
        return logits


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=_INIT_STD)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
    elif isinstance(module, VisionTransformer):
        nn.init.trunc_normal_(module.positions, std=_INIT_STD)


def vision_transformer(
    *,
    image_size: int = 32,
    patch_size: int = 4,
    width: int = 192,
    depth: int = 6,
    heads: int = 3,
    hidden: int = 768,
    classes: int = 10,
    channels: int = 3,
) -> VisionTransformer:
    return VisionTransformerSpec(image_size, patch_size, width, depth, heads, hidden, classes, channels).build()
