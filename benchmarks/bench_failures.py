"""What saves a run in which something goes wrong: SOAP alone, SOAP with today's remedies, or `Auto`.

    python benchmarks/bench_failures.py --seeds 3 [--out failures.csv]

All have the same start and schedule.
Final training loss over that of SOAP alone where nothing goes wrong. "dead" is a loss that is not finite. The file has
one row per run.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cmalight import SOAP, Auto, Objective, Outcome, TensorBatches, WindowReport

EPOCHS, BATCH, BAD_STEP = 40, 128, 500
Batch = tuple[Tensor, Tensor]
Parameters = Sequence[nn.Parameter]
Guard = Callable[[Parameters, float], bool]


def scheduled(t: float) -> float:
    return max(1e-3, min(1.0, t / 0.05, (1 - t) / 0.4))


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
    "learning rate x 3": Failure(lr=3e-2),
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


class Guarded:
    """SOAP under the same schedule, with one of the remedies that people use today.

    Args:
        model: What is trained.
        lr: The peak learning rate.
        total: The number of steps.
        guard: Called with the parameters and the loss before each step; may change gradients. False skips the step.
    """

    def __init__(self, model: nn.Module, lr: float, total: int, guard: Guard) -> None:
        self.base = SOAP(model.parameters(), lr=lr)
        self.param_groups = self.base.param_groups
        self._total, self._steps, self._guard = total, 0, guard

    def zero_grad(self) -> None:
        self.base.zero_grad()

    def step(self, loss: Tensor) -> None:
        lr = self.param_groups[0]["lr"]
        self.param_groups[0]["lr"] = lr * scheduled((self._steps + 0.5) / self._total)
        if self._guard([p for p in self.param_groups[0]["params"] if p.grad is not None], loss.item()):
            self.base.step()
        self.param_groups[0]["lr"] = lr
        self._steps += 1


def unguarded(parameters: Parameters, loss: float) -> bool:  # noqa: ARG001 (a guard is told both)
    return True


def clip(parameters: Parameters, loss: float) -> bool:  # noqa: ARG001
    """Clip the gradient by norm 1."""
    nn.utils.clip_grad_norm_(parameters, 1.0)
    return True


class ZClip:
    """Clip norms more than 2.5 deviations above their running mean (arXiv 2504.02507): the further, the harder."""

    def __init__(self) -> None:
        self._norms: list[float] = []
        self._mean = self._variance = 0.0

    def __call__(self, parameters: Parameters, loss: float) -> bool:  # noqa: ARG002
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]).item()
        if not math.isfinite(norm):
            return False
        if len(self._norms) < 25:
            self._norms.append(norm)
            self._mean, self._variance = statistics.mean(self._norms), statistics.pvariance(self._norms)
            return True
        deviation = math.sqrt(self._variance)
        z = (norm - self._mean) / deviation
        if z > 2.5:
            clipped = self._mean + deviation * 2.5**2 / z
            for p in parameters:
                p.grad.mul_(clipped / norm)  # type: ignore[union-attr]
            norm = clipped
        self._variance = 0.97 * self._variance + 0.03 * (norm - self._mean) ** 2
        self._mean = 0.97 * self._mean + 0.03 * norm
        return True


class SkipOutliers:
    """Skip steps whose loss is not finite, or six deviations above the mean of the last hundred."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=100)

    def __call__(self, parameters: Parameters, loss: float) -> bool:  # noqa: ARG002
        if not math.isfinite(loss):
            return False
        known = len(self._losses) >= 25
        if known and loss > statistics.mean(self._losses) + 6 * statistics.pstdev(self._losses):
            return False
        self._losses.append(loss)
        return True


GUARDS: dict[str, Callable[[], Guard]] = {
    "SOAP alone": lambda: unguarded,
    "clipped by norm 1": lambda: clip,
    "ZClip": ZClip,
    "outliers skipped": SkipOutliers,
}
METHODS = (*GUARDS, "Auto", "Auto with an objective")


def train(failure: Failure, seed: int, method: str) -> tuple[float, int, int]:
    """The final loss over all data, in float32; windows undone; evaluations of f."""
    x, y, model = problem(seed)
    model.to(failure.dtype)
    loader = TensorBatches(x.to(failure.dtype), y.to(failure.dtype), batch_size=BATCH, seed=seed)
    loss_fn, total = nn.MSELoss(), EPOCHS * len(loader)
    objective, undone = Objective(model, loss_fn, loader), 0
    if method in GUARDS:
        optimizer: Any = Guarded(model, failure.lr, total, GUARDS[method]())
    else:
        f = objective if method == "Auto with an objective" else None
        optimizer = Auto(model, objective=f, total_steps=total, lr=failure.lr)

        def count(report: WindowReport) -> None:
            nonlocal undone
            undone += report.outcome in (Outcome.UNDONE, Outcome.DIVERGED)

        optimizer.on_report(count)
    for step, (inputs, target) in enumerate(batch for _ in range(EPOCHS) for batch in loader):
        if step == BAD_STEP:
            inputs, target = failure.spoil(inputs, target)
            if failure.restarts:
                optimizer.base.state.clear()
                optimizer.param_groups[0]["lr"] *= 10
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), target)
        loss.backward()
        optimizer.step(loss)
    with torch.no_grad():
        return loss_fn(model.float()(x), y).item(), undone, objective.evaluations


def shown(losses: list[float], reference: list[float]) -> str:
    ratios = [loss / first for loss, first in zip(losses, reference, strict=True)]
    return ", ".join(f"{ratio:.3g}" if math.isfinite(ratio) else "dead" for ratio in ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a CSV file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    reference = [train(FAILURES["nothing"], seed, "SOAP alone")[0] for seed in range(args.seeds)]
    rows: list[tuple[object, ...]] = [("failure", "method", "seed", "loss", "undone", "evaluations")]
    print("| what goes wrong | " + " | ".join(METHODS) + " |\n|---" + "|---" * len(METHODS) + "|")
    for name, failure in FAILURES.items():
        cells = []
        for method in METHODS:
            found = [train(failure, seed, method) for seed in range(args.seeds)]
            cells.append(shown([loss for loss, _, _ in found], reference))
            rows += [(name, method, seed, f"{loss:.6g}", *counts) for seed, (loss, *counts) in enumerate(found)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    if args.out:
        with args.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
