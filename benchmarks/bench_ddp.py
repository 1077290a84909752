"""What one decision for two ranks costs: epochs in DDP over gloo under CMALight and under SGD.

The control is measured in CPU time: two ranks on a shared machine wait for each other at every batch, whoever asks.
"""

from __future__ import annotations

import datetime
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from common import DEEP, SMALL, Case, EasyObjective, interleaved, quick_option, ratio, table
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from cmalight import CMALight, Outcome

RANKS = 2
BATCHES = 100
WIDE = Case("[3x300]", 60, (300,) * 3)


def controlled(case: Case) -> Callable[[], tuple[float, float]]:
    """Seconds of an epoch, and the share of its CPU time that goes into its beginning, its checks and its end."""
    model, batches, loss_fn = DistributedDataParallel(case.model()), case.batches(BATCHES), nn.MSELoss()
    optimizer = CMALight(model.parameters(), lr=1e-3)
    objective = EasyObjective(model, RANKS * sum(len(y) for _, y in batches))

    def run() -> tuple[float, float]:
        optimizer.restart(objective)
        dist.barrier()
        start, begun, control = time.perf_counter(), time.thread_time(), 0.0
        with optimizer.epoch(objective) as epoch:
            left = begun
            for x, y in epoch.batches(batches):
                entered = time.thread_time()
                control += entered - left
                optimizer.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
                left = time.thread_time()
        control += time.thread_time() - left
        if epoch.report is None or epoch.report.outcome is not Outcome.ACCEPTED:
            raise RuntimeError(f"this benchmark is about accepted epochs, but got {epoch.report}")
        return time.perf_counter() - start, control / (time.thread_time() - begun)

    return run


def plain(case: Case) -> Callable[[], tuple[float, float]]:
    model, batches, loss_fn = DistributedDataParallel(case.model()), case.batches(BATCHES), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def run() -> tuple[float, float]:
        dist.barrier()
        start = time.perf_counter()
        for x, y in batches:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
        return time.perf_counter() - start, 0.0

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
    for case in (SMALL, DEEP, WIDE):
        times = interleaved({"SGD": plain(case), "CMALight": controlled(case)}, 5 if quick else 40)
        wall = {name: [seconds for seconds, _ in pairs] for name, pairs in times.items()}
        share = statistics.median(share for _, share in times["CMALight"])
        cells = [f"{1e3 * statistics.median(wall['SGD']):.0f} ms", f"**{100 * share:.2f} %**"]
        rows.append([case.name, *cells, f"{ratio(wall['CMALight'], wall['SGD']):.3f}"])
    if rank == 0:
        print(table(["model", "100 batches under SGD", "control / epoch, CPU time", "CMALight / SGD"], rows))
    dist.destroy_process_group()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (folder, quick_option(__doc__)), nprocs=RANKS)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
