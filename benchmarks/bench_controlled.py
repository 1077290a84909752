"""An epoch of 100 batches of Adam under `Controlled`, with its samples, against the same epoch of Adam alone.

Processor time, in turns; the median of the ratios. `--compiled` compares compiled epochs of `fit`, a run of the one
after a run of the other.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from cmalight import Controlled, Objective, TensorBatches, fit

LOSS = nn.MSELoss()
SKIPPED = 8  # epochs, which have the short windows of the start
SIZES = ((1, 50), (5, 50), (10, 50))


def network(layers: int, width: int) -> nn.Sequential:
    torch.manual_seed(0)
    hidden = [(nn.Linear(width if number else 10, width), nn.Sigmoid()) for number in range(layers)]
    return nn.Sequential(*[module for pair in hidden for module in pair], nn.Linear(width, 1))


def adam(model: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), lr=7e-3, eps=1e-15)


def alone(model: nn.Module, batches: TensorBatches) -> Callable[[], None]:
    optimizer = adam(model)

    def epoch() -> None:
        for x, y in batches:
            optimizer.zero_grad()
            LOSS(model(x), y).backward()
            optimizer.step()

    return epoch


def controlled(model: nn.Module, batches: TensorBatches) -> Callable[[], None]:
    optimizer, objective = Controlled(adam(model), max_epochs=1000), Objective(model, LOSS, batches)

    def one() -> None:
        with optimizer.epoch(objective) as epoch:
            for x, y in epoch.batches(batches):
                optimizer.zero_grad()
                loss = LOSS(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()

    return one


def eager(x: torch.Tensor, y: torch.Tensor, size: tuple[int, int]) -> float:
    plain, watched = (make(network(*size), TensorBatches(x, y)) for make in (alone, controlled))
    ratios = []
    for number in range(33):
        seconds = []
        for epoch in (plain, watched):
            began = time.process_time()
            epoch()
            seconds.append(time.process_time() - began)
        if number >= SKIPPED:
            ratios.append(seconds[1] / seconds[0])
    return statistics.median(ratios)


class Clock:
    """A callback: when each epoch ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_epoch_end(self, _record: object) -> None:
        self.times.append(time.process_time())


def compiled(x: torch.Tensor, y: torch.Tensor, size: tuple[int, int]) -> float:
    def epoch_of(optimizer: str) -> float:
        clock = Clock()
        fit(
            network(*size),
            LOSS,
            (x, y),
            optimizer=optimizer,
            engine="compiled",
            max_epochs=60,
            progress=False,
            callbacks=[clock],
        )
        return statistics.median([after - before for before, after in itertools.pairwise(clock.times)][SKIPPED:])

    return statistics.median(epoch_of("auto") / epoch_of("adam") for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiled", action="store_true", help="compiled epochs of fit in place of an eager loop")
    measure = compiled if parser.parse_args().compiled else eager
    torch.set_num_threads(1)
    x = torch.randn(12_800, 10, generator=torch.Generator().manual_seed(0))
    y = torch.sin(x.sum(1, keepdim=True))
    for size in SIZES:
        print(f"[{size[0]}x{size[1]}] Controlled / Adam alone: {measure(x, y, size):.3f}")


if __name__ == "__main__":
    main()
