"""What one decision for two ranks costs: epochs in DDP over gloo that are decided together, apart, and not at all."""

from __future__ import annotations

import datetime
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from common import DEEP, SMALL, Case, EasyObjective, interleaved, quick_option, ratio, table
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from cmalight import CMALight, Outcome

RANKS = 2
BATCHES = 100


def controlled(case: Case, process_group: Any) -> Callable[[], float]:
    model, batches, loss_fn = DistributedDataParallel(case.model()), case.batches(BATCHES), nn.MSELoss()
    optimizer = CMALight(model.parameters(), lr=1e-3)
    objective: Any = EasyObjective(model, RANKS * sum(len(y) for _, y in batches))
    objective.process_group = process_group

    def run() -> float:
        optimizer.restart(objective)
        dist.barrier()
        start = time.perf_counter()
        with optimizer.epoch(objective) as epoch:
            for x, y in epoch.batches(batches):
                optimizer.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
        if epoch.report is None or epoch.report.outcome is not Outcome.ACCEPTED:
            raise RuntimeError(f"this benchmark is about accepted epochs, but got {epoch.report}")
        return time.perf_counter() - start

    return run


def plain(case: Case) -> Callable[[], float]:
    model, batches, loss_fn = DistributedDataParallel(case.model()), case.batches(BATCHES), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def run() -> float:
        dist.barrier()
        start = time.perf_counter()
        for x, y in batches:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
        return time.perf_counter() - start

    return run


def work(rank: int, folder: str, quick: bool) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=120),
    )
    rows = []
    for case in (SMALL, DEEP):
        variants = {
            "SGD": plain(case),
            "ranks apart": controlled(case, False),  # the same loop, but each rank decides for itself
            "CMALight": controlled(case, None),
        }
        times = interleaved(variants, 5 if quick else 80)
        together = [
            f"{100 * (min(times['CMALight']) / min(times['ranks apart']) - 1):.2f} %",
            f"**{100 * (ratio(times['CMALight'], times['ranks apart']) - 1):.2f} %**",
        ]
        cells = [f"{1e3 * min(times['SGD']):.0f} ms", *together, f"{ratio(times['CMALight'], times['SGD']):.3f}"]
        rows.append([case.name, *cells])
    if rank == 0:
        header = ["model", "100 batches under SGD", "deciding together, least", "median", "CMALight / SGD"]
        print(table(header, rows))
    dist.destroy_process_group()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (folder, quick_option(__doc__)), nprocs=RANKS)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
