"""What the watchdog saves where something goes wrong: SOAP alone and `Auto`, with the same start and schedule.

    python benchmarks/bench_failures.py --seeds 3

Final training loss over that of SOAP alone where nothing goes wrong. "dead" is a loss that is not finite.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cmalight import SOAP, Auto, Objective, TensorBatches
from cmalight.rules.watchdog import Watchdog

EPOCHS, BATCH, BAD_STEP = 40, 128, 500
Batch = tuple[Tensor, Tensor]


def same(x: Tensor, y: Tensor) -> Batch:
    return x, y


@dataclass(frozen=True)
class Failure:
    """What goes wrong: a learning rate, a batch, the numbers' format, or a restart without the optimizer's state."""

    lr: float = 1e-2
    spoil: Callable[[Tensor, Tensor], Batch] = same
    dtype: torch.dtype = torch.float32
    restarts: bool = False


FAILURES = {
    "nothing": Failure(),
    "learning rate x 10": Failure(lr=1e-1),
    "learning rate x 100": Failure(lr=1.0),
    "one batch with targets x 10,000": Failure(spoil=lambda x, y: (x, 1e4 * y)),
    "one batch with inputs x 1,000 (activations explode)": Failure(spoil=lambda x, y: (1e3 * x, y)),
    "float16, one batch that overflows": Failure(spoil=lambda x, y: (1e5 * x, y), dtype=torch.float16),
    "restart without the optimizer's state, at ten times the learning rate": Failure(restarts=True),
}


def problem(seed: int) -> tuple[Tensor, Tensor, nn.Module]:
    x = 2 * torch.rand(4000, 8, generator=torch.Generator().manual_seed(0)) - 1
    y = torch.sin(3 * x[:, :4].sum(1, keepdim=True)) * x[:, 4:5] + x[:, 5:6] ** 2
    torch.manual_seed(seed)
    return x, y, nn.Sequential(nn.Linear(8, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 1))


def train(failure: Failure, seed: int, *, watched: bool) -> float:
    """The final loss over all data, in float32."""
    x, y, model = problem(seed)
    model.to(failure.dtype)
    loader = TensorBatches(x.to(failure.dtype), y.to(failure.dtype), batch_size=BATCH, seed=seed)
    loss_fn, total = nn.MSELoss(), EPOCHS * len(loader)
    factor = 1.0
    if watched:
        optimizer = Auto(model.parameters(), Objective(model, loss_fn, loader), total_steps=total, lr=failure.lr)
    else:
        optimizer = SOAP(model.parameters(), lr=failure.lr)
    for step, (inputs, target) in enumerate(batch for _ in range(EPOCHS) for batch in loader):
        if failure.restarts and step == BAD_STEP:
            factor = 10.0
            (optimizer.base if watched else optimizer).state.clear()
        schedule = 1.0 if watched else Watchdog().factor((step + 0.5) / total, step)
        for group in optimizer.param_groups:
            group["lr"] = failure.lr * factor * schedule
        inputs, target = failure.spoil(inputs, target) if step == BAD_STEP else (inputs, target)
        optimizer.zero_grad()
        loss_fn(model(inputs), target).backward()
        optimizer.step()
    if watched:
        optimizer.judge()
    with torch.no_grad():
        return loss_fn(model.float()(x), y).item()


def shown(losses: list[float], reference: list[float]) -> str:
    ratios = [loss / first for loss, first in zip(losses, reference, strict=True)]
    return ", ".join(f"{ratio:.3g}" if math.isfinite(ratio) else "dead" for ratio in ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    reference = [train(FAILURES["nothing"], seed, watched=False) for seed in range(args.seeds)]
    print("| what goes wrong | SOAP alone | Auto |\n|---|---|---|")
    for name, failure in FAILURES.items():
        both = [[train(failure, seed, watched=watched) for seed in range(args.seeds)] for watched in (False, True)]
        print(f"| {name} | {shown(both[0], reference)} | {shown(both[1], reference)} |", flush=True)


if __name__ == "__main__":
    main()
