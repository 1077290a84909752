"""What the beginning and the end of an epoch cost that line 7 accepts, as a share of an epoch of 100 batches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from common import CASES, Case, EasyObjective, interleaved, quick_option, table
from torch import nn

from cmalight import CMALight, Outcome

BATCHES = 100


def epoch_times(case: Case, batches_per_epoch: int) -> Callable[[], tuple[float, float, float]]:
    """Seconds of `__enter__`, of one batch, and of `__exit__`; f(w⁰) is free here, so it is not in them."""
    model, batches, loss_fn = case.model(), case.batches(batches_per_epoch), nn.MSELoss()
    optimizer = CMALight(model.parameters(), lr=1e-3)
    objective = EasyObjective(model, sum(len(y) for _, y in batches))

    def run() -> tuple[float, float, float]:
        optimizer.restart(objective)
        start = time.perf_counter()
        with optimizer.epoch(objective) as epoch:
            entered = time.perf_counter()
            for x, y in epoch.batches(batches):
                optimizer.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
            looped = time.perf_counter()
        left = time.perf_counter()
        if epoch.report is None or epoch.report.outcome is not Outcome.ACCEPTED:
            raise RuntimeError(f"this benchmark is about accepted epochs, but got {epoch.report}")
        return entered - start, (looped - entered) / len(batches), left - looped

    return run


def main() -> None:
    quick = quick_option(__doc__)
    torch.set_num_threads(1)
    # The boundary costs the same after 5 batches as after 100, so the large model runs 5 of them an epoch.
    sizes = {case.name: 5 if case.weight > 100 else BATCHES for case in CASES}
    rows = []
    for case in CASES:
        rounds = 3 if quick else (20 if case.weight > 100 else 60)
        times = interleaved({"epoch": epoch_times(case, sizes[case.name])}, rounds)["epoch"]
        enter, batch, leave = (statistics.median(column) for column in zip(*times, strict=True))
        share = statistics.median((e + x) / (BATCHES * b) for e, b, x in times)
        cells = (f"{1e3 * enter:.2f} ms", f"{1e3 * leave:.2f} ms", f"{1e3 * BATCHES * batch:.0f} ms")
        rows.append([case.name, *cells, f"**{100 * share:.2f} %**"])
    print(table(["model", "enter", "exit", "100 batches", "(enter + exit) / 100 batches"], rows))


if __name__ == "__main__":
    main()
