"""The models, data and budgets of the workloads: what people train, small enough for one thread.

Everything random is drawn from a generator of its own, so that two solvers with the same seed start from the same
weights and see the same batches in the same order.
"""

from __future__ import annotations

import functools
import math
import os
import pydoc_data.topics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas
import torch
from torch import Tensor, nn
from torch.nn import functional

from cmalight.datasets import Raw, dataset_info

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Workload:
    """A model, its data and its budget.

    Attributes:
        name: What the results are filed under.
        epochs: The budget.
        batch_size: Rows in a batch; an incomplete last batch is dropped.
        train: Inputs and targets to fit.
        validation: Inputs and targets that no step sees.
        model: Gives a fresh network; torch's global generator is seeded before the call.
        loss: Mean loss of outputs against targets.
        metric: What `validate` gives: "accuracy" or "loss".
        augment: Changes a training batch, drawing from the generator it is given.
        is_task: Whether that change is the task itself, as noise is a denoiser's: measurements then make it, too.
        corrupt: Changes one random batch of each epoch, as bad data would.
        stride: The training loss is measured on every row, or on every second, third, ...
    """

    name: str
    epochs: int
    batch_size: int
    train: Batch
    validation: Batch
    model: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    metric: str
    augment: Callable[[Tensor, Tensor, torch.Generator], Batch] | None = None
    is_task: bool = False
    corrupt: Callable[[Tensor, Tensor], Batch] | None = None
    stride: int = 1

    @property
    def batches_per_epoch(self) -> int:
        """Batches in an epoch."""
        return len(self.train[0]) // self.batch_size

    @property
    def steps(self) -> int:
        """Batches in the whole budget."""
        return self.epochs * self.batches_per_epoch

    def fresh_model(self, seed: int) -> nn.Module:
        """A network whose weights depend on the seed alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.model()

    def loader(self, seed: int) -> Loader:
        """The training data in shuffled batches, another order in every pass."""
        return Loader(self, torch.Generator().manual_seed(seed))

    def fixed_batches(self) -> list[Batch]:
        """One pass over the training data, augmented once for all and without what `corrupt` does."""
        return list(replace(self, corrupt=None).loader(7))

    @torch.no_grad()
    def training_loss(self, model: nn.Module) -> float:
        """The mean loss of the training rows: evaluation mode, no augmentation."""
        x, y = self.train
        return self._mean(model, self._clean((x[:: self.stride], y[:: self.stride])), self.loss)

    @torch.no_grad()
    def validate(self, model: nn.Module) -> float:
        """The validation metric in evaluation mode: accuracy in percent, or the loss."""
        measure = accuracy if self.metric == "accuracy" else self.loss
        return self._mean(model, self._clean(self.validation), measure)

    def _clean(self, data: Batch) -> Batch:
        if not (self.augment and self.is_task):
            return data
        return self.augment(*data, torch.Generator().manual_seed(11))

    @staticmethod
    def _mean(model: nn.Module, data: Batch, measure: Callable[[Tensor, Tensor], Tensor]) -> float:
        model.eval()
        total = 0.0
        for x, y in zip(data[0].split(500), data[1].split(500), strict=True):
            total += float(measure(model(x), y)) * len(x)
        model.train()
        return total / len(data[0])


class Loader:
    """Shuffled, augmented batches; an incomplete last one is dropped."""

    def __init__(self, work: Workload, generator: torch.Generator) -> None:
        self.work = work
        self.generator = generator

    def __len__(self) -> int:
        return self.work.batches_per_epoch

    def __iter__(self) -> Iterator[Batch]:
        work, generator = self.work, self.generator
        x, y = work.train
        order = torch.randperm(len(x), generator=generator)
        bad = int(torch.randint(len(self), (), generator=generator))
        for number, rows in enumerate(order[: len(self) * work.batch_size].split(work.batch_size)):
            batch = x[rows], y[rows]
            if work.augment:
                batch = work.augment(*batch, generator)
            yield work.corrupt(*batch) if work.corrupt and number == bad else batch


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of right classes, in percent."""
    return 100 * (outputs.argmax(1) == targets).float().mean()


def path_of(name: str, data: Path) -> Path:
    """Where the file of a data set is in the folder: under the name that the registry has for it."""
    path = data / dataset_info(name).file
    if not path.is_file():
        raise SystemExit(f"{path} is not there: `cmalight datasets info {name}` says where to get it")
    return path


@functools.cache
def read_raw(name: str, data: Path) -> Raw:
    """A data set from its file in the folder, whatever its checksum: publishers' archives get repacked."""
    path = path_of(name, data)
    return dataset_info(name).source.read(path)


# Pictures


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
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        h = self.first_norm(self.first(x)).relu()
        return (self.second_norm(self.second(h)) + self.shortcut(x)).relu()


class ResNet(nn.Module):
    """A stem of stride two, three residual blocks, a mean over pixels, a linear head."""

    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.Sequential(
            ResidualBlock(width, width, 1),
            ResidualBlock(width, 2 * width, 2),
            ResidualBlock(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def cifar10(data: Path, part: str, classes: range, count: int) -> Batch:
    """The first pictures of the given classes, normalized, with labels from zero."""
    raw = read_raw("cifar10", data)
    pixels, labels = (raw.x, raw.y) if part == "train" else (raw.x_test, raw.y_test)
    rows = np.flatnonzero((labels >= classes.start) & (labels < classes.stop))[:count]
    mean = torch.tensor([0.491, 0.482, 0.447])[:, None, None]
    deviation = torch.tensor([0.247, 0.243, 0.262])[:, None, None]
    chosen = torch.from_numpy(np.array(pixels[rows])).float() / 255
    return (chosen - mean) / deviation, torch.from_numpy(labels[rows].astype(np.int64)) - classes.start


def flip_and_crop(x: Tensor, y: Tensor, generator: torch.Generator) -> Batch:
    """Mirrors half of the pictures and shifts each by up to four pixels."""
    n, _, height, width = x.shape
    mirrored = torch.rand(n, generator=generator) < 0.5
    x = torch.where(mirrored[:, None, None, None], x.flip(3), x)
    padded = functional.pad(x, (4, 4, 4, 4))
    top = torch.randint(9, (n,), generator=generator)[:, None] + torch.arange(height)
    left = torch.randint(9, (n,), generator=generator)[:, None] + torch.arange(width)
    picture = torch.arange(n)[:, None, None]
    cropped = padded.permute(0, 2, 3, 1)[picture, top[:, :, None], left[:, None, :]]
    return cropped.permute(0, 3, 1, 2), y


def resnet(data: Path) -> Workload:
    """CIFAR-10 (4,000 pictures), a small ResNet with BatchNorm, flips and crops, ten epochs."""
    return Workload(
        "resnet", 10, 128, cifar10(data, "train", range(10), 4000), cifar10(data, "test", range(10), 2000),
        lambda: ResNet(10), functional.cross_entropy, "accuracy", flip_and_crop,
    )  # fmt: skip


def finetune(data: Path) -> Workload:
    """The ResNet trained on classes 0 to 4, fine-tuned on 2,500 pictures of 5 to 9, six epochs."""

    def model() -> nn.Module:
        network = ResNet(5)
        weights = pretrained(data)
        network.load_state_dict({k: v for k, v in weights.items() if "head" not in k}, strict=False)
        return network

    return Workload(
        "finetune", 6, 128, cifar10(data, "train", range(5, 10), 2500),
        cifar10(data, "test", range(5, 10), 1500), model, functional.cross_entropy, "accuracy",
        flip_and_crop,
    )  # fmt: skip


@functools.cache
def pretrained(data: Path) -> dict[str, Tensor]:
    """A ResNet trained on classes 0 to 4: AdamW, 3e-3, warm-up and cosine, 12 epochs."""
    work = Workload(
        "pretraining", 12, 128, cifar10(data, "train", range(5), 5000), cifar10(data, "test", range(5), 1500),
        lambda: ResNet(5), functional.cross_entropy, "accuracy", flip_and_crop,
    )  # fmt: skip
    network = work.fresh_model(1234)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    loader = work.loader(1234)
    step = 0
    for _ in range(work.epochs):
        for x, y in loader:
            share = step / work.steps
            rate = 3e-3 * min(1.0, (share + 1e-3) / 0.05) * (1 + math.cos(math.pi * share)) / 2
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            functional.cross_entropy(network(x), y).backward()
            optimizer.step()
            step += 1
    return network.state_dict()


class Denoiser(nn.Module):
    """Four convolutions that predict the noise of a picture."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, 3, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """The picture without the noise."""
        return x - self.layers(x)


def noisy(x: Tensor, y: Tensor, generator: torch.Generator) -> Batch:
    """Adds normal noise of deviation 0.5 to the inputs; the targets are the clean pictures."""
    return x + 0.5 * torch.randn(x.shape, generator=generator), y


def denoiser(data: Path) -> Workload:
    """Quarters of CIFAR-10 pictures with noise, a small convolutional denoiser, five epochs."""
    train = cifar10(data, "train", range(10), 6000)[0][:, :, 8:24, 8:24].contiguous()
    validation = cifar10(data, "test", range(10), 1500)[0][:, :, 8:24, 8:24].contiguous()
    return Workload(
        "denoiser", 5, 64, (train, train), (validation, validation), Denoiser,
        functional.mse_loss, "loss", noisy, is_task=True,
    )  # fmt: skip


# Text


class GPT(nn.Module):
    """A character model: pre-norm Transformer blocks with causal attention and dropout."""

    def __init__(self, symbols: int, context: int, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.symbols = nn.Embedding(symbols, width)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "attention_norm": nn.LayerNorm(width),
                "attention": nn.Linear(width, 3 * width),
                "projection": nn.Linear(width, width),
                "norm": nn.LayerNorm(width),
                "inner": nn.Linear(width, 4 * width),
                "outer": nn.Linear(4 * width, width),
            })
            for _ in range(layers)
        )  # fmt: skip
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols, bias=False)
        nn.init.normal_(self.symbols.weight, std=0.02)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of the next character, classes in dimension one."""
        rows, context = x.shape
        h = self.symbols(x) + self.positions[:context]
        for block in self.blocks:
            q, k, v = block["attention"](block["attention_norm"](h)).chunk(3, 2)
            q, k, v = (t.view(rows, context, 4, -1).transpose(1, 2) for t in (q, k, v))
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            seen = seen.transpose(1, 2).reshape(rows, context, -1)
            h = h + self.dropout(block["projection"](seen))
            h = h + self.dropout(block["outer"](functional.gelu(block["inner"](block["norm"](h)))))
        return self.head(self.norm(h)).transpose(1, 2)


def python_text(characters: int) -> str:
    """Text that Python ships: pydoc's topics, then the standard library's modules. Another Python has another text."""
    text = "\n".join(pydoc_data.topics.topics.values())
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        if len(text) >= characters:
            break
        text += path.read_text(encoding="utf-8", errors="ignore")
    return text[:characters]


def character_windows(characters: int, context: int) -> tuple[Batch, Batch, int]:
    """Windows for training, a random twentieth of them for validation, and how many symbols there are."""
    text = python_text(characters)
    symbols = sorted(set(text))
    codes = torch.tensor([symbols.index(c) for c in text])
    starts = torch.arange(0, len(codes) - context - 1, context)
    windows = torch.stack([codes[s : s + context + 1] for s in starts.tolist()])
    data = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(3))
    validation, train = order[: len(order) // 20][:640], order[len(order) // 20 :]
    return (data[0][train], data[1][train]), (data[0][validation], data[1][validation]), len(symbols)


def gpt(name: str, epochs: int, characters: int) -> Workload:
    """A two-layer character GPT with dropout, 16 windows of 64 characters in a batch."""
    train, validation, symbols = character_windows(characters, 64)
    return Workload(
        name, epochs, 16, train, validation, lambda: GPT(symbols, 64), functional.cross_entropy, "loss"
    )  # fmt: skip


def gpt10(_data: Path) -> Workload:
    """The character GPT on 110,000 characters: ten epochs of about 100 steps."""
    return gpt("gpt10", 10, 110_000)


def gpt1(_data: Path) -> Workload:
    """The character GPT on 1.1 million characters: one epoch of about 1,000 steps.

    The training loss is measured on every fourth window: 260,000 characters.
    """
    return replace(gpt("gpt1", 1, 1_100_000), stride=4)


# Tables and sequences


def read_covtype(data: Path) -> tuple[Batch, Batch]:
    """20,000 and 8,000 random rows of Covtype, standardized, with seven classes."""
    raw = read_raw("covtype", data)
    rows = np.random.default_rng(0).permutation(len(raw.x))[:28_000]
    x, y = torch.tensor(raw.x[rows], dtype=torch.float32), torch.tensor(raw.y[rows]).long() - 1
    x = (x - x[:20_000].mean(0)) / (x[:20_000].std(0) + 1e-3)
    return (x[:20_000], y[:20_000]), (x[20_000:], y[20_000:])


def mlp(data: Path) -> Workload:
    """Covtype (20,000 rows), a ReLU network with dropout, 15 epochs."""
    train, validation = read_covtype(data)

    def model() -> nn.Module:
        return nn.Sequential(
            nn.Linear(54, 128), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 7),
        )  # fmt: skip

    return Workload("mlp", 15, 128, train, validation, model, functional.cross_entropy, "loss")


class LSTM(nn.Module):
    """An LSTM whose last state is read by a linear layer."""

    def __init__(self, features: int, outputs: int, width: int = 32) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(features, width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The predictions after the last hour."""
        return self.head(self.recurrent(x)[0][:, -1])


def read_beijing(data: Path) -> tuple[Batch, Batch]:
    """Days of hourly weather and pollution, and the pollution of the next three hours.

    Pollution is the logarithm of PM2.5, standardized; gaps are carried forward. The first four years give 12,000
    random days to fit, the last year 3,000 to validate.
    """
    table = pandas.read_csv(path_of("beijing-pm25", data)).iloc[24:]
    pollution = np.log1p(table["pm2.5"].ffill().to_numpy(np.float64))
    angle = 2 * np.pi * table["hour"].to_numpy() / 24
    columns = [pollution, *(table[c].to_numpy(np.float64) for c in ("DEWP", "TEMP", "PRES"))]
    columns += [np.log1p(table[c].to_numpy(np.float64)) for c in ("Iws", "Is", "Ir")]
    columns += [np.sin(angle), np.cos(angle)]
    columns += [(table["cbwd"] == wind).to_numpy(np.float64) for wind in ("NW", "NE", "SE")]
    series = np.stack(columns, 1)
    cut = int((table["year"] < 2014).sum())
    series = (series - series[:cut].mean(0)) / series[:cut].std(0)
    values = torch.tensor(series, dtype=torch.float32)
    generator = np.random.default_rng(0)
    train = generator.permutation(cut - 27)[:12_000]
    validation = cut + generator.permutation(len(values) - cut - 27)[:3000]

    def days(starts: np.ndarray) -> Batch:
        hours = torch.tensor(starts)[:, None]
        return values[hours + torch.arange(24)], values[hours + 24 + torch.arange(3)][:, :, 0]

    return days(train), days(validation)


def lstm(data: Path) -> Workload:
    """Beijing PM2.5: the next three hours from the last 24, an LSTM, eight epochs."""
    train, validation = read_beijing(data)
    return Workload("lstm", 8, 128, train, validation, lambda: LSTM(12, 3), functional.mse_loss, "loss")


WORKLOADS: dict[str, Callable[[Path], Workload]] = {
    "resnet": resnet, "finetune": finetune, "gpt10": gpt10, "gpt1": gpt1, "mlp": mlp,
    "lstm": lstm, "denoiser": denoiser,
}  # fmt: skip


# Bad situations


def bad_batch(work: Workload) -> Workload:
    """One random batch of every epoch has its inputs times 10,000."""
    return replace(work, corrupt=lambda x, y: (x * 1e4, y))


def label_noise(work: Workload) -> Workload:
    """A fixed 30 % of the training labels are drawn at random; validation stays clean."""
    x, y = work.train
    generator = torch.Generator().manual_seed(5)
    wrong = torch.rand(len(y), generator=generator) < 0.3
    drawn = torch.randint(int(y.max()) + 1, y.shape, generator=generator)
    return replace(work, train=(x, torch.where(wrong, drawn, y)))


def spikes(work: Workload) -> Workload:
    """One random batch of every epoch has its labels in another order, and inputs times 100."""
    return replace(work, corrupt=lambda x, y: (x * 100, y.flip(0)))


SITUATIONS: dict[str, Callable[[Workload], Workload]] = {
    "bad_batch": bad_batch, "label_noise": label_noise, "spikes": spikes,
}  # fmt: skip


def workload(name: str, data: Path) -> Workload:
    """A workload by name, "mlp" or with a bad situation, "mlp+bad_batch"."""
    base, *situations = name.split("+")
    if base not in WORKLOADS or not set(situations) <= SITUATIONS.keys():
        raise SystemExit(
            f"There is no workload {name!r}: expected one of {', '.join(WORKLOADS)}, with +{' or +'.join(SITUATIONS)}"
        )
    work = WORKLOADS[base](data)
    for situation in situations:
        work = SITUATIONS[situation](work)
    return replace(work, name=name)
