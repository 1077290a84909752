"""What the watchdog costs while nothing goes wrong: the time of `Auto` over that of plain SOAP, and of AdamW.

Processor time of whole training steps, one thread, each workload in turns in one process:

    python benchmarks/bench_control.py --steps 1000
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator

import torch
from common import workloads
from torch import Tensor

from cmalight import SOAP, Auto, Objective, TensorBatches
from cmalight.bench.problems import Problem

NAMES = ("resnet-digits", "gpt", "vit", "lstm", "denoiser", "mlp")
BATCH = {"gpt": 16}
TURN = 50


def endless(batches: TensorBatches) -> Iterator[tuple[Tensor, ...]]:
    return itertools.chain.from_iterable(batches for _ in itertools.count())


def trainer(problem: Problem, name: str, size: int, steps: int) -> Callable[[int], float]:
    """What takes some steps and gives their processor time."""
    torch.manual_seed(0)
    model = problem.make_model().train()
    batches = TensorBatches(*problem.train, batch_size=size)
    if name == "auto":
        optimizer = Auto(model, objective=Objective(model, problem.loss_fn, batches), total_steps=steps)
    else:
        optimizer = (SOAP if name == "soap" else torch.optim.AdamW)(model.parameters(), lr=1e-2)
    stream = endless(batches)

    def take(count: int) -> float:
        start = time.process_time()
        for inputs, target in itertools.islice(stream, count):
            optimizer.zero_grad()
            loss = problem.loss_fn(model(inputs), target)
            loss.backward()
            optimizer.step(loss) if isinstance(optimizer, Auto) else optimizer.step()
        return time.process_time() - start

    return take


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--workloads", nargs="+", choices=sorted(workloads.WORKLOADS), default=NAMES)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| workload | AdamW, ms per step | SOAP / AdamW | Auto / SOAP |\n|---|---|---|---|")
    over_adamw, over_soap = [], []
    for name in args.workloads:
        problem = workloads.WORKLOADS[name]()
        takers = {kind: trainer(problem, kind, BATCH.get(name, 128), args.steps) for kind in ("adamw", "soap", "auto")}
        totals = dict.fromkeys(takers, 0.0)
        for _ in range(args.steps // TURN):
            for kind, take in takers.items():
                totals[kind] += take(TURN)
        over_adamw.append(totals["soap"] / totals["adamw"])
        over_soap.append(totals["auto"] / totals["soap"])
        per_step = 1000 * totals["adamw"] / args.steps
        print(f"| {name} | {per_step:.2f} | {over_adamw[-1]:.2f} | {over_soap[-1]:.3f} |", flush=True)
    print(f"| median | | {statistics.median(over_adamw):.2f} | {statistics.median(over_soap):.3f} |")


if __name__ == "__main__":
    main()
