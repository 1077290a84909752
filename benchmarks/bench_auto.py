"""engine="auto" against the better of the two engines, in total time, on 20 problems.

For each problem, in one process on one thread: eager, compiled and auto, each with an empty cache and again with a
full one. Seconds of the processor from the call of fit to its end, the compiler's included; with a time limit, on the
processor's clock, what counts is how many epochs were done.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import resource
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import torch
from common import BATCH, Case, table
from torch import nn

from cmalight import fit
from cmalight.compiled.native import library


@dataclass(frozen=True)
class Problem:
    """A network, how many batches its epochs have, and how long it is trained."""

    case: Case
    batches: int
    epochs: int | None = None
    seconds: float | None = None
    optimizer: str = "adam"

    @property
    def name(self) -> str:
        limit = f"{self.epochs} epochs" if self.epochs is not None else f"{self.seconds:g} s"
        return f"{self.case.name}, {self.optimizer}, {self.batches} batches, {limit}"


TINY, SMALL, MIDDLE = Case("[1x50]", 9, (50,)), Case("[3x20]", 55, (20,) * 3), Case("[5x50]", 55, (50,) * 5)
DEEP, LARGE = Case("[10x50]", 55, (50,) * 10), Case("[4x300]", 55, (300,) * 4)
PROBLEMS = (
    *(Problem(TINY, 10, epochs) for epochs in (1, 10, 100, 1000)),
    *(Problem(TINY, 100, epochs, optimizer="sgd") for epochs in (2, 20, 100)),
    *(Problem(SMALL, 50, epochs) for epochs in (2, 20, 200)),
    *(Problem(MIDDLE, 50, epochs, optimizer="auto") for epochs in (3, 30, 100)),
    *(Problem(DEEP, 20, epochs) for epochs in (3, 30, 150)),
    Problem(LARGE, 10, 5),
    Problem(LARGE, 10, 30),
    Problem(TINY, 100, seconds=2.0),
    Problem(DEEP, 20, seconds=3.0),
)


def work(problem: Problem, engine: str) -> tuple[float, str]:
    """Seconds, or seconds for an epoch where time is limited; and the engine that ran."""
    model, pair = problem.case.model(), problem.case.table(problem.batches * BATCH)
    options: dict[str, Any] = {
        "max_epochs": problem.epochs,
        "time_limit": problem.seconds,
        "optimizer": problem.optimizer,
    }
    if problem.seconds is not None:
        options["clock"] = "processor"
    library._loaded.clear()
    before = used()
    result = fit(model, nn.MSELoss(), pair, progress=False, engine=engine, **options)
    seconds = used() - before
    return (seconds / max(1, result.epochs) if problem.seconds is not None else seconds), result.engine


def used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def compared(problem: Problem, tries: int) -> list[str]:
    cells = []
    for cache_is_full in (False, True):
        times: dict[str, list[float]] = {"eager": [], "compiled": [], "auto": []}
        chosen = ""
        for _ in range(tries):
            for engine, seen in times.items():
                with tempfile.TemporaryDirectory() as cache:
                    os.environ["CMALIGHT_CACHE"] = cache
                    library._loaded.clear()
                    if cache_is_full and engine != "eager":
                        fit(
                            problem.case.model(),
                            nn.MSELoss(),
                            problem.case.table(problem.batches * BATCH),
                            optimizer=problem.optimizer,
                            max_epochs=1,
                            progress=False,
                            engine="compiled",
                        )
                    seconds, ran = work(problem, engine)
                    seen.append(seconds)
                    chosen = ran if engine == "auto" else chosen
        best = {engine: min(seen) for engine, seen in times.items()}
        ratio = best["auto"] / min(best["eager"], best["compiled"])
        cells += [*(f"{best[engine]:.2f}" for engine in ("eager", "compiled", "auto")), chosen, f"**{ratio:.2f}**"]
    return [problem.name, *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the first problem of each network, once each")
    parser.add_argument("--tries", type=int, default=2, help="of which the fastest counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    problems = [one for number, one in enumerate(PROBLEMS) if not options.quick or number in (0, 4, 7, 10, 13)]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CMALIGHT_CACHE"] = cache
        work(Problem(TINY, 10, 1), "compiled")  # with what is imported on the way
    each = ["eager", "compiled", "auto", "chosen", "auto / better"]
    header = ["seconds (an epoch's, with a time limit)", *each, *(f"{one}, full cache" for one in each)]
    for number, problem in enumerate(problems):
        lines = table(header, [compared(problem, 1 if options.quick else options.tries)]).splitlines()
        print("\n".join(lines if not number else lines[2:]), flush=True)


if __name__ == "__main__":
    main()
