"""Compiled epochs of fit against eager ones, against a plain loop over a DataLoader, and several starts at once.

On one torch thread: epochs of batches of 128 and a last one of 48, all accepted on line 7. Each contestant is a process
of its own; they take turns, a few epochs each, while the others wait. The processor time of the process counts, to
which others add nothing. Compile time is not in the ratios; it has a column of its own. Memory is that of the
processes, Linux only.

CMALight and SGD run the same native code, but two runs of it differ by several percent by where their memory lies. So
what CMALight costs is taken from what both do beside the native calls; the ratio of the whole epochs is there, too.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import argparse
import functools
import importlib.util
import itertools
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from common import BATCH, Case, interleaved, jax_epoch, ratio, table
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import fit
from cmalight.compiled.engine.epochs import CompiledEngine

# Forked where that is safe, so that torch is imported once.
_CONTEXT: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
LR = {"lr": 1e-6}  # so small that every epoch is a little better than the last
STARTS = 5
HAS_JAX = importlib.util.find_spec("jax") is not None
TURN = 3
CASES = (
    Case("[1x50]", 9, (50,)),
    Case("[3x20]", 55, (20,) * 3),
    Case("[5x50]", 55, (50,) * 5),
    Case("[10x50]", 55, (50,) * 10),
    Case("[12x300]", 55, (50, *(300,) * 11, 50)),
)


def batches(case: Case) -> int:
    return 15 if case.name == "[12x300]" else 119


class Contestant:
    """A process that waits after every few epochs for its next turn."""

    def __init__(self, case: Case, **options: Any) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = _CONTEXT.Process(target=_contest, args=(theirs, case, options), daemon=True)
        self._process.start()
        theirs.close()
        self.beside: list[float] = []  # seconds of each turn's epoch that were beside its native calls
        self._next()  # with f(w⁰), and where there is one, with the compiler

    def epoch(self) -> float:
        """Processor seconds of an epoch, the least of a turn: its first finds another contestant in the caches."""
        self._pipe.send("go on")
        return self._next()

    def peak(self) -> float:
        """MB since this was last asked."""
        self._pipe.send("peak")
        return float(self._answer())

    def end(self) -> float:
        """Gives the seconds that compiling took."""
        self._pipe.send("end")
        seconds = float(self._answer())
        self._process.join()
        return seconds

    def _next(self) -> float:
        times = self._answer()
        epochs = [(after[0] - before[0], after[1] - before[1]) for before, after in itertools.pairwise(times)]
        self.beside.append(min(whole - in_native for whole, in_native in epochs))
        return min(whole for whole, _ in epochs)

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            raise SystemExit("a contestant has ended; its message is above") from None


def _contest(pipe: Connection, case: Case, options: dict[str, Any]) -> None:
    """In the process of a contestant: a fit, or a loop of another kind."""
    torch.set_num_threads(1)
    turns = Turns(pipe)
    if options["engine"] in LOOPS:
        epoch = LOOPS[options["engine"]](case)
        while not turns.on_epoch_end(None):
            epoch()
        pipe.send(0.0)
        return
    settings = {"optimizer": "cmalight", "optimizer_options": LR, "max_epochs": 10**6, "progress": False, **options}
    result: Any = fit(case.model(), nn.MSELoss(), far_away(case), callbacks=[turns], **settings)
    pipe.send(result.compile_seconds)


class Turns:
    """A callback of fit: says what each epoch took, and waits to be asked for more."""

    __module__ = "cmalight.benchmarks"  # it changes nothing, so that not every epoch has to be looked at

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._times: list[tuple[float, float]] = []  # of the process, and of that in native calls
        self._native_seconds = 0.0
        run: Any = CompiledEngine._run

        def counted(*arguments: Any, **named: Any) -> Any:
            began = time.process_time()
            result = run(*arguments, **named)
            self._native_seconds += time.process_time() - began
            return result

        CompiledEngine._run = counted  # type: ignore[method-assign]

    def on_epoch_end(self, record: Any) -> bool:
        if record is not None and record.outcome not in ("accepted", "uncontrolled"):
            raise RuntimeError(f"this was to compare accepted epochs, but one was {record.outcome}")
        self._times.append((time.process_time(), self._native_seconds))
        if len(self._times) <= TURN:
            return False
        self._pipe.send(self._times)
        while (asked := self._pipe.recv()) == "peak":
            self._pipe.send(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024)
            Path("/proc/self/clear_refs").write_text("5")
        self._times = [(time.process_time(), self._native_seconds)]
        return bool(asked == "end")


def far_away(case: Case) -> tuple[Tensor, Tensor]:
    """Targets with a long way to go, so that every epoch is accepted."""
    x, y = case.table((batches(case) - 1) * BATCH + 48)
    return x, y + 10


def plain_loop(case: Case) -> Callable[[], object]:
    """What a user would write: a shuffled DataLoader and torch's SGD."""
    model, loss_fn = case.model(), nn.MSELoss()
    loader = DataLoader(TensorDataset(*far_away(case)), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), **LR)

    def epoch() -> None:
        for x, y in loader:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()

    return epoch


# By JAX it is one compiled loop, over the full batches.
LOOPS: dict[str, Callable[[Case], Callable[[], object]]] = {
    "loop": plain_loop,
    "jax": lambda case: jax_epoch(case, far_away(case)),
}


def epochs(case: Case, rounds: int) -> tuple[list[str], list[str]]:
    """A row on steps, and one on what the control of CMALight adds to an epoch."""
    contestants = {
        "eager": Contestant(case, engine="eager"),
        "compiled": Contestant(case, engine="compiled"),
        "SGD": Contestant(case, engine="compiled", optimizer="sgd"),
        "loop": Contestant(case, engine="loop"),
        **({"JAX": Contestant(case, engine="jax")} if HAS_JAX else {}),
    }
    times = interleaved({name: one.epoch for name, one in contestants.items()}, rounds)
    for one in contestants.values():
        one.beside.clear()
    # By themselves, because who comes after an eager turn finds other code in the caches.
    pair = interleaved({name: contestants[name].epoch for name in ("compiled", "SGD")}, rounds)
    compiling = {name: one.end() for name, one in contestants.items()}
    steps = [
        case.name,
        *(f"{1e6 * min(times[name]) / batches(case):.0f} µs" for name in ("loop", "eager", "compiled")),
        f"{1e6 * arithmetic(case):.0f} µs",
        f"**{min(times['compiled']) / batches(case) / arithmetic(case):.2f}**",
        f"**{min(times['SGD']) / batches(case) / arithmetic(case):.2f}**",
        f"**{ratio(times['loop'], times['compiled']):.1f}**",
        f"**{ratio(times['eager'], times['compiled']):.1f}**",
        f"{compiling['compiled']:.1f} s",
    ]
    if HAS_JAX:
        jax, sgd = min(times["JAX"]) / (batches(case) - 1), min(times["SGD"]) / batches(case)
        steps += [f"{1e6 * sgd:.0f} µs", f"{1e6 * jax:.0f} µs", f"**{jax / sgd:.1f}**"]
    ours, alone, whole = min(contestants["compiled"].beside), min(contestants["SGD"].beside), min(pair["SGD"])
    control = [
        case.name,
        f"{batches(case)}",
        f"{1e3 * whole:.2f} ms",
        f"{1e6 * alone:.0f} µs",
        f"{1e6 * ours:.0f} µs",
        f"**{1 + (ours - alone) / whole:.3f}**",
        f"{ratio(pair['compiled'], pair['SGD']):.3f}",
    ]
    return steps, control


def arithmetic(case: Case) -> float:
    """Seconds that the products of a step would take at the pace of a large one."""
    sizes = [a * b for a, b in itertools.pairwise((case.inputs, *case.widths, case.outputs))]
    forward_and_backward = 3 * sum(sizes) - sizes[0]  # nobody asks for the gradient of the inputs
    return 2 * BATCH * forward_and_backward / products_a_second()


@functools.cache
def products_a_second() -> float:
    """Multiplications and additions of one thread."""
    size, fastest = 512, math.inf
    left, right = torch.randn(size, size), torch.randn(size, size)
    for _ in range(50):
        began = time.process_time()
        torch.mm(left, right)
        fastest = min(fastest, time.process_time() - began)
    return 2 * size**3 / fastest


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
    """MB at the peak of the epochs after the first, and at the peak of all."""
    contestant = Contestant(case, engine=engine)
    whole = contestant.peak()
    contestant.epoch()
    later = contestant.peak()
    contestant.end()
    return later, max(whole, later)


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
        pairs = [epochs(case, max(3, rounds // 5) if case.name == "[12x300]" else rounds) for case in cases]
        header = ["a step", "DataLoader, SGD", "fit, eager", "fit, compiled", "its products"]
        header += [
            "compiled / products",
            "SGD, compiled / products",
            "loop / compiled",
            "eager / compiled",
            "compiling",
        ]
        header += ["SGD, compiled", "jax.lax.scan", "JAX / SGD"] if HAS_JAX else []
        print(table(header, [steps for steps, _ in pairs]))
        print(f"products at {products_a_second() / 1e9:.0f} GFLOPS\n")
        header = ["an epoch, compiled", "batches", "SGD", "beside the native loop: SGD", "CMALight"]
        print(table([*header, "CMALight / SGD", "whole epochs"], [control for _, control in pairs]))
    if options.only in (None, "starts"):
        rows = [starts(case, rounds) for case in cases if case.name in ("[1x50]", "[3x20]")]
        print(table(["an epoch", "one run", f"a start of {STARTS} at once", "throughput"], rows))
    if options.only in (None, "memory"):
        rows = [memory(case) for case in cases if case.name in ("[1x50]", "[10x50]", "[12x300]")]
        print(table(["peak", "eager", "compiled", "in epochs", "with compiling"], rows))


if __name__ == "__main__":
    main()
