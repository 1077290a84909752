"""A training iteration under CMALight against the same iteration under torch.optim.SGD."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from common import CASES, SMALL, Batches, Case, EasyObjective, interleaved, quick_option, ratio, seconds, table
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from cmalight import CMALight

LR = 1e-3
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "weight decay": {"weight_decay": 1e-4},
}
loss_fn = nn.MSELoss()


def sgd_loop(case: Case, batches: Batches, options: dict[str, Any]) -> Callable[[], float]:
    model = case.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, **options)

    def loop() -> None:
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()

    return seconds(loop)


def cmalight_loop(case: Case, batches: Batches, options: dict[str, Any]) -> Callable[[], float]:
    model = case.model()
    optimizer = CMALight(model.parameters(), lr=LR, **options)
    objective = EasyObjective(model, sum(len(y) for _, y in batches))

    def loop() -> float:
        optimizer.restart(objective)
        with optimizer.epoch(objective) as epoch:
            start = time.perf_counter()
            for x, y in epoch.batches(batches):
                optimizer.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
            return time.perf_counter() - start

    return loop


def calls(case: Case, batches: Batches, options: dict[str, Any]) -> dict[str, float]:
    """Median microseconds of SGD.step, CMALight.step and observe, on gradients that stay as they are."""
    model, twin = case.model(), case.model()
    sgd = torch.optim.SGD(twin.parameters(), lr=LR, **options)
    optimizer = CMALight(model.parameters(), lr=LR, **options)
    x, y = batches[0]
    loss = loss_fn(model(x), y)
    loss.backward()
    loss_fn(twin(x), y).backward()
    with optimizer.epoch(EasyObjective(model, 10**9)) as epoch:
        functions = {
            "observe": seconds(lambda: epoch.observe(loss, len(y))),
            "CMALight.step": seconds(optimizer.step),
            "SGD.step": seconds(sgd.step),
        }
        times = {name: [] for name in functions}
        for _ in range(max(10, 2000 // case.weight)):
            for name, function in functions.items():
                times[name].append(function())
    return {name: 1e6 * statistics.median(values) for name, values in times.items()}


class CountSynchronisations(TorchDispatchMode):
    """Counts the operators that make the host wait for a value, and answers them."""

    waits = (torch.ops.aten._local_scalar_dense, torch.ops.aten.is_nonzero, torch.ops.aten.equal)

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in self.waits:
            self.count += 1
            return 1.0
        return func(*args, **(kwargs or {}))


class CountLists(TorchFunctionMode):
    """Counts `tolist`, which waits too, but is no operator, and answers it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.tolist:
            self.count += 1
            return [1.0] * args[0].numel()
        return func(*args, **(kwargs or {}))


def synchronisations(options: dict[str, Any], *, with_batches: bool) -> int:
    """On a device that has no values: whoever wants one has to wait, and gets a 1."""
    model, batches = SMALL.model().to("meta"), [(x.to("meta"), y.to("meta")) for x, y in SMALL.batches(100)]
    optimizer = CMALight(model.parameters(), lr=LR, **options)
    objective = EasyObjective(model, sum(len(y) for _, y in batches))
    with CountSynchronisations() as operators, CountLists() as lists, optimizer.epoch(objective) as epoch:
        operators.count = lists.count = 0  # the beginning and the end of an epoch may wait
        for x, y in epoch.batches(batches) if with_batches else batches:
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
        counted = operators.count + lists.count
        epoch.abandon()
    return counted


def main() -> None:
    quick = quick_option(__doc__)
    torch.set_num_threads(1)
    rows = []
    for case in CASES:
        batches = case.batches(max(2, 100 // case.weight))
        rounds = 3 if quick else (20 if case.weight > 100 else 60)
        for name, options in VARIANTS.items():
            loops = {"SGD": sgd_loop(case, batches, options), "CMALight": cmalight_loop(case, batches, options)}
            times = interleaved(loops, rounds)
            alone = calls(case, batches, options)
            per_batch = 1e6 * statistics.median(times["SGD"]) / len(batches)
            steps = (f"{alone[call]:.1f} µs" for call in ("SGD.step", "CMALight.step", "observe"))
            slower = ratio(times["CMALight"], times["SGD"])
            rows.append([case.name, name, f"{per_batch:.0f} µs", f"**{slower:.3f}**", *steps])
    print(table(["model", "path", "SGD iteration", "CMALight / SGD", "SGD.step", "CMALight.step", "observe"], rows))
    print()
    paths = {name: options for name, options in VARIANTS.items() if name != "fused"}  # no such step on that device
    rows = [
        [loop, *(str(synchronisations(o, with_batches=loop != "`for x, y in loader`")) for o in paths.values())]
        for loop in ("`for x, y in loader`", "`for x, y in epoch.batches(loader)`")
    ]
    print(table(["host synchronisations in 100 batches", *paths], rows))


if __name__ == "__main__":
    main()
