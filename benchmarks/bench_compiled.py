"""Processor time of one training step: compiled, eager and, where it is installed, `jax.lax.scan`.

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
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from common import BATCH, Case, interleaved, table
from torch import nn
from torch.optim import Optimizer

from cmalight.compiled import compile_training
from cmalight.evaluation.batches import TensorBatches
from cmalight.optim.soap import SOAP

CASES = (
    Case("[1x50]", 9, (50,)),
    Case("[3x20]", 55, (20,) * 3),
    Case("[5x50]", 55, (50,) * 5),
    Case("[10x50]", 55, (50,) * 10),
)
STEPS, EAGER_STEPS = 100, 10
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


def compiled(case: Case, make: Callable[[Any], Optimizer]) -> Callable[[], float]:
    """Seconds per step."""
    model = case.model()
    batches = TensorBatches(*case.table(STEPS * BATCH))
    program = compile_training(model, nn.MSELoss(), make(model.parameters()), batches)

    def epoch() -> float:
        begin = time.process_time()
        program.begin_epoch(batches.permutation(0))
        program.run([1.0] * STEPS)
        return (time.process_time() - begin) / STEPS

    return epoch


def eager(case: Case, make: Callable[[Any], Optimizer]) -> Callable[[], float]:
    """Seconds per step."""
    model, loss_fn = case.model(), nn.MSELoss()
    optimizer = make(model.parameters())
    batches = TensorBatches(*case.table(EAGER_STEPS * BATCH))

    def epoch() -> float:
        begin = time.process_time()
        for x, y in batches:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
        return (time.process_time() - begin) / EAGER_STEPS

    return epoch


def scanned(case: Case, name: str) -> Callable[[], float]:
    """Seconds per step of `jax.lax.scan` with SGD or Adam."""
    import jax
    import jax.numpy as jnp

    x, y = (jnp.asarray(t.numpy()) for t in case.table(STEPS * BATCH))
    linears = [m for m in case.model() if isinstance(m, nn.Linear)]
    weights = [tuple(jnp.asarray(p.detach().numpy()) for p in (m.weight, m.bias)) for m in linears]
    rows = jnp.asarray(torch.randperm(len(x)).view(STEPS, BATCH).numpy())

    def loss(weights: Any, x: Any, y: Any) -> Any:
        for matrix, bias in weights[:-1]:
            x = jax.nn.sigmoid(x @ matrix.T + bias)
        matrix, bias = weights[-1]
        return jnp.mean((x @ matrix.T + bias - y) ** 2)

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
        return (time.process_time() - begin) / STEPS

    return epoch


def steps(case: Case, rounds: int) -> list[list[str]]:
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
    rows = [row for case in CASES for row in steps(case, options.rounds)]
    header = ["network", "optimizer", "compiled", "eager", "eager / compiled", "jax.lax.scan", "JAX / compiled"]
    print(table([*header, "of Adam's compiled step"], rows))
    print(f"\nFirst epoch in a fresh process, after the import: {first_epoch():.2f} s")


if __name__ == "__main__":
    main()
