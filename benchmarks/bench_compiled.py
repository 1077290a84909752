"""Processor time of one training step on the paper's networks: compiled, eager and, if installed, `jax.lax.scan`.

And of whole compiled epochs: IG's, with the model measured after each, and CMA's, which evaluates f after each.
Batches of 128, float32, one thread. The contestants take turns, an epoch each, and the fastest epoch counts, so that
other work on the machine disturbs as little as possible. Run with:

    python benchmarks/bench_compiled.py
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import argparse
import importlib.util
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from common import BATCH, Case, interleaved, table
from torch import nn
from torch.optim import Optimizer

from cmalight.compiled import Evaluator, compile_training
from cmalight.evaluation.batches import TensorBatches
from cmalight.models import paper_network
from cmalight.optim import CMA, IG
from cmalight.optim.soap import SOAP

LR = 0.05  # with which CMA accepts most epochs after one evaluation
EPOCH_STEPS = 100  # of the smallest network; fewer of larger ones


@dataclass(frozen=True)
class PaperCase(Case):
    """A network of the paper's Table 2; `weight` is by what its epochs are shorter than those of the smallest."""

    def model(self) -> nn.Sequential:
        torch.manual_seed(0)
        return paper_network(self.name.strip("[]"), self.inputs, bias=True)

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return EPOCH_STEPS // self.weight


CASES = (
    PaperCase("[1x50]", 9, ()),
    PaperCase("[3x20]", 55, ()),
    PaperCase("[5x50]", 55, ()),
    PaperCase("[10x50]", 55, ()),
    PaperCase("[12x300]", 55, (), weight=10),
    PaperCase("[12x500]", 55, (), weight=20),
    PaperCase("[30x500]", 55, (), weight=25),
)
OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "SOAP": lambda parameters: SOAP(parameters, lr=1e-3),
}
HAS_JAX = importlib.util.find_spec("jax") is not None
FIRST_EPOCH = """
import time, torch
from torch import nn
from cmalight.compiled import compile_training
from cmalight.evaluation.batches import TensorBatches
model = nn.Sequential(nn.Linear(9, 50), nn.Sigmoid(), nn.Linear(50, 1))
optimizer = torch.optim.Adam(model.parameters())
batches = TensorBatches(torch.randn(12800, 9), torch.randn(12800, 1))
begin = time.perf_counter()
program = compile_training(model, nn.MSELoss(), optimizer, batches)
program.begin_epoch(batches.permutation(0))
program.run([1.0] * len(batches))
print(time.perf_counter() - begin)
"""


def compiled(case: PaperCase, make: Callable[[Any], Optimizer]) -> Callable[[], float]:
    """Seconds per step."""
    model = case.model()
    batches = TensorBatches(*case.table(case.steps * BATCH))
    program = compile_training(model, nn.MSELoss(), make(model.parameters()), batches)

    def epoch() -> float:
        begin = time.process_time()
        program.begin_epoch(batches.permutation(0))
        program.run([1.0] * case.steps)
        return (time.process_time() - begin) / case.steps

    return epoch


def eager(case: PaperCase, make: Callable[[Any], Optimizer]) -> Callable[[], float]:
    """Seconds per step."""
    model, loss_fn = case.model(), nn.MSELoss()
    optimizer = make(model.parameters())
    count = min(10, case.steps)
    batches = TensorBatches(*case.table(count * BATCH))

    def epoch() -> float:
        begin = time.process_time()
        for x, y in batches:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
        return (time.process_time() - begin) / count

    return epoch


def scanned(case: PaperCase, name: str) -> Callable[[], float]:
    """Seconds per step of `jax.lax.scan` with SGD or Adam."""
    import jax
    import jax.numpy as jnp

    x, y = (jnp.asarray(t.numpy()) for t in case.table(case.steps * BATCH))
    layers = list(case.model())
    weights = [tuple(jnp.asarray(p.detach().numpy()) for p in layer.parameters()) for layer in layers]
    rows = jnp.asarray(torch.randperm(len(x)).view(case.steps, BATCH).numpy())

    def loss(weights: Any, x: Any, y: Any) -> Any:
        for layer, own in zip(layers, weights, strict=True):
            x = x @ own[0].T + own[1] if isinstance(layer, nn.Linear) else jax.nn.sigmoid(x)
        return jnp.mean((x - y) ** 2)

    def step(state: Any, chosen: Any) -> Any:
        weights, first, second, count = state
        value, gradient = jax.value_and_grad(loss)(weights, x[chosen], y[chosen])
        if name == "SGD":
            return (jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradient), first, second, count), value
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
        rate, root = 1e-3 / (1 - 0.9**count), 1 / jnp.sqrt(1 - 0.999**count)
        update = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) * root + 1e-8), weights, first, second)
        return (update, first, second, count), value

    zeros = jax.tree.map(jnp.zeros_like, weights)
    scan = jax.jit(lambda state: jax.lax.scan(step, state, rows))
    state = (weights, zeros, zeros, jnp.float32(0))
    jax.block_until_ready(scan(state))

    def epoch() -> float:
        begin = time.process_time()
        jax.block_until_ready(scan(state))
        return (time.process_time() - begin) / case.steps

    return epoch


class CompiledObjective:
    """f by the kernel, as `fit` gives it to CMA."""

    def __init__(self, evaluator: Evaluator, model: nn.Module, samples: int) -> None:
        self._evaluator, self.model, self.samples = evaluator, model, samples
        self.evaluations = 0

    def __call__(self) -> float:
        self.evaluations += 1
        return self._evaluator.loss()


def whole_epoch(case: PaperCase, make: Callable[..., Any], *, measured: bool = False) -> Callable[[], float]:
    """Gives seconds of an epoch of IG or CMA, with loss and outputs in eval mode measured after it if asked for.

    NaN for an epoch of CMA that needs a line search: it evaluates f more than once.
    """
    model, loss_fn = case.model(), nn.MSELoss()
    optimizer = make(model.parameters(), lr=LR)
    batches = TensorBatches(*case.table(case.steps * BATCH))
    program = compile_training(model, loss_fn, optimizer, batches)
    objective = CompiledObjective(Evaluator(model, loss_fn, batches, mode="train"), model, batches.samples)
    measurement = Evaluator(model, loss_fn, batches, mode="eval")

    def epoch() -> float:
        objective.evaluations = 0
        begin = time.process_time()
        program.begin_epoch(batches.permutation(0))
        with optimizer.epoch(objective if optimizer.needs_objective else None) as running:
            running.advance([BATCH] * case.steps, program.run)
        if measured:
            measurement.refresh()
            measurement.measure()
        return time.process_time() - begin if objective.evaluations <= 1 else math.nan

    return epoch


def epochs(case: PaperCase, rounds: int) -> list[str]:
    """IG's epoch, and by what factor the others are longer; medians of the rounds."""
    contestants = {
        "IG": whole_epoch(case, IG),
        "measured": whole_epoch(case, IG, measured=True),
        "CMA": whole_epoch(case, CMA),
    }
    times = interleaved(contestants, rounds)
    medians = {
        name: statistics.median([value for value in values if value == value] or [math.nan])
        for name, values in times.items()
    }
    ratios = [f"**{medians[name] / medians['IG']:.2f}**" for name in ("measured", "CMA")]
    return [case.name, f"{1e3 * medians['IG']:.2f} ms", *ratios]


def steps(case: PaperCase, rounds: int) -> list[list[str]]:
    contestants: dict[str, Callable[[], float]] = {}
    for name, make in OPTIMIZERS.items():
        contestants[f"{name} compiled"] = compiled(case, make)
        contestants[f"{name} eager"] = eager(case, make)
        if HAS_JAX and name != "SOAP":
            contestants[f"{name} JAX"] = scanned(case, name)
    times = {name: min(values) for name, values in interleaved(contestants, rounds).items()}
    rows = []
    for name in OPTIMIZERS:
        ours, theirs, jax = times[f"{name} compiled"], times[f"{name} eager"], times.get(f"{name} JAX")
        row = [case.name, name, f"{1e6 * ours:.1f} µs", f"{1e6 * theirs:.0f} µs", f"**{theirs / ours:.1f}**"]
        if HAS_JAX:
            row += ["", ""] if jax is None else [f"{1e6 * jax:.1f} µs", f"**{jax / ours:.2f}**"]
        rows.append([*row, f"{ours / times['Adam compiled']:.2f}"])
    return rows


def first_epoch() -> float:
    """Wall seconds of the first epoch in a fresh process, after the import, with the kernel built; the best of 3."""
    runs: Sequence[str] = [
        subprocess.run([sys.executable, "-c", FIRST_EPOCH], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    ]
    return min(map(float, runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="epochs of every contestant")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"Load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    rows = [row for case in CASES for row in steps(case, options.rounds)]
    header = ["network", "optimizer", "compiled", "eager", "eager / compiled"]
    header += ["jax.lax.scan", "JAX / compiled"] if HAS_JAX else []
    print(table([*header, "of Adam's compiled step"], rows))
    header = ["network", "epoch of IG", "measured / IG", "CMA, one evaluation / IG"]
    print()
    print(table(header, [epochs(case, options.rounds) for case in CASES]))
    print(f"\nLoad of the machine: {os.getloadavg()[0]:.1f}")
    print(f"First epoch in a fresh process, after the import: {first_epoch():.2f} s")


if __name__ == "__main__":
    main()
