"""What `Certified` costs, and what it loses against `Auto`: workloads of the test-bed and networks of the paper.

    CMALIGHT_DATA=FOLDER python benchmarks/bench_certified.py

The objective of all runs is the mean loss plus (1e-4/2) ‖w‖², as a term of the loss. SOAP runs under the watchdog, as
`Auto`, and under `Certified`, from the same starts, in the same order, with the same schedule.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import torch
from common import table, workloads
from torch import Tensor, nn

from cmalight import SOAP, Auto, Certified, Objective, TensorBatches
from cmalight.bench.models import Run
from cmalight.bench.problems import Problem, problem_of

PROBLEMS = ("mlp", "lstm", "vit", "bikes 1x50", "bikes 3x20", "bikes 5x50")
WEIGHT_DECAY, BATCH = 1e-4, 128


@dataclass
class Ended:
    """How a run ended."""

    loss: float
    seconds: float
    evaluations: int
    undone: int


def problem(name: str) -> Problem:
    if name in workloads.WORKLOADS:
        return workloads.WORKLOADS[name]()
    dataset, network = name.split()
    return problem_of(Run(dataset=dataset, network=network, solver="auto", seed=0, code=""))


def run(problem: Problem, method: str, seed: int, epochs: int) -> Ended:
    torch.manual_seed(seed)
    model = problem.make_model()
    loader = TensorBatches(*problem.train, batch_size=BATCH, seed=seed)

    def loss_of(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        x, y = batch
        penalty = sum(p.square().sum() for p in model.parameters())
        return problem.loss_fn(model(x), y) + WEIGHT_DECAY / 2 * penalty, len(x)

    objective = Objective(model, None, loader, forward=loss_of)
    total = epochs * len(loader)
    if method == "certified":
        base = SOAP(model.parameters(), lr=1e-2)
        optimizer = Certified(base, objective, steps_per_epoch=len(loader), total_steps=total)
    else:
        optimizer = Auto(model, objective=objective, total_steps=total)
    undone = 0
    begin = time.process_time()
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            loss = loss_of(model, batch)[0]
            loss.backward()
            optimizer.step(loss)
        undone += optimizer.report is not None and not optimizer.report.outcome.keeps
    seconds = time.process_time() - begin
    evaluations = objective.evaluations
    return Ended(Objective(model, None, loader, forward=loss_of, mode="eval")(), seconds, evaluations, undone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in arguments.problems:
        of_name = problem(name)
        ended = {
            method: [run(of_name, method, seed, arguments.epochs) for seed in range(arguments.seeds)]
            for method in ("auto", "certified")
        }
        pairs = list(zip(ended["certified"], ended["auto"], strict=True))
        rows.append(
            (
                name,
                ", ".join(f"{auto.loss:.3g}" for _, auto in pairs),
                ", ".join(f"{certified.loss / auto.loss:.2f}" for certified, auto in pairs),
                ", ".join(f"{certified.seconds / auto.seconds:.2f}" for certified, auto in pairs),
                ", ".join(f"{certified.evaluations / arguments.epochs:.2f}" for certified, _ in pairs),
                ", ".join(str(certified.undone) for certified, _ in pairs),
            )
        )
    header = ("problem", "f, `Auto`", "f over `Auto`'s", "time over `Auto`'s", "evaluations per epoch", "epochs undone")
    print(table(header, rows))


if __name__ == "__main__":
    main()
