"""Runs that the base alone ruins: a few rows that are far too large, and learning rates that are too large.

    python benchmarks/bench_hostile.py rows --seeds 6
    CMALIGHT_DATA=folder python benchmarks/bench_hostile.py rates --sets california bikes mv ailerons --seeds 2

rows: linear regression, one row in 200 or in 4,000 times 30, 300, 1,000; how many runs end above f₀, and the worst.
rates: SOAP at 1, 3, 10 and 100 times 10⁻² on tables; the final loss over that of SOAP alone at 10⁻² (over f₀ if that
is not finite): how many runs end within 1.5 and within 3 of it, how many above f₀, the geometric mean, the worst, and
how many had an undone window.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from cmalight import SOAP, Controlled, Objective, TensorBatches
from cmalight.datasets import load_dataset
from cmalight.rules.outcome import Outcome

WATCHES = ("alone", "watched", "watched with an objective")
BASES: dict[str, Callable[[Iterable[Tensor]], Optimizer]] = {
    "SGD": lambda parameters: SGD(parameters, lr=0.1),
    "momentum": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: Adam(parameters, lr=0.1),
    "SOAP": lambda parameters: SOAP(parameters, lr=0.1),
}
NETS = {"[3x20] sigmoid": (3, 20, nn.Sigmoid), "[5x50] sigmoid": (5, 50, nn.Sigmoid), "[5x50] ReLU": (5, 50, nn.ReLU)}


@dataclass(frozen=True)
class Ended:
    """The loss over all data at the end and at the start, and how many windows were undone."""

    loss: float
    first: float
    undone: int


def scheduled(t: float) -> float:
    return max(1e-3, min(1.0, t / 0.05, (1 - t) / 0.4))


def train(model: nn.Module, base: Optimizer, data: TensorBatches, steps: int, watch: str) -> Ended:
    loss_fn = nn.MSELoss()
    objective = Objective(model, loss_fn, TensorBatches(*data.tensors, batch_size=4096, order="fixed"))
    first = objective()
    f = objective if watch == "watched with an objective" else None
    # Both have one schedule. The watchdog's own tells it where the last window ends.
    optimizer = base if watch == "alone" else Controlled(base, model, objective=f, total_steps=steps)
    outcomes: list[Outcome] = []
    if isinstance(optimizer, Controlled):
        optimizer.on_report(lambda report: outcomes.append(report.outcome))
    scheduler = LambdaLR(base, lambda step: scheduled((step + 0.5) / steps)) if watch == "alone" else None
    step = 0
    while step < steps:
        for inputs, target in data:
            loss = loss_fn(model(inputs), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step(loss) if isinstance(optimizer, Controlled) else optimizer.step()
            if scheduler is not None:
                scheduler.step()
            step += 1
            if step == steps:
                break
    loss_now = objective()
    undone = sum(outcome in (Outcome.UNDONE, Outcome.DIVERGED) for outcome in outcomes)
    return Ended(loss_now if math.isfinite(loss_now) else math.inf, first, undone)


def regression(base: str, rows: int, times: float, seed: int, watch: str) -> Ended:
    """A linear model, and one row whose inputs and target are `times` as large as the others."""
    draw = torch.Generator().manual_seed(seed)
    x, weights = torch.randn(rows, 10, generator=draw), torch.randn(10, 1, generator=draw)
    y = x @ weights + 0.1 * torch.randn(rows, 1, generator=draw)
    x[0] *= times
    y[0] *= times
    torch.manual_seed(seed)
    model = nn.Linear(10, 1)
    return train(model, BASES[base](model.parameters()), TensorBatches(x, y, batch_size=20, seed=seed), 1000, watch)


def table(name: str, net: str, lr: float, seed: int, watch: str) -> Ended:
    data = load_dataset(name)
    x = torch.as_tensor(data.x_train).float()
    y = torch.as_tensor(data.y_train).float().reshape(len(x), -1)
    depth, width, activation = NETS[net]
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for before in [x.shape[1]] + [width] * (depth - 1):
        layers += [nn.Linear(before, width), activation()]
    model = nn.Sequential(*layers, nn.Linear(width, 1))
    return train(model, SOAP(model.parameters(), lr=lr), TensorBatches(x, y, batch_size=128, seed=seed), 1500, watch)


def rows_table(seeds: int) -> None:
    print(
        "| one row | base | "
        + " | ".join(f"{watch}: above f₀, worst" for watch in WATCHES)
        + " |\n|---|---|---|---|---|"
    )
    for rows in (200, 4000):
        for base in BASES:
            cells = []
            for watch in WATCHES:
                ends = [regression(base, rows, t, seed, watch) for t in (30, 300, 1000) for seed in range(seeds)]
                worst = max(end.loss / end.first for end in ends)
                cells.append(f"{sum(not end.loss <= end.first for end in ends)} of {len(ends)}, {worst:.2g}")
            print(f"| in {rows} | {base} | " + " | ".join(cells) + " |", flush=True)


def rates_table(sets: list[str], nets: list[str], seeds: int) -> None:
    kinds = [(name, net, seed) for name in sets for net in nets for seed in range(seeds)]
    good = [table(name, net, 1e-2, seed, "alone") for name, net, seed in kinds]
    one = [end.loss if math.isfinite(end.loss) else end.first for end in good]
    print("| lr | run | within 1.5 | within 3 | above f₀ | mean | worst | with an undone window |\n" + "|---" * 8 + "|")
    for times in (1, 3, 10, 100):
        for watch in WATCHES:
            ends = [table(name, net, 1e-2 * times, seed, watch) for name, net, seed in kinds]
            ratios = [end.loss / loss for end, loss in zip(ends, one, strict=True)]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            within = [f"{sum(ratio <= limit for ratio in ratios)} of {len(ratios)}" for limit in (1.5, 3)]
            above = sum(not end.loss <= end.first for end in ends)
            numbers = [
                *within,
                str(above),
                f"{mean:.3g}",
                f"{max(ratios):.3g}",
                str(sum(end.undone > 0 for end in ends)),
            ]
            print(f"| x {times} | {watch} | " + " | ".join(numbers) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("rows", "rates"), default="rows")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--sets", nargs="*", default=["california", "bikes"])
    parser.add_argument("--nets", nargs="*", default=list(NETS), choices=list(NETS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if args.what == "rows":
        rows_table(args.seeds)
    else:
        rates_table(args.sets, args.nets, args.seeds)


if __name__ == "__main__":
    main()
