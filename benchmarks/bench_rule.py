"""What each constant of the watchdog is worth: the final loss with another value, over that of SOAP alone at 1e-2.

    python benchmarks/bench_rule.py

Geometric means over three tables, two networks and two seeds, 1,000 steps, at learning rates of 1, 10 and 100 times the
default; and the number of runs that had a window undone. The data sets are downloaded where they are not at hand.
"""

from __future__ import annotations

import argparse
import math
import statistics
import warnings

import torch
from common import table
from torch import nn

from cmalight import SOAP, Controlled, Objective, TensorBatches, fit
from cmalight.datasets import load_dataset
from cmalight.models import layered
from cmalight.rules.watchdog import Watchdog

VARIANTS = {
    "as it is": Watchdog(),
    "memory 5": Watchdog(memory=5),
    "memory 20": Watchdog(memory=20),
    "longest 50": Watchdog(longest=50),
    "longest 800": Watchdog(longest=800),
    "slack 2": Watchdog(slack=2.0),
    "slack 6": Watchdog(slack=6.0),
    "shrink 1/4": Watchdog(shrink=0.25),
    "floor 1/4": Watchdog(floor=0.25),
    "floor 1/64": Watchdog(floor=1 / 64),
}
FACTORS = (1.0, 10.0, 100.0)
DEFAULT_LR = 1e-2


def train(data: str, size: str, seed: int, lr: float, rule: Watchdog | None, steps: int) -> tuple[float, bool]:
    """The final loss over all data, and whether a window was undone."""
    loaded = load_dataset(data)
    x, y = torch.as_tensor(loaded.x_train), torch.as_tensor(loaded.y_train).reshape(len(loaded.y_train), -1)
    torch.manual_seed(seed)
    model, loss_fn = layered(size, x.shape[1]), nn.MSELoss()
    loader = TensorBatches(x, y, batch_size=128, seed=seed)
    epochs = max(1, round(steps / len(loader)))
    undone: list[bool] = []
    optimizer: Controlled | str = "soap-wsd"  # the same schedule, and no watchdog
    if rule is not None:
        objective = Objective(model, loss_fn, loader)
        base = SOAP(model.parameters(), lr=lr)
        optimizer = Controlled(base, model, objective=objective, total_steps=epochs * len(loader))
        optimizer._watch.rule, optimizer._watch.memory = rule, rule.init()
        optimizer.on_report(lambda report: undone.append(not report.outcome.keeps))
    fit(model, loss_fn, loader, optimizer=optimizer, max_epochs=epochs, progress=False)
    with torch.no_grad():
        return loss_fn(model(x), y).item(), any(undone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rules", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--sets", nargs="+", default=["california", "bikes", "mv"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    problems = [(data, size, seed) for data in args.sets for size in ("3x20", "5x50") for seed in range(args.seeds)]
    reference = [train(*problem, DEFAULT_LR, None, args.steps)[0] for problem in problems]
    rows = []
    for name in args.rules:
        row, rule = [name], VARIANTS[name]
        for factor in FACTORS:
            ends = [train(*problem, factor * DEFAULT_LR, rule, args.steps) for problem in problems]
            ratios = [end / first for (end, _), first in zip(ends, reference, strict=True)]
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            row.append(f"{mean:.2f}, {max(ratios):.2g} ({sum(was for _, was in ends)})")
        rows.append(row)
    header = ["rule", *(f"lr x {factor:g}: mean, worst (runs with an undone window)" for factor in FACTORS)]
    print(table(header, rows))


if __name__ == "__main__":
    main()
