"""A full evaluation of the objective against an epoch of training on the same batches."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from common import BATCH, DEEP, LARGE, SMALL, Case, interleaved, quick_option, ratio, seconds, table
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import CMALight, Objective


def loaders(case: Case, samples: int) -> dict[str, Any]:
    inputs, target = case.table(samples)
    return {
        "DataLoader, shuffled": DataLoader(TensorDataset(inputs, target), BATCH, shuffle=True),
        "list of batches": list(zip(inputs.split(BATCH), target.split(BATCH), strict=True)),
    }


def epoch_of(model: nn.Module, loader: Any, objective: Objective) -> Callable[[], None]:
    """An epoch that is never judged, so that no evaluation gets into its time."""
    optimizer, loss_fn = CMALight(model.parameters(), lr=1e-3), nn.MSELoss()

    def run() -> None:
        with optimizer.epoch(objective) as epoch:
            for x, y in epoch.batches(loader):
                optimizer.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
            epoch.abandon()

    return run


def main() -> None:
    quick = quick_option(__doc__)
    torch.set_num_threads(1)
    rows = []
    for case, samples in ((replace(SMALL, inputs=8), 15_000), (replace(DEEP, inputs=8), 15_000), (LARGE, 2_000)):
        rounds = 2 if quick else (4 if case is LARGE else 25)
        for name, loader in loaders(case, samples).items():
            model, loss_fn = case.model(), nn.MSELoss()
            evaluate = Objective(model, loss_fn, loader)
            plain = Objective(model, loss_fn, loader, merge=False)
            functions = {"epoch": epoch_of(model, loader, evaluate), "evaluate": evaluate, "plain": plain}
            times = interleaved({key: seconds(function) for key, function in functions.items()}, rounds)
            merged, unmerged = (ratio(times[key], times["epoch"]) for key in ("evaluate", "plain"))
            cells = (f"{samples} x {case.inputs}", name, f"{1e3 * statistics.median(times['epoch']):.0f} ms")
            rows.append([case.name, *cells, f"**{merged:.3f}**", f"{unmerged:.3f}"])
    print(table(["model", "data", "loader", "epoch", "evaluation / epoch", "merge=False / epoch"], rows))


if __name__ == "__main__":
    main()
