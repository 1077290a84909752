"""An epoch of 100 batches of Adam under `Controlled`, with its samples, against the same epoch of Adam alone."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from cmalight import Controlled, Objective, TensorBatches

LOSS = nn.MSELoss()


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


def main() -> None:
    torch.set_num_threads(1)
    x = torch.randn(12_800, 10, generator=torch.Generator().manual_seed(0))
    y = torch.sin(x.sum(1, keepdim=True))
    for layers, width in ((1, 50), (5, 50), (10, 50)):
        plain, watched = (make(network(layers, width), TensorBatches(x, y)) for make in (alone, controlled))
        ratios = []
        for number in range(33):
            seconds = []
            for epoch in (plain, watched):
                began = time.process_time()
                epoch()
                seconds.append(time.process_time() - began)
            if number >= 8:  # after the short windows of the start
                ratios.append(seconds[1] / seconds[0])
        print(f"[{layers}x{width}] Controlled / Adam alone: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
