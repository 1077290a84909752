"""How long the first epoch takes: eager, compiled for the first time ever, and compiled in a second process.

Every number is of a process of its own: from the call of fit to the end of its first epoch, 119 batches of 128, one
thread, SGD. The import of torch, and of what torch imports for any optimizer, is before the call. Seconds of the
processor, the compiler's included, and in parentheses those of the clock, which count what else the machine does. Where
JAX is installed, `jax.lax.scan` over the same batches stands beside it, compiled and run.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import argparse
import importlib.util
import multiprocessing
import resource
import tempfile
import time
from typing import Any

import torch
from common import BATCH, Case, jax_epoch, table
from torch import nn

from cmalight import fit

BATCHES = 119
CASES = (
    Case("[1x50]", 9, (50,)),
    Case("[3x20]", 55, (20,) * 3),
    Case("[5x50]", 55, (50,) * 5),
    Case("[10x50]", 55, (50,) * 10),
)


def used() -> tuple[float, float]:
    """Seconds of the processor, with those of the compiler, and of the clock."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime, time.perf_counter()


def first_epoch(case: Case, engine: str, cache: str) -> tuple[float, float]:
    """In this process."""
    os.environ["CMALIGHT_CACHE"] = cache
    torch.set_num_threads(1)
    pair, model = case.table(BATCHES * BATCH), case.model()
    torch.optim.SGD(model.parameters())
    before = used()
    if engine == "jax":
        jax_epoch(case, pair)()
    else:
        sgd: Any = {"optimizer": "sgd", "optimizer_options": {"lr": 1e-3}}
        fit(model, nn.MSELoss(), pair, max_epochs=1, progress=False, engine=engine, **sgd)
    return used()[0] - before[0], used()[1] - before[1]


def row(case: Case, tries: int, engines: list[str]) -> list[str]:
    cells = []
    for engine in engines:
        times = []
        for _ in range(tries):
            with tempfile.TemporaryDirectory() as cache:
                if engine == "again":
                    _in_a_process(case, "compiled", cache)
                times.append(_in_a_process(case, "compiled" if engine == "again" else engine, cache))
        processor, clock = min(times)
        cells.append(f"{processor:.2f} ({clock:.2f}) s")
    return [case.name, *cells]


def _in_a_process(case: Case, engine: str, cache: str) -> tuple[float, float]:
    pool = multiprocessing.get_context("spawn").Pool(1)
    times = pool.apply(first_epoch, (case, engine, cache))
    pool.close()
    pool.join()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one try each: a smoke test, not a measurement")
    parser.add_argument("--cases", nargs="*", help="names of networks, such as '[1x50]'")
    options = parser.parse_args()
    engines = {"eager": "eager", "compiled": "compiled, first time ever", "again": "compiled, second process"}
    if importlib.util.find_spec("jax") is not None:
        engines["jax"] = "jax.lax.scan"
    cases = [case for case in CASES if not options.cases or case.name in options.cases]
    rows = [row(case, 1 if options.quick else 3, list(engines)) for case in cases]
    print(table(["the first epoch", *engines.values()], rows))


if __name__ == "__main__":
    main()
