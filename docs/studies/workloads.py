"""The workloads of these studies: models as people train them, with their data, small enough for one thread.

`resnet` needs CIFAR-10; the other data ships with scikit-learn and Python, or is generated from a fixed seed.
What happens to training batches alone (flips, crops, spikes) is a first layer of the model, active while it is trained.
"""

from __future__ import annotations

import functools
import pydoc_data.topics
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from cmalight.bench.problems import Arrays, Problem, absent_dataset

_CONTEXT = 64
_SERIES_FEATURES, _HOURS_SEEN, _HOURS_AHEAD = 3, 24, 3


class FlipAndCrop(nn.Module):
    """In training mode, mirrors half of the pictures and shifts each by up to `margin` pixels."""

    def __init__(self, margin: int) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, x: Tensor) -> Tensor:
        """Change a training batch, and leave any other as it is."""
        if not self.training:
            return x
        count, _, height, width = x.shape
        margin, shifts = self.margin, 2 * self.margin + 1
        x = torch.where((torch.rand(count) < 0.5)[:, None, None, None], x.flip(3), x)
        padded = functional.pad(x, (margin, margin, margin, margin)).permute(0, 2, 3, 1)
        rows = torch.randint(shifts, (count,))[:, None] + torch.arange(height)
        columns = torch.randint(shifts, (count,))[:, None] + torch.arange(width)
        return padded[
            torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]
        ].permute(0, 3, 1, 2)


class BadBatches(nn.Module):
    """Multiplies the inputs of one in `every` training batches by `factor`; evaluations stay clean."""

    def __init__(self, every: int, factor: float) -> None:
        super().__init__()
        self.every, self.factor = every, factor

    def forward(self, x: Tensor) -> Tensor:
        """Change one training batch in many."""
        is_bad = (
            self.training and torch.is_grad_enabled() and int(torch.randint(self.every, ())) == 0
        )
        return x * self.factor if is_bad else x


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the features after the block."""
        hidden = self.first_norm(self.first(x)).relu()
        return functional.relu(self.second_norm(self.second(hidden)) + self.shortcut(x))


def small_resnet(
    classes: int, *, channels: int, stride: int, margin: int, width: int = 16
) -> nn.Sequential:
    """Flips and crops, a stem, three residual blocks, the mean over all pixels, a linear head."""
    return nn.Sequential(
        FlipAndCrop(margin),
        nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        ResidualBlock(width, width, 1), ResidualBlock(width, 2 * width, 2), ResidualBlock(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes),
    )  # fmt: skip


def resnet() -> Problem:
    """4,000 pictures of CIFAR-10 and a small ResNet with BatchNorm."""
    from cmalight.datasets import DataError, load_dataset

    if absent := absent_dataset("cifar10"):
        raise DataError(absent)
    data = load_dataset("cifar10:rows=4000")
    train, test = (
        (torch.as_tensor(x), torch.as_tensor(y))
        for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test))
    )
    return _classes(lambda: small_resnet(10, channels=3, stride=2, margin=4), train, test)


@functools.cache
def _digits() -> tuple[Arrays, Arrays]:
    """1,797 digits of 8 x 8 pixels: three quarters for training, the rest for validation."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    pictures, labels = load_digits(return_X_y=True)
    x = torch.tensor(pictures, dtype=torch.float32).reshape(-1, 1, 8, 8) / 8 - 1
    y = torch.tensor(labels, dtype=torch.int64)
    return (x[:1350], y[:1350]), (x[1350:], y[1350:])


def _of_classes(part: Arrays, first: int, last: int) -> Arrays:
    rows = (part[1] >= first) & (part[1] <= last)
    return part[0][rows], part[1][rows] - first


def _digits_resnet(classes: int) -> nn.Sequential:
    return small_resnet(classes, channels=1, stride=1, margin=1)


def resnet_digits() -> Problem:
    """8 x 8 digits and a small ResNet with BatchNorm."""
    return _classes(lambda: _digits_resnet(10), *_digits())


def finetune() -> Problem:
    """A ResNet trained on the digits 0 to 4, fine-tuned on 5 to 9."""

    def model() -> nn.Module:
        network = _digits_resnet(5)
        kept = {
            name: value for name, value in _pretrained().items() if not name.startswith("9.")
        }  # all but the head
        network.load_state_dict(kept, strict=False)
        return network

    train, validation = (_of_classes(part, 5, 9) for part in _digits())
    return _classes(model, train, validation)


@functools.cache
def _pretrained() -> dict[str, Tensor]:
    """AdamW on the digits 0 to 4, eight epochs."""
    x, y = _of_classes(_digits()[0], 0, 4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1234)
        network = _digits_resnet(5)
        optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
        for _ in range(8):
            for rows in torch.split(torch.randperm(len(x)), 64):
                optimizer.zero_grad()
                functional.cross_entropy(network(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return network.state_dict()


class Denoiser(nn.Module):
    """Four convolutions that predict the noise of a picture and take it away."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.noise = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, 1, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Return the picture without its noise."""
        return x - self.noise(x)  # type: ignore[no-any-return]


def denoiser() -> Problem:
    """8 x 8 digits with normal noise of deviation 0.5, and a convolutional denoiser."""
    generator = torch.Generator().manual_seed(11)
    train, validation = (
        (x + 0.5 * torch.randn(x.shape, generator=generator), x) for x, _ in _digits()
    )
    return Problem(Denoiser, nn.MSELoss(), train, validation)


class Block(nn.Module):
    """A pre-norm Transformer block with four heads."""

    def __init__(self, width: int, *, is_causal: bool, dropout: float = 0.1) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, h: Tensor) -> Tensor:
        """Return the features after the block."""
        rows, length, _ = h.shape
        parts = self.attention(self.attention_norm(h)).chunk(3, 2)
        query, key, value = (part.view(rows, length, 4, -1).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        h = h + self.dropout(self.projection(seen.transpose(1, 2).reshape(rows, length, -1)))
        return h + self.dropout(self.outer(functional.gelu(self.inner(self.norm(h)))))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """A character model of two causal Transformer blocks."""

    def __init__(self, symbols: int, width: int = 64) -> None:
        super().__init__()
        self.symbols = nn.Embedding(symbols, width)
        self.positions = nn.Parameter(0.02 * torch.randn(_CONTEXT, width))
        self.blocks = nn.Sequential(
            Block(width, is_causal=True), Block(width, is_causal=True), nn.LayerNorm(width)
        )
        self.head = nn.Linear(width, symbols, bias=False)
        nn.init.normal_(self.symbols.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the next characters, classes in dimension one."""
        logits = self.head(self.blocks(self.symbols(x) + self.positions[: x.shape[1]]))
        return logits.transpose(1, 2)  # type: ignore[no-any-return]


def gpt(characters: int = 110_000) -> Problem:
    """A character GPT on windows of 64 characters of the help texts that Python ships; they depend on its version."""
    text = "\n".join(value for _, value in sorted(pydoc_data.topics.topics.items()))[:characters]
    symbols = {symbol: code for code, symbol in enumerate(sorted(set(text)))}
    codes = torch.tensor([symbols[symbol] for symbol in text])
    windows = codes[: (len(codes) - 1) // _CONTEXT * _CONTEXT + 1].unfold(0, _CONTEXT + 1, _CONTEXT)
    windows = windows[torch.randperm(len(windows), generator=torch.Generator().manual_seed(3))]
    x, y = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
    held = len(windows) // 20
    return Problem(
        lambda: GPT(len(symbols)), nn.CrossEntropyLoss(), (x[held:], y[held:]), (x[:held], y[:held])
    )


class ViT(nn.Module):
    """Patches of 2 x 2 pixels, two Transformer blocks, the mean over the patches, a linear head."""

    def __init__(self, classes: int, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, stride=2)
        self.positions = nn.Parameter(0.02 * torch.randn(16, width))
        self.blocks = nn.Sequential(
            Block(width, is_causal=False), Block(width, is_causal=False), nn.LayerNorm(width)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the classes."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.blocks(tokens + self.positions).mean(1))  # type: ignore[no-any-return]


def vit() -> Problem:
    """8 x 8 digits and a small vision Transformer."""
    return _classes(lambda: ViT(10), *_digits())


class LSTM(nn.Module):
    """An LSTM whose last state is read by a linear layer."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(_SERIES_FEATURES, width, batch_first=True)
        self.head = nn.Linear(width, _HOURS_AHEAD)

    def forward(self, x: Tensor) -> Tensor:
        """Return the predictions for the next hours."""
        return self.head(self.recurrent(x)[0][:, -1])  # type: ignore[no-any-return]


def lstm(hours: int = 12_000) -> Problem:
    """The next three hours of a generated series from its last 24, an LSTM: a daily cycle, a slow wave, and noise."""
    generator = np.random.default_rng(0)
    time = np.arange(hours)
    noise = np.zeros(hours)
    for hour in range(1, hours):
        noise[hour] = 0.9 * noise[hour - 1] + 0.2 * generator.standard_normal()
    daily = np.sin(2 * np.pi * time / 24)
    series = np.tanh(daily * (1 + np.sin(2 * np.pi * time / 1700)) + noise)
    columns = np.stack([series, daily, np.cos(2 * np.pi * time / 24)], 1)
    values = torch.tensor(columns, dtype=torch.float32)
    starts = torch.arange(hours - _HOURS_SEEN - _HOURS_AHEAD)[:, None]
    x = values[starts + torch.arange(_HOURS_SEEN)]
    y = values[starts + _HOURS_SEEN + torch.arange(_HOURS_AHEAD)][:, :, 0]
    cut = hours * 4 // 5
    return Problem(LSTM, nn.MSELoss(), (x[:cut], y[:cut]), (x[cut:], y[cut:]))


def _census(rows: int = 10_000) -> tuple[Arrays, Arrays]:
    """Six numbers and eight columns of categories, one-hot; two classes by a random network, a tenth of them wrong."""
    generator = np.random.default_rng(0)
    numbers = generator.standard_normal((rows, 6))
    sizes = (2, 3, 5, 6, 7, 9, 12, 15)
    categories = [
        np.eye(size)[generator.choice(size, rows, p=generator.dirichlet(np.ones(size)))]
        for size in sizes
    ]
    x = np.concatenate([numbers, *categories], 1)
    hidden = np.tanh(x @ generator.standard_normal((x.shape[1], 16)) / 2)
    score = hidden @ generator.standard_normal(16)
    y = (score > np.median(score)) ^ (generator.random(rows) < 0.1)
    inputs, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.int64)
    cut = rows * 4 // 5
    return (inputs[:cut], labels[:cut]), (inputs[cut:], labels[cut:])


def _dropout_mlp(features: int, width: int = 128) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(features, width), nn.ReLU(), nn.Dropout(0.1),
        nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 2),
    )  # fmt: skip


def mlp() -> Problem:
    """A generated table like a census, and a ReLU network with dropout."""
    train, validation = _census()
    return _classes(lambda: _dropout_mlp(train[0].shape[1]), train, validation)


def mlp_bad_batches() -> Problem:
    """`mlp`, with the inputs of one training batch in fifty times 10,000."""
    train, validation = _census()
    features = train[0].shape[1]
    return _classes(
        lambda: nn.Sequential(BadBatches(50, 1e4), _dropout_mlp(features)), train, validation
    )


def mlp_label_noise() -> Problem:
    """`mlp`, with 30 % of the training labels drawn at random; the validation part stays clean."""
    (x, y), validation = _census()
    generator = torch.Generator().manual_seed(5)
    wrong = torch.rand(len(y), generator=generator) < 0.3
    drawn = torch.randint(2, y.shape, generator=generator)
    return _classes(lambda: _dropout_mlp(x.shape[1]), (x, torch.where(wrong, drawn, y)), validation)


def _classes(make_model: Callable[[], nn.Module], train: Arrays, validation: Arrays) -> Problem:
    return Problem(make_model, nn.CrossEntropyLoss(), train, validation, task="classification")


WORKLOADS: dict[str, Callable[[], Problem]] = {
    "resnet": resnet,
    "resnet-digits": resnet_digits,
    "finetune": finetune,
    "denoiser": denoiser,
    "gpt": gpt,
    "vit": vit,
    "lstm": lstm,
    "mlp": mlp,
    "mlp-bad-batches": mlp_bad_batches,
    "mlp-label-noise": mlp_label_noise,
}
