"""What the benchmarks share: models, data, a free objective, interleaved timing, Markdown tables."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[1] / "docs" / "studies"))
import workloads  # noqa: F401 - for the benchmarks that train them

BATCH = 128
Batches = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Case:
    """A network, the table it reads, and roughly how many of [1x50]'s batches one of its batches costs."""

    name: str
    inputs: int
    widths: tuple[int, ...]
    outputs: int = 1
    weight: int = 1

    def model(self) -> nn.Sequential:
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        before = self.inputs
        for width in self.widths:
            layers += [nn.Linear(before, width), nn.Sigmoid()]
            before = width
        return nn.Sequential(*layers, nn.Linear(before, self.outputs))

    def table(self, samples: int) -> tuple[Tensor, Tensor]:
        """Inputs and the answers of a teacher, so that there is something to learn."""
        torch.manual_seed(1)
        inputs = torch.randn(samples, self.inputs)
        direction = torch.randn(self.inputs, self.outputs) / self.inputs**0.5
        return inputs, torch.tanh(inputs @ direction)

    def batches(self, count: int) -> Batches:
        inputs, target = self.table(count * BATCH)
        return list(zip(inputs.split(BATCH), target.split(BATCH), strict=True))


SMALL = Case("[1x50]", 9, (50,))
DEEP = Case("[10x50]", 55, (50,) * 10, weight=4)
LARGE = Case("10 million", 512, (2048, 2048, 2048), 256, weight=500)
CASES = (SMALL, DEEP, LARGE)


class EasyObjective:
    """Costs nothing, and every epoch that is finite beats it: what is left is the cost of the optimizer."""

    def __init__(self, model: nn.Module, samples: int) -> None:
        self.model = model
        self.samples = samples

    def __call__(self) -> float:
        return 1e6


def interleaved(functions: dict[str, Callable[[], Any]], rounds: int, *, warmup: int = 1) -> dict[str, list[Any]]:
    """What each function returns, round by round; the order alternates, and `warmup` rounds are thrown away."""
    results: dict[str, list[Any]] = {name: [] for name in functions}
    for index in range(warmup + rounds):
        names = list(functions) if index % 2 else list(reversed(functions))
        for name in names:
            value = functions[name]()
            if index >= warmup:
                results[name].append(value)
    return results


def seconds(function: Callable[[], Any]) -> Callable[[], float]:
    """`function` as one that returns how long it took."""

    def timed() -> float:
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    return timed


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios of the rounds."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    lines.insert(1, "|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|")
    return "\n".join(lines)


def quick_option(description: str | None) -> bool:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a smoke test, not a measurement")
    return bool(parser.parse_args().quick)


def jax_epoch(case: Case, pair: tuple[Tensor, Tensor]) -> Callable[[], Any]:
    """An epoch of SGD by JAX, an optional library: one compiled loop over the batches of a permutation."""
    import jax
    import jax.numpy as jnp

    inputs, targets = (jnp.asarray(t.numpy()) for t in pair)
    weights = [(jnp.asarray(m.weight.detach().numpy()), jnp.asarray(m.bias.detach().numpy()))
               for m in case.model() if isinstance(m, nn.Linear)]  # fmt: skip
    order = jnp.asarray(torch.randperm(len(inputs))[: len(inputs) // BATCH * BATCH].view(-1, BATCH).numpy())

    def loss(weights: Any, x: Any, y: Any) -> Any:
        for matrix, bias in weights[:-1]:
            x = jax.nn.sigmoid(x @ matrix.T + bias)
        matrix, bias = weights[-1]
        return jnp.mean((x @ matrix.T + bias - y) ** 2)

    def step(weights: Any, rows: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(weights, inputs[rows], targets[rows])
        return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradient), value

    scan = jax.jit(lambda weights: jax.lax.scan(step, weights, order))
    return lambda: jax.block_until_ready(scan(weights))
