"""Small sound runs: training that goes well by itself, so that a watchdog can only harm it.

`SOUND` and `HELD_BACK` list them; `train` takes one through, alone or watched. Each takes about a second on one thread.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from cmalight import SOAP, Controlled, Objective
from cmalight.rules.outcome import Outcome

Batch = tuple[Tensor, ...]
Batches = Callable[[int], Iterable[Any]]


def linear_decay(fraction: float) -> float:
    return 1 - fraction


def cosine(fraction: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * fraction))


def warmup_stable_decay(fraction: float) -> float:
    return min(1.0, fraction / 0.05, (1 - fraction) / 0.4)


def constant(fraction: float) -> float:  # noqa: ARG001 (a schedule is asked for every fraction)
    return 1.0


@dataclass(frozen=True)
class Task:
    """All that one run needs.

    Attributes:
        model: As initialised.
        loss_of: The loss of one batch, at the current weights.
        batches: The batches of an epoch, by the epoch's number.
        length: Batches per epoch.
        epochs: How many epochs.
        base: The optimizer that the user would take.
        data: All data in whole batches: f is the mean of their losses.
        schedule: The learning rate over the optimizer's, by the fraction of the run.
        error: What counts at the end; by default the mean loss over `data` in eval mode.
    """

    model: nn.Module
    loss_of: Callable[[Any], Tensor]
    batches: Batches
    length: int
    epochs: int
    base: Callable[[nn.Module], Optimizer]
    data: Sequence[Any]
    schedule: Callable[[float], float] = linear_decay
    error: Callable[[], Tensor] | None = None

    @property
    def steps(self) -> int:
        return self.epochs * self.length

    def metric(self) -> float:
        """The error at the end, in eval mode, with the same random numbers every time."""
        self.model.eval()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            result = self.error() if self.error else torch.stack([self.loss_of(batch) for batch in self.data]).mean()
        self.model.train()
        return float(result)

    def objective(self) -> Objective:
        return Objective(self.model, None, self.data, forward=lambda _, batch: (self.loss_of(batch), 1))


def train(task: Task, optimizer: Optimizer) -> None:
    """Take a run through, by an optimizer or by one that watches it."""
    scheduler = LambdaLR(optimizer, lambda step: task.schedule((step + 0.5) / task.steps))
    for epoch in range(task.epochs):
        for batch in task.batches(epoch):
            loss = task.loss_of(batch)
            optimizer.zero_grad()
            loss.backward()
            if isinstance(optimizer, Controlled):
                optimizer.step(loss)
            else:
                optimizer.step()
            scheduler.step()


@dataclass(frozen=True)
class Result:
    """How a run ended; `weights` is a hash of all weights and buffers."""

    error: float
    weights: str
    undone: int = 0
    evaluations: int = 0


def measure(task: Task, *, watched: bool = False, objective: bool = False) -> Result:
    """Take a run through, alone or watched, and measure where it ends."""
    base = task.base(task.model)
    f = task.objective()
    outcomes: list[Outcome] = []
    if watched:
        optimizer: Optimizer = Controlled(base, task.model, objective=f if objective else None)
        optimizer.on_report(lambda report: outcomes.append(report.outcome))
    else:
        optimizer = base
    train(task, optimizer)
    undone = sum(outcome in (Outcome.UNDONE, Outcome.DIVERGED) for outcome in outcomes)
    return Result(task.metric(), digest(task.model), undone, f.evaluations)


def digest(model: nn.Module) -> str:
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()


def bound(errors: Sequence[float]) -> float:
    """The largest error within the spread of these seeds: as far again above the worst of them, and a tenth more."""
    return 1.1 * max(errors) * max(errors) / min(errors)


@dataclass(frozen=True)
class Sound:
    """A sound run by its name.

    Attributes:
        name: What it is.
        make: Draws weights and order by a seed; the data stay the same.
        has_f: Whether there is an objective: data that drift have none that stays.
    """

    name: str
    make: Callable[[int], Task]
    has_f: bool = True


def adamw(lr: float, weight_decay: float = 1e-2) -> Callable[[nn.Module], Optimizer]:
    return lambda model: AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)


def soap(lr: float) -> Callable[[nn.Module], Optimizer]:
    return lambda model: SOAP(model.parameters(), lr=lr)


def momentum(lr: float) -> Callable[[nn.Module], Optimizer]:
    return lambda model: SGD(model.parameters(), lr=lr, momentum=0.9)


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shuffled(data: Batch, size: int, seed: int) -> Batches:
    """Batches of `size` rows in a new order every epoch; what is left over is dropped."""

    def batches(epoch: int) -> Iterator[Batch]:
        order = torch.randperm(len(data[0]), generator=drawn(1000 * seed + epoch))
        for rows in order.split(size):
            if len(rows) == size:
                yield tuple(part[rows] for part in data)

    return batches


def whole(data: Batch, size: int) -> list[Batch]:
    """All rows, in batches of a fixed order."""
    return list(zip(*(part.split(size) for part in data), strict=True))


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU, dropout: float = 0.0) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, width in pairwise(widths[:-1]):
        layers += [nn.Linear(before, width), activation(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


def supervised(
    model: nn.Module, loss_fn: Callable[[Tensor, Tensor], Tensor], data: Batch, size: int, seed: int, *,
    epochs: int, base: Callable[[nn.Module], Optimizer], schedule: Callable[[float], float] = linear_decay,
    error: Callable[[], Tensor] | None = None,
) -> Task:  # fmt: skip
    """A run on rows of inputs and targets."""

    def loss_of(batch: Batch) -> Tensor:
        return loss_fn(model(batch[0]), batch[1])

    order = shuffled(data, size, seed)
    length = len(data[0]) // size
    return Task(model, loss_of, order, length, epochs, base, whole(data, max(size, 100)), schedule, error)


def blobs(rows: int, inputs: int, classes: int, *, seed: int = 0, overlap: float = 1.0) -> Batch:
    """Points around the centres of their classes."""
    draw = drawn(seed)
    labels = torch.randint(classes, (rows,), generator=draw)
    centres = torch.randn(classes, inputs, generator=draw)
    return centres[labels] + overlap * torch.randn(rows, inputs, generator=draw), labels


def curve(rows: int, inputs: int, *, seed: int = 0) -> Batch:
    """Points and a smooth function of them."""
    x = 2 * torch.rand(rows, inputs, generator=drawn(seed)) - 1
    return x, torch.sin(3 * x[:, :2].sum(1, keepdim=True)) + x[:, 2:3] ** 2


class Encoder(nn.Module):
    """A tiny BERT: token and position embeddings, two post-norm layers, the first token's output classified."""

    def __init__(self, tokens: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.1, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.norm(self.tokens(x) + self.places.weight))
        out: Tensor = self.head(self.layers(hidden)[:, 0])
        return out


def bert(size: int, seed: int) -> Task:
    """Two classes, 400 rows: does the sequence have more of the first token than of the second? Begins at ln 2."""
    x = torch.randint(8, (400, 12), generator=drawn(0))
    y = ((x == 0).sum(1) > (x == 1).sum(1)).long()
    torch.manual_seed(seed)
    return supervised(
        Encoder(8, 12, 32),
        functional.cross_entropy,
        (x, y),
        size,
        seed,
        epochs=12 if size == 8 else 20,
        base=adamw(1e-3),
    )


def graph(seed: int) -> Task:
    """A graph network on its whole graph: one batch per epoch, which cannot be cut."""
    nodes, draw = 200, drawn(0)
    labels = torch.randint(4, (nodes,), generator=draw)
    likely = torch.where(labels[:, None] == labels, 0.08, 0.01)
    edges = (torch.rand(nodes, nodes, generator=draw) < likely).float().triu(1)
    edges = edges + edges.T + torch.eye(nodes)
    scale = edges.sum(1).rsqrt()
    graph = scale[:, None] * edges * scale
    x = functional.one_hot(labels, 4) + 2 * torch.randn(nodes, 4, generator=draw)
    known = torch.rand(nodes, generator=draw) < 0.5
    torch.manual_seed(seed)
    model = mlp(4, 32, 32, 4)
    batch = (x, graph, labels, known)

    def loss_of(batch: Batch) -> Tensor:
        hidden, graph, labels, known = batch
        for layer in model:
            hidden = graph @ layer(hidden) if isinstance(layer, nn.Linear) else layer(hidden)
        return functional.cross_entropy(hidden[known], labels[known])

    return Task(model, loss_of, lambda _: [batch], 1, 600, adamw(1e-2, 5e-4), [batch], constant)


def contrastive(seed: int) -> Task:
    """Two noisy views of each row find each other among those of the batch."""
    x, _ = blobs(1024, 16, 32, overlap=0.3)
    torch.manual_seed(seed)
    model = mlp(16, 64, 64, 16)

    def loss_of(batch: Batch) -> Tensor:
        first, second = (
            functional.normalize(model(batch[0] + 0.3 * torch.randn_like(batch[0])), dim=1) for _ in range(2)
        )
        return functional.cross_entropy(first @ second.T / 0.1, torch.arange(len(first)))

    return Task(model, loss_of, shuffled((x,), 64, seed), 16, 50, adamw(1e-3), whole((x,), 64), cosine)


class Recurrent(nn.Module):
    """An LSTM that predicts one number from the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(2, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(x)[0][:, -1])
        return out


def lstm(seed: int) -> Task:
    """The adding problem: the sum of the two marked numbers of a sequence."""
    draw = drawn(0)
    values, marks = torch.rand(1000, 12, generator=draw), torch.zeros(1000, 12)
    marks[torch.arange(1000), torch.randint(6, (1000,), generator=draw)] = 1
    marks[torch.arange(1000), 6 + torch.randint(6, (1000,), generator=draw)] = 1
    data = (torch.stack((values, marks), 2), (values * marks).sum(1, keepdim=True))
    torch.manual_seed(seed)
    return supervised(
        Recurrent(), functional.mse_loss, data, 50, seed, epochs=30, base=soap(3e-3), schedule=warmup_stable_decay
    )


def patterns(rows: int) -> Tensor:
    """Binary images of 8 x 8: a bright rectangle each."""
    corner = torch.randint(5, (rows, 4), generator=drawn(0))
    across = torch.arange(8)
    inside = [
        (across >= corner[:, i : i + 1]) & (across <= corner[:, i : i + 1] + 1 + corner[:, i + 2 : i + 3] // 2)
        for i in range(2)
    ]
    return (inside[0][:, :, None] & inside[1][:, None, :]).float().flatten(1)


def vae(seed: int, *, rises: bool = False) -> Task:
    """A variational autoencoder; `rises`: the weight of its divergence grows over the first half, and so does f."""
    x = patterns(1000)
    torch.manual_seed(seed)
    model = nn.ModuleList((mlp(64, 64, 16), mlp(8, 64, 64)))
    steps, epochs, taken = 20, 40, [0]

    def loss_of(batch: Batch) -> Tensor:
        mean, log_variance = model[0](batch[0]).chunk(2, dim=1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        error = functional.binary_cross_entropy_with_logits(model[1](latent), batch[0], reduction="none").sum(1)
        divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)
        weight = min(1.0, taken[0] / (0.5 * steps * epochs)) if rises else 1.0
        return (error + weight * divergence).mean()

    def batches(epoch: int) -> Iterator[Batch]:
        for batch in shuffled((x,), 50, seed)(epoch):
            taken[0] += 1
            yield batch

    return Task(model, loss_of, batches, steps, epochs, adamw(2e-3), whole((x,), 100), cosine)


def diffusion(seed: int) -> Task:
    """A denoiser of points on a spiral; each row draws its noise level anew."""
    angle = 3 * math.pi * torch.rand(1000, 1, generator=drawn(0)).sqrt()
    x = torch.cat((angle * angle.cos(), angle * angle.sin()), 1) / 6
    torch.manual_seed(seed)
    model = mlp(3, 64, 64, 2, activation=nn.SiLU)

    def loss_of(batch: Batch) -> Tensor:
        level = torch.rand(len(batch[0]), 1)
        noise = torch.randn_like(batch[0])
        noisy = (0.5 * math.pi * level).cos() * batch[0] + (0.5 * math.pi * level).sin() * noise
        return functional.mse_loss(model(torch.cat((noisy, level), 1)), noise)

    data = whole((x,), 50)
    return Task(model, loss_of, shuffled((x,), 50, seed), 20, 40, soap(3e-3), data * 4, warmup_stable_decay)


class Residual(nn.Module):
    """A residual block with BatchNorm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.body(x)).relu()


def resnet(seed: int) -> Task:
    """A small residual network on noisy images of ten classes."""
    x, y = blobs(640, 64, 10, overlap=2.0)
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        Residual(8), nn.MaxPool2d(2), Residual(8), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    data = (x.reshape(-1, 1, 8, 8), y)
    return supervised(model, functional.cross_entropy, data, 32, seed, epochs=20, base=momentum(0.1), schedule=cosine)


def dropout(seed: int) -> Task:
    data = blobs(2000, 20, 5, overlap=2.5)
    torch.manual_seed(seed)
    return supervised(
        mlp(20, 64, 64, 5, dropout=0.3), functional.cross_entropy, data, 50, seed, epochs=20,
        base=soap(1e-2), schedule=warmup_stable_decay,
    )  # fmt: skip


def label_noise(seed: int) -> Task:
    """Three labels in ten are drawn at random, and the network has room to learn them by heart."""
    x, y = blobs(1000, 20, 5)
    flipped = torch.rand(1000, generator=drawn(1)) < 0.3
    y = torch.where(flipped, torch.randint(5, (1000,), generator=drawn(2)), y)
    torch.manual_seed(seed)
    return supervised(
        mlp(20, 64, 64, 5), functional.cross_entropy, (x, y), 25, seed, epochs=20,
        base=soap(3e-3), schedule=warmup_stable_decay,
    )  # fmt: skip


def imbalanced(seed: int) -> Task:
    """Two rows in a hundred belong to the second class: most batches have none of them."""
    draw = drawn(0)
    y = (torch.rand(2000, 1, generator=draw) < 0.02).float()
    x = torch.randn(2000, 10, generator=draw) + y
    torch.manual_seed(seed)
    return supervised(
        mlp(10, 32, 32, 1), functional.binary_cross_entropy_with_logits, (x, y), 20, seed, epochs=10, base=adamw(1e-3)
    )


def heavy_tails(base: Callable[[nn.Module], Optimizer], seed: int) -> Task:
    """Errors by Student's t with two degrees of freedom, in batches of 8; what counts is the noiseless function."""
    draw = drawn(0)
    x, clean = curve(1000, 4)
    normal, chi = torch.randn(1000, 1, generator=draw), torch.randn(1000, 2, generator=draw).square().mean(1, True)
    y = clean + 0.3 * normal / chi.sqrt()
    torch.manual_seed(seed)
    model = mlp(4, 32, 32, 1)
    return supervised(
        model, functional.mse_loss, (x, y), 8, seed, epochs=8, base=base,
        error=lambda: functional.mse_loss(model(x), clean),
    )  # fmt: skip


def batches_of_one(seed: int) -> Task:
    data = blobs(600, 10, 3, overlap=1.5)
    torch.manual_seed(seed)
    return supervised(mlp(10, 32, 3), functional.cross_entropy, data, 1, seed, epochs=4, base=momentum(3e-3))


def full_batch(seed: int) -> Task:
    """One batch per epoch: every step sees all data."""
    data = curve(400, 4)
    torch.manual_seed(seed)
    return supervised(
        mlp(4, 50, 50, 1, activation=nn.Tanh), functional.mse_loss, data, 400, seed, epochs=800,
        base=soap(1e-2), schedule=warmup_stable_decay,
    )  # fmt: skip


def fine_tuning(seed: int) -> Task:
    """A network trained on ten classes learns three others with a new head, and all of its layers."""
    torch.manual_seed(seed)
    body, head = mlp(20, 64, 64), nn.Linear(64, 10)
    pretrained = nn.Sequential(body, nn.ReLU(), head)
    before = blobs(1000, 20, 10)
    task = supervised(pretrained, functional.cross_entropy, before, 50, seed, epochs=5, base=adamw(3e-3))
    train(task, task.base(pretrained))
    model = nn.Sequential(body, nn.ReLU(), nn.Linear(64, 3))
    data = blobs(400, 20, 3, seed=5, overlap=2.0)
    return supervised(model, functional.cross_entropy, data, 16, seed, epochs=30, base=adamw(3e-4))


def stream(seed: int, *, drifts: bool = False) -> Task:
    """No length that anyone knows: one long epoch of fresh rows; `drifts`: half-way the task gets harder."""
    torch.manual_seed(seed)
    model = mlp(8, 50, 50, 1)
    frequencies = torch.randn(8, 1, generator=drawn(0))

    def target(x: Tensor, harder: bool) -> Tensor:
        return torch.sin((2 if harder else 1) * x @ frequencies)

    def batches(epoch: int) -> Iterator[Batch]:
        draw = drawn(1000 * seed + epoch)
        for step in range(1200):
            x = torch.randn(32, 8, generator=draw)
            yield x, target(x, drifts and step > 600) + 0.1 * torch.randn(32, 1, generator=draw)

    def loss_of(batch: Batch) -> Tensor:
        return functional.mse_loss(model(batch[0]), batch[1])

    x = torch.randn(1000, 8, generator=drawn(7))
    return Task(model, loss_of, batches, 1200, 1, soap(3e-3), [(x, target(x, drifts))], constant)


def tasks(seed: int) -> Task:
    """Two tasks by turns, in blocks of 100 steps; the loss of one is 25 times as high at first."""
    x = torch.randn(2000, 10, generator=drawn(0))
    targets = x[:, :1].sin(), 5 * x[:, 1:2] * x[:, 2:3]
    torch.manual_seed(seed)
    model = mlp(10, 64, 64, 2)

    def batches(epoch: int) -> Iterator[Batch]:
        draw = drawn(1000 * seed + epoch)
        for step in range(1200):
            rows, task = torch.randint(2000, (32,), generator=draw), step // 100 % 2
            yield x[rows], targets[task][rows], torch.tensor(task)

    def loss_of(batch: Batch) -> Tensor:
        inputs, target, task = batch
        return functional.mse_loss(model(inputs)[:, int(task) : int(task) + 1], target)

    data = [(x, target, torch.tensor(task)) for task, target in enumerate(targets)]
    return Task(model, loss_of, batches, 1200, 1, adamw(1e-3), data, constant)


def restarts(seed: int) -> Task:
    """A cosine that jumps back to its peak three times: the loss rises each time, on purpose."""
    data = blobs(1000, 20, 5)
    torch.manual_seed(seed)
    return supervised(
        mlp(20, 64, 64, 5), functional.cross_entropy, data, 25, seed, epochs=24,
        base=adamw(3e-3), schedule=lambda fraction: cosine(4 * fraction % 1),
    )  # fmt: skip


def plateau(seed: int) -> Task:
    """Ten sigmoid layers: the loss rests at the variance of the targets before it falls."""
    data = curve(4000, 4)
    torch.manual_seed(seed)
    return supervised(
        mlp(4, *[50] * 10, 1, activation=nn.Sigmoid), functional.mse_loss, data, 100, seed, epochs=20,
        base=soap(1e-2), schedule=warmup_stable_decay,
    )  # fmt: skip


def slow_bert(seed: int) -> Task:
    """Parity of two tokens: the loss rests at ln 2 for a third of the run."""
    x = torch.randint(4, (400, 6), generator=drawn(0))
    y = (x[:, 1] + x[:, 4]) % 2
    torch.manual_seed(seed)
    model = Encoder(4, 6, 32)
    return supervised(model, functional.cross_entropy, (x, y), 16, seed, epochs=24, base=adamw(1e-3))


class Recommender(nn.Module):
    """A rating is the product of two embeddings and two offsets."""

    def __init__(self, users: int, items: int, width: int) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, width + 1), nn.Embedding(items, width + 1)
        for layer in (self.users, self.items):
            nn.init.normal_(layer.weight, std=0.3)

    def forward(self, pairs: Tensor) -> Tensor:
        user, item = self.users(pairs[:, 0]), self.items(pairs[:, 1])
        return (user[:, 1:] * item[:, 1:]).sum(1) + user[:, 0] + item[:, 0]  # type: ignore[no-any-return]


def recommender(seed: int) -> Task:
    """Ratings of 150 users for 100 items: in each step most rows of the embeddings have no gradient."""
    draw = drawn(0)
    tastes, traits = torch.randn(150, 3, generator=draw), torch.randn(100, 3, generator=draw)
    pairs = torch.stack([torch.randint(150, (4000,), generator=draw), torch.randint(100, (4000,), generator=draw)], 1)
    ratings = (tastes[pairs[:, 0]] * traits[pairs[:, 1]]).sum(1) + 0.3 * torch.randn(4000, generator=draw)
    torch.manual_seed(seed)
    return supervised(
        Recommender(150, 100, 4), functional.mse_loss, (pairs, ratings), 32, seed, epochs=16, base=adamw(1e-2)
    )


class Flow(nn.Module):
    """Six affine couplings of two coordinates; gives the negative log-likelihood of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(mlp(1, 32, 2, activation=nn.Tanh) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        kept, moved = x[:, :1], x[:, 1:]
        volume = torch.zeros(len(x))
        for coupling in self.couplings:
            shift, log_scale = coupling(kept).chunk(2, 1)
            moved = moved * log_scale.exp() + shift
            volume = volume + log_scale[:, 0]
            kept, moved = moved, kept
        return 0.5 * (kept.square() + moved.square())[:, 0] - volume + math.log(2 * math.pi)


def flow(seed: int) -> Task:
    """A normalizing flow on two half moons, whose loss falls below 0 for no bound."""
    draw = drawn(0)
    angle = math.pi * torch.rand(1500, 1, generator=draw)
    side = (torch.rand(1500, 1, generator=draw) < 0.5).float()
    x = torch.cat([angle.cos() + side, (1 - 2 * side) * angle.sin() + side / 2], 1)
    x = x + 0.05 * torch.randn(x.shape, generator=draw)
    torch.manual_seed(seed)
    model = Flow()

    def loss_of(batch: Batch) -> Tensor:
        return model(batch[0]).mean()  # type: ignore[no-any-return]

    def perplexity() -> Tensor:
        """Positive, so that ratios of errors mean something."""
        return model(x).mean().exp()  # type: ignore[no-any-return]

    batches = shuffled((x,), 50, seed)
    return Task(model, loss_of, batches, 30, 30, adamw(3e-3), whole((x,), 50), linear_decay, perplexity)


class Experts(nn.Module):
    """Four experts; a gate sends each row to one of them, so the function jumps where the choice changes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(6, 4), nn.ModuleList(mlp(6, 16, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(1).max(1, keepdim=True)
        answers = torch.cat([expert(x) for expert in self.experts], 1)
        return weights * answers.gather(1, chosen)


def experts(seed: int) -> Task:
    """A mixture of experts, each row answered by one."""
    data = curve(1500, 6)
    torch.manual_seed(seed)
    return supervised(Experts(), functional.mse_loss, data, 25, seed, epochs=16, base=adamw(3e-3))


SOUND = (
    Sound("tiny BERT, batches of 8", lambda seed: bert(8, seed)),
    Sound("tiny BERT, batches of 16", lambda seed: bert(16, seed)),
    Sound("tiny BERT that rests at ln 2", slow_bert),
    Sound("deep sigmoid network, plateau", plateau),
    Sound("graph network", graph),
    Sound("contrastive loss", contrastive),
    Sound("LSTM", lstm),
    Sound("VAE", vae),
    Sound("VAE, divergence phased in", lambda seed: vae(seed, rises=True)),
    Sound("diffusion", diffusion),
    Sound("residual network, BatchNorm", resnet),
    Sound("dropout", dropout),
    Sound("label noise", label_noise),
    Sound("imbalanced classes", imbalanced),
    Sound("heavy tails, AdamW", lambda seed: heavy_tails(adamw(1e-3), seed)),
    Sound("heavy tails, SOAP", lambda seed: heavy_tails(soap(3e-3), seed)),
    Sound("batches of one row", batches_of_one),
    Sound("one batch per epoch", full_batch),
    Sound("fine-tuning", fine_tuning),
    Sound("stream", stream),
    Sound("tasks by turns", tasks, has_f=False),
    Sound("stream that drifts", lambda seed: stream(seed, drifts=True), has_f=False),
    Sound("warm restarts", restarts),
)
# Kinds that nobody looked at while the rule was chosen.
HELD_BACK = (
    Sound("recommender, embeddings", recommender),
    Sound("normalizing flow", flow),
    Sound("mixture of experts", experts),
)
