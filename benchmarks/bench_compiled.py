"""Compiled epochs of fit against eager ones, against a plain loop over a DataLoader, and several starts at once.

In one process on one torch thread: epochs of 118 batches of 128 and one of 48, all accepted on line 7. The contestants
take turns, a few epochs each; the processor time of a contestant's thread counts, to which other processes add nothing.
Compile time is not in the ratios; it has a column of its own. Memory is measured in processes of their own, Linux only.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: every contestant has a thread of its own

import argparse
import itertools
import multiprocessing
import queue
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import BATCH, Case, interleaved, ratio, table
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import FitResult, fit

SAMPLES = 118 * BATCH + 48
LR = {"lr": 1e-6}  # so small that every epoch is a little better than the last
STARTS = 5
TURN = 3
CASES = (
    Case("[1x50]", 9, (50,)),
    Case("[3x20]", 55, (20,) * 3),
    Case("[5x50]", 55, (50,) * 5),
    Case("[10x50]", 55, (50,) * 10),
    Case("[12x300]", 55, (50, *(300,) * 11, 50)),
)


class Contestant:
    """A fit in a thread of its own that waits after every few epochs for its next turn."""

    def __init__(self, case: Case, **options: Any) -> None:
        self._turns: queue.Queue[bool] = queue.Queue()
        self._done: queue.Queue[list[float] | BaseException] = queue.Queue()
        self._times: list[float] = []
        self._thread = threading.Thread(target=self._fit, args=(case, options), daemon=True)
        self._thread.start()
        self._next()  # with f(w⁰), and where there is one, with the compiler

    def epoch(self) -> float:
        """Processor seconds of an epoch, the least of a turn: its first finds another contestant in the caches."""
        self._turns.put(True)
        return self._next()

    def end(self) -> FitResult:
        self._turns.put(False)
        self._thread.join()
        return self.result

    def on_epoch_end(self, record: Any) -> bool:
        if record.outcome not in ("accepted", "uncontrolled"):
            raise RuntimeError(f"this was to compare accepted epochs, but one was {record.outcome}")
        self._times.append(time.thread_time())
        if len(self._times) <= TURN:
            return False
        self._done.put(self._times)
        goes_on = self._turns.get()
        self._times = [time.thread_time()]
        return not goes_on

    def _next(self) -> float:
        times = self._done.get()
        if isinstance(times, BaseException):
            raise times
        return min(after - before for before, after in itertools.pairwise(times))

    def _fit(self, case: Case, options: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        try:
            self.result = fit(
                case.model(),
                nn.MSELoss(),
                far_away(case),
                optimizer_options=LR,
                max_epochs=10**6,
                progress=False,
                callbacks=[self],
                **options,
            )
        except BaseException as error:
            self._done.put(error)


def far_away(case: Case) -> tuple[Tensor, Tensor]:
    """Targets with a long way to go, so that every epoch is accepted."""
    x, y = case.table(SAMPLES)
    return x, y + 10


def plain_loop(case: Case) -> Callable[[], float]:
    """What a user would write: a shuffled DataLoader and torch's SGD."""
    model, loss_fn = case.model(), nn.MSELoss()
    loader = DataLoader(TensorDataset(*far_away(case)), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), **LR)

    def epoch() -> float:
        began = time.thread_time()
        for x, y in loader:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
        return time.thread_time() - began

    return lambda: min(epoch() for _ in range(TURN))


def epochs(case: Case, rounds: int) -> list[str]:
    contestants = {
        "eager": Contestant(case, engine="eager"),
        "compiled": Contestant(case, engine="compiled"),
        "compiled SGD": Contestant(case, engine="compiled", optimizer="sgd"),
    }
    times = interleaved({"loop": plain_loop(case), **{name: one.epoch for name, one in contestants.items()}}, rounds)
    pair = interleaved({name: contestants[name].epoch for name in ("compiled", "compiled SGD")}, rounds)
    results = {name: one.end() for name, one in contestants.items()}
    batches = -(-SAMPLES // BATCH)
    return [
        case.name,
        *(f"{1e6 * min(times[name]) / batches:.0f} µs" for name in ("loop", "eager", "compiled")),
        f"**{ratio(times['loop'], times['compiled']):.1f}**",
        f"**{ratio(times['eager'], times['compiled']):.1f}**",
        f"{ratio(pair['compiled'], pair['compiled SGD']):.3f}",
        f"{results['compiled'].compile_seconds:.0f} s",
    ]


def starts(case: Case, rounds: int) -> list[str]:
    single, several = Contestant(case, engine="compiled"), Contestant(case, engine="compiled", starts=STARTS)
    times = interleaved({"one": single.epoch, "several": several.epoch}, rounds)
    single.end()
    several.end()
    per_start = [t / STARTS for t in times["several"]]
    return [
        case.name,
        f"{1e3 * statistics.median(times['one']):.2f} ms",
        f"{1e3 * statistics.median(per_start):.2f} ms",
        f"**{ratio(times['one'], per_start):.2f}**",
    ]


def peak(case: Case, engine: str) -> tuple[float, float]:
    """MB at the peak of the epochs after the first, and at the peak of all, in a process of its own."""
    pool = multiprocessing.get_context("spawn").Pool(1)
    figures = pool.apply(_peak_here, (case, engine))
    pool.close()
    pool.join()
    return figures


def _peak_here(case: Case, engine: str) -> tuple[float, float]:
    torch.set_num_threads(1)
    contestant = Contestant(case, engine=engine)
    whole = _high_water()
    Path("/proc/self/clear_refs").write_text("5")
    contestant.epoch()
    later = _high_water()
    contestant.end()
    return later, max(whole, later)


def _high_water() -> float:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def memory(case: Case) -> list[str]:
    (eager, eager_whole), (native, native_whole) = peak(case, "eager"), peak(case, "compiled")
    return [
        case.name,
        f"{eager:.0f} MB",
        f"{native:.0f} MB",
        f"**{native / eager:.2f}**",
        f"{native_whole / eager_whole:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a smoke test, not a measurement")
    parser.add_argument("--only", choices=("epochs", "starts", "memory"), help="one of the tables")
    parser.add_argument("--cases", nargs="*", help="names of networks, such as '[1x50]'")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rounds = 5 if options.quick else 25
    cases = [case for case in CASES if not options.cases or case.name in options.cases]
    if options.only in (None, "epochs"):
        header = ["a step", "DataLoader, SGD", "fit, eager", "fit, compiled", "loop / compiled", "eager / compiled"]
        rows = [epochs(case, max(3, rounds // 5) if case.name == "[12x300]" else rounds) for case in cases]
        print(table([*header, "CMALight / SGD, compiled", "compiling"], rows))
    if options.only in (None, "starts"):
        rows = [starts(case, rounds) for case in cases if case.name in ("[1x50]", "[3x20]")]
        print(table(["an epoch", "one run", f"a start of {STARTS} at once", "throughput"], rows))
    if options.only in (None, "memory"):
        rows = [memory(case) for case in cases if case.name in ("[1x50]", "[10x50]", "[12x300]")]
        print(table(["peak", "eager", "compiled", "in epochs", "with compiling"], rows))


if __name__ == "__main__":
    main()
