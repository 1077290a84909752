"""Which way single samples lead, and where an epoch is on its way: `python docs/results/paper/descent.py`.

Writes descent.json: for each of the data sets and the paper's small networks, at the start and after one, five and
twenty epochs that CMALight kept (an epoch that it undoes leads nowhere),

- descent: the share of the samples whose anti-gradient leads f down, ∇f_i(w)ᵀ∇f(w) > 0;
- worse: how many of some epochs from there have a higher mean of f over the points of their first half than over
  those of their second; each with the step size that CMALight has there and an order of its own.
"""

import argparse
import copy
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from cmalight.training.records.history import EpochRecord
from torch import nn

from cmalight import fit
from cmalight.datasets import DataError, load_dataset
from cmalight.models import paper_network

FILE = Path(__file__).with_suffix(".json")
DATASETS = ("ailerons", "beijing-pm25", "bikes", "california", "mv")
NETWORKS = ("1x50", "3x20", "5x50", "10x50")
KEPT = (0, 1, 5, 20)
MOST = 300  # epochs in which to keep so many
ORDERS = 4
LOOKS = 8  # points of an epoch at which f is looked at
BATCH = 128
LR = 0.5  # the paper's ζ⁰


@dataclass(frozen=True)
class Point:
    """What was found after so many epochs that were kept."""

    dataset: str
    network: str
    kept: int
    epochs: int
    lr: float
    loss: float
    descent: float
    worse: float


@dataclass
class Snapshots:
    """The weights and the step size after so many kept epochs."""

    model: nn.Module
    kept: int = 0
    taken: dict[int, tuple[nn.Module, int, float]] = field(default_factory=dict)

    def take(self, epochs: int, lr: float) -> None:
        if self.kept in KEPT and self.kept not in self.taken:
            self.taken[self.kept] = (copy.deepcopy(self.model), epochs, lr)

    def on_epoch_end(self, record: EpochRecord) -> bool:
        self.kept += bool(record.alpha)
        self.take(record.epoch + 1, record.next_lr)
        return self.kept >= KEPT[-1]


def descent(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Of the samples: the products of all their gradients with ∇f, by differentiating Σ u_i ∇f_iᵀ∇f by u."""
    weights = list(model.parameters())
    losses = (model(x) - y).square().sum(dim=1)
    whole = torch.autograd.grad(losses.mean(), weights, retain_graph=True)
    u = torch.ones(len(x), requires_grad=True)
    gradients = torch.autograd.grad(losses, weights, grad_outputs=u, create_graph=True)
    along = sum((one * other).sum() for one, other in zip(gradients, whole, strict=True))
    (products,) = torch.autograd.grad(along, u)
    return float((products > 0).double().mean())


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float(nn.functional.mse_loss(model(x), y))


def worse(model: nn.Module, x: torch.Tensor, y: torch.Tensor, lr: float, seed: int) -> bool:
    """Whether f is higher in the first half of an epoch than in the second, in the mean; its start does not count."""
    model = copy.deepcopy(model)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).split(BATCH)
    looks = {(at + 1) * len(order) // LOOKS for at in range(LOOKS)} - {0}
    found = []
    for count, rows in enumerate(order, 1):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(model.parameters(), gradients, strict=True):
                weight -= lr * len(rows) / len(order[0]) * gradient
        if count in looks:
            found.append(loss_of(model, x, y))
    half = len(found) // 2
    return sum(found[:half]) / half > sum(found[-half:]) / half


def points(dataset: str, network: str) -> list[Point]:
    data = load_dataset(dataset)
    pair = (data.x_train, data.y_train)
    torch.manual_seed(0)
    model = paper_network(network, data.features)
    seen = Snapshots(model)
    seen.take(0, LR)
    fit(
        model,
        nn.MSELoss(),
        pair,
        optimizer="cmalight",
        optimizer_options={"lr": LR},
        batch_size=BATCH,
        max_epochs=MOST,
        callbacks=[seen],
        progress=False,
        engine="eager",
    )
    found = []
    for kept, (there, epochs, lr) in seen.taken.items():
        higher = [worse(there, *pair, lr, seed) for seed in range(ORDERS)]
        found.append(
            Point(
                dataset,
                network,
                kept,
                epochs,
                lr,
                loss=float(f"{loss_of(there, *pair):.6g}"),
                descent=round(descent(there, *pair), 4),
                worse=sum(higher) / len(higher),
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=FILE, help="a file [descent.json beside this]")
    parser.add_argument("--datasets", nargs="+", default=DATASETS, metavar="NAME")
    parser.add_argument("--networks", nargs="+", default=NETWORKS, metavar="NAME")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for dataset in chosen.datasets:
        try:
            for network in chosen.networks:
                found += [json.dumps(asdict(point)) for point in points(dataset, network)]
        except DataError as error:
            print(f"left out: {dataset} ({error})")
    chosen.out.write_text("[\n" + ",\n".join(found) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
