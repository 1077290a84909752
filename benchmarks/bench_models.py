"""Eager against compiled epochs of models with dropout and BatchNorm.

For each model, in one process on one thread: seconds of the processor for a step, the median of the epochs after the
first, in turns; what the first epoch took beyond that, with an empty cache and the compiler included; and after how
many steps the compiled run is ahead.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from common import BATCH, table
from torch import Tensor, nn

from cmalight import fit

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Model:
    """What is trained, on what, and how many batches an epoch has."""

    name: str
    make: Callable[[], nn.Module]
    data: Callable[[int], Pair]
    batches: int
    loss: nn.Module


def used() -> float:
    """Seconds of the processor, with those of the compiler."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Times:
    """A callback: the processor's clock after every epoch."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_epoch_end(self, record: object) -> None:  # noqa: ARG002
        self.seen.append(used())


def layers(depth: int, width: int, *between: Callable[[int], nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        made: list[nn.Module] = []
        for number in range(depth):
            made += [nn.Linear(55 if not number else width, width), *(one(width) for one in between)]
        return nn.Sequential(*made, nn.Linear(width, 1))

    return make


def rows(samples: int) -> Pair:
    inputs = torch.randn(samples, 55)
    return inputs, torch.tanh(inputs[:, :1])


MODELS = (
    *(
        Model(f"[{depth}x{width}], {name}", layers(depth, width, *kinds), rows, 100, nn.MSELoss())
        for depth, width in ((1, 50), (3, 50), (5, 50))
        for name, kinds in {
            "sigmoid": (lambda _: nn.Sigmoid(),),
            "sigmoid, dropout": (lambda _: nn.Sigmoid(), lambda _: nn.Dropout(0.2)),
            "BatchNorm, ReLU": (nn.BatchNorm1d, lambda _: nn.ReLU()),
            "BatchNorm, ReLU, dropout": (nn.BatchNorm1d, lambda _: nn.ReLU(), lambda _: nn.Dropout(0.2)),
        }.items()
    ),
)


def epochs_of(model: Model, engine: str, epochs: int) -> tuple[float, float]:
    """Seconds for a step, and those before the first."""
    torch.manual_seed(0)
    network, pair, times = model.make(), model.data(model.batches * BATCH), Times()
    began = used()
    fit(
        network,
        model.loss,
        pair,
        optimizer="adam",
        batch_size=BATCH,
        max_epochs=epochs,
        progress=False,
        engine=engine,
        callbacks=[times],
    )
    steps = [(after - before) / model.batches for before, after in zip(times.seen, times.seen[1:], strict=False)]
    step = statistics.median(steps)
    return step, times.seen[0] - began - step * model.batches


def compared(model: Model, rounds: int) -> list[str]:
    eager, compiled, building = [], [], 0.0
    for number in range(rounds):
        eager.append(epochs_of(model, "eager", 4)[0])
        seconds, compiling = epochs_of(model, "compiled", 6)
        building = building if number else compiling
        compiled.append(seconds)
    slow, fast = min(eager), min(compiled)
    even = f"{building / (slow - fast):,.0f}" if fast < slow else "never"
    return [model.name, f"{1e6 * slow:.0f}", f"{1e6 * fast:.0f}", f"**{slow / fast:.1f}**", f"{building:.1f}", even]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of the first models: a smoke test")
    parser.add_argument("--models", nargs="*", help="those whose names contain one of these")
    parser.add_argument("--rounds", type=int, default=3, help="of which the fastest counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [one for one in MODELS if not options.models or any(part in one.name for part in options.models)]
    header = ["microseconds for a step", "eager", "compiled", "faster", "seconds to compile", "steps to pay"]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CMALIGHT_CACHE"] = cache
        for number, model in enumerate(chosen[:4] if options.quick else chosen):
            lines = table(header, [compared(model, 1 if options.quick else options.rounds)]).splitlines()
            print("\n".join(lines if not number else lines[2:]), flush=True)


if __name__ == "__main__":
    main()
