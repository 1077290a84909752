"""Controlled, AdamW's schedules and Schedule-Free on models as people train them, small enough for one thread.

    python benchmarks/workloads.py OUT.jsonl --workloads resnet mlp --solvers cosine:1e-2 controlled --data FOLDER
    python benchmarks/workloads.py OUT.jsonl --table

Workloads: resnet (BatchNorm, augmentation), finetune (the same on other classes), gpt10 and gpt1 (a character GPT in
ten epochs and in one), mlp (dropout), lstm, denoiser; with bad data: mlp+bad_batch, mlp+label_noise, mlp+spikes.

Solvers: cosine:PEAK (AdamW, warm-up and cosine), fixed:LR (AdamW), adam-wsd:PEAK (Adam with eps 1e-15: warm-up, a
constant step size, a line to zero over the last 40 %), schedule-free (AdamW), controlled or controlled:LR, and
controlled:NAME=VALUE with another constant of `rules/tolerant.py`.

Seed 0, or those of --seeds. One line per run; a run that is in OUT.jsonl is not repeated. FOLDER has CIFAR-10's
cifar-10-binary.tar.gz, Covtype's covtype.data.gz and Beijing's PRSA_data_2010.1.1-2014.12.31.csv, or those of them that
are needed; their checksums are not asked for.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any
from unittest import mock

import torch
from common import table
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer
from workload_models import WORKLOADS, Batch, Workload, workload

from cmalight import Controlled, Objective
from cmalight.rules import tolerant

COSINES = tuple(f"cosine:{peak}" for peak in ("3e-4", "1e-3", "3e-3", "1e-2"))
SOLVERS = (*COSINES, "fixed:1e-3", "adam-wsd:5e-3", "adam-wsd:1e-2", "schedule-free", "controlled")
Run = dict[str, Any]


def main() -> None:
    given = parsed()
    if given.table:
        print(report(read(given.out)))
        return
    torch.set_num_threads(1)
    done = {(run["workload"], run["solver"], run["seed"]) for run in read(given.out)}
    for name in given.workloads:
        wanted = [(seed, solver) for seed in given.seeds for solver in given.solvers]
        missing = [(seed, solver) for seed, solver in wanted if (name, solver, seed) not in done]
        if not missing:
            continue
        work = workload(name, given.data)
        for seed, solver in missing:
            run = measured(work, solver, seed)
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(run) + "\n")
            print(run, flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT.jsonl")
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--solvers", nargs="+", default=SOLVERS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--data", type=Path, default=Path(), metavar="FOLDER", help="where the data sets' files are")
    parser.add_argument("--table", action="store_true", help="print the results as a table, and run nothing")
    return parser.parse_args()


def read(path: Path) -> list[Run]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


# Runs


def measured(work: Workload, solver: str, seed: int) -> Run:
    """One run: the training loss and the validation metric at its end, and how long it took."""
    kind, _, value = solver.partition(":")
    torch.manual_seed(seed + 100)  # of dropout
    model = work.fresh_model(seed)
    start = time.perf_counter()
    if kind == "cosine":
        scheduled(work, model, seed, AdamW(model.parameters(), lr=float(value)), cosine)
    elif kind == "fixed":
        scheduled(work, model, seed, AdamW(model.parameters(), lr=float(value)), lambda _: 1.0)
    elif kind == "adam-wsd":
        scheduled(work, model, seed, Adam(model.parameters(), lr=float(value), eps=1e-15), wsd)
    elif kind == "schedule-free":
        schedule_free(work, model, seed)
    elif kind != "controlled":
        raise SystemExit(f"There is no solver {solver!r}: expected one such as {', '.join(SOLVERS)}")
    more = {}
    if kind == "controlled":
        name, _, constant = value.partition("=")
        with mock.patch.object(tolerant, name, float(constant)) if constant else nullcontext():
            more = controlled(work, model, seed, 7e-3 if constant else float(value or 7e-3))
    seconds = round(time.perf_counter() - start, 1)
    figures = {"train": work.training_loss(model), "validation": work.validate(model), "metric": work.metric}
    return {"workload": work.name, "solver": solver, "seed": seed, **figures, "seconds": seconds, **more}


def cosine(share: float) -> float:
    return min(1.0, share / 0.05) * (1 + math.cos(math.pi * max(0.0, share - 0.05) / 0.95)) / 2


def wsd(share: float) -> float:
    return min(1.0, share / 0.05) * min(1.0, (1 - share) / 0.4)


def step(work: Workload, model: nn.Module, optimizer: Optimizer, batch: Batch) -> None:
    optimizer.zero_grad()
    work.loss(model(batch[0]), batch[1]).backward()
    optimizer.step()


def scheduled(
    work: Workload, model: nn.Module, seed: int, optimizer: Optimizer, shape: Callable[[float], float]
) -> None:
    peak, done = optimizer.param_groups[0]["lr"], 0
    loader = work.loader(seed)
    for _ in range(work.epochs):
        for batch in loader:
            optimizer.param_groups[0]["lr"] = peak * shape((done + 0.5) / work.steps)
            step(work, model, optimizer, batch)
            done += 1


def schedule_free(work: Workload, model: nn.Module, seed: int) -> None:
    from schedulefree import AdamWScheduleFree

    optimizer = AdamWScheduleFree(model.parameters())
    optimizer.train()
    loader = work.loader(seed)
    for _ in range(work.epochs):
        for batch in loader:
            step(work, model, optimizer, batch)
    optimizer.eval()
    if any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        with torch.no_grad():  # as its authors advise: BatchNorm's averages belong to other weights
            for x, _ in loader:
                model(x)


def controlled(work: Workload, model: nn.Module, seed: int, lr: float) -> Run:
    """The loop of docs/guides/loop.md, with samples charged: a forward pass is taken for a third of a step.

    Args:
        work: The run ends when batches and evaluations have used up its budget.
        model: To train.
        seed: Of the order of the batches.
        lr: The first step size.

    Returns:
        How the epochs ended, and what share of the budget went into samples.
    """
    taken = evaluated = 0

    def counted_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal evaluated
        evaluated += len(targets)
        return work.loss(outputs, targets)

    def share() -> float:
        return min(1.0, (taken + evaluated / 3 / work.batch_size) / work.steps)

    optimizer = Controlled(Adam(model.parameters(), lr=lr, eps=1e-15))
    optimizer.report_share(share)
    objective = Objective(model, counted_loss, work.fixed_batches())
    loader = work.loader(seed)
    outcomes: Counter[str] = Counter()
    while share() < 1.0:
        with optimizer.epoch(objective) as epoch:
            for x, y in epoch.batches(loader):
                optimizer.zero_grad()
                loss = work.loss(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
                taken += 1
                if share() >= 1.0:
                    epoch.cut_short()
                    break
        outcomes[epoch.report.outcome.name if epoch.report else "CUT_SHORT"] += 1
    return {"outcomes": outcomes, "charge": round(evaluated / 3 / (work.steps * work.batch_size), 4)}


# The table


def report(runs: list[Run]) -> str:
    """Training losses over those of the best cosine of the same workload and seed, as a Markdown table."""
    found = {(run["workload"], run["solver"], run["seed"]): run for run in runs}
    names = list(dict.fromkeys(name for name in (*WORKLOADS, *sorted({key[0] for key in found}))))
    names = [name for name in names if any(key[0] == name for key in found)]
    solvers = [name for name in SOLVERS if any(key[1] == name for key in found)]
    solvers += sorted({key[1] for key in found} - set(solvers))
    seeds = sorted({key[2] for key in found})
    rows = []
    for solver in solvers:
        cells, means = [], []
        for name in names:
            pairs = [(found[name, solver, s], best_cosine(found, name, s)) for s in seeds if (name, solver, s) in found]
            ratios = [finite(run["train"]) / best for run, best in pairs if best is not None]
            validation = f"{fmean(run['validation'] for run, _ in pairs):.4g}" if pairs else ""
            if ratios:
                means.append(geometric_mean(ratios))
                cells.append(f"{means[-1]:.3f} [{len(ratios)}] ({validation})")
            else:
                cells.append(f"– ({validation})" if pairs else "")
        summary = [f"{geometric_mean(means):.3f} ({len(means)})", f"{max(means):.3f}"] if means else ["", ""]
        rows.append([solver, *cells, *summary])
    return "\n".join(
        [
            "Training loss at the end over that of the best of the four cosines that was run with the same seed (of",
            "fewer where fewer were run), geometric mean over [seeds]; in brackets the mean validation metric, percent",
            "right or loss. Mean and worst: over the workloads of the row.",
            "",
            table(("solver", *names, "mean", "worst"), rows),
        ]
    )


def best_cosine(found: dict[tuple[str, str, int], Run], name: str, seed: int) -> float | None:
    losses = [finite(found[name, solver, seed]["train"]) for solver in COSINES if (name, solver, seed) in found]
    return min(filter(math.isfinite, losses), default=None)


def finite(loss: float) -> float:
    """NaN is as bad as infinity."""
    return loss if math.isfinite(loss) else math.inf


if __name__ == "__main__":
    main()
