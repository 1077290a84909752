"""What iterating TensorBatches costs against a DataLoader, CMALight in fit against SGD, and what checkpoints cost."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from common import BATCH, DEEP, SMALL, Case, interleaved, ratio, seconds, table
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import TensorBatches, fit

SAMPLES, FEATURES, BATCHES = 15_000, 60, 118


def iterate(batches: Iterable[object]) -> None:
    for _ in batches:
        pass


def loaders(rounds: int) -> str:
    x, y = torch.rand(SAMPLES, FEATURES), torch.rand(SAMPLES, 1)
    contestants = {
        "DataLoader, shuffled": DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True),
        "TensorBatches, reshuffle": TensorBatches(x, y, batch_size=BATCH),
        "TensorBatches, fixed": TensorBatches(x, y, batch_size=BATCH, order="fixed"),
    }
    times = interleaved({name: seconds(lambda b=b: iterate(b)) for name, b in contestants.items()}, rounds)
    loader = times["DataLoader, shuffled"]
    rows = [
        [name, f"{1e3 * statistics.median(t):.2f} ms", f"**1/{1 / ratio(t, loader):.0f}**"] for name, t in times.items()
    ]
    return table(["an epoch of 118 batches", "time", "of DataLoader"], rows)


def seconds_to_fit(optimizer: str, case: Case, epochs: int) -> float:
    """Training time of so many accepted epochs; the first one, which evaluates f(w⁰), is not among them."""
    model = case.model()
    x, y = case.table(BATCH * BATCHES)
    y += 10  # a long way to go, so that every epoch is accepted
    result = fit(
        model,
        nn.MSELoss(),
        (x, y),
        optimizer=optimizer,
        optimizer_options={"lr": 1e-3},
        batch_size=BATCH,
        max_epochs=epochs + 1,
        progress=False,
    )
    outcomes = {record.outcome for record in result.history}
    if not outcomes <= {"accepted", "uncontrolled"}:
        raise RuntimeError(f"this was to compare accepted epochs, but there were {outcomes}")
    return result.history[-1].seconds - result.history[0].seconds


def loops(rounds: int) -> str:
    rows = []
    for case, epochs in ((SMALL, 3), (DEEP, 1)):
        times = interleaved(
            {name: lambda name=name, case=case, epochs=epochs: seconds_to_fit(name, case, epochs)
             for name in ("sgd", "cmalight")},
            rounds,
        )  # fmt: skip
        rows.append(
            [
                case.name,
                f"{1e3 * statistics.median(times['sgd']) / epochs:.1f} ms",
                f"**{ratio(times['cmalight'], times['sgd']):.3f}**",
            ]
        )
    return table(["fit", f"an epoch of {BATCHES} batches under SGD", "CMALight / SGD"], rows)


def seconds_with(checkpoint: Path | None, epochs: int) -> float:
    """Wall time of a run of many small epochs, saves included."""
    x, y = torch.rand(60, 4), torch.rand(60, 1)
    model = nn.Sequential(nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 1))
    options = {"optimizer": "adam", "batch_size": 10, "max_epochs": epochs, "progress": False}
    started = time.perf_counter()
    fit(model, nn.MSELoss(), (x, y), checkpoint=checkpoint, **options)
    return time.perf_counter() - started


def checkpoints(rounds: int) -> str:
    rows = []
    for epochs in (1000, 2000, 4000):
        runs: dict[str, list[float]] = {"without": [], "with": []}
        for _ in range(max(1, rounds // 5)):
            with tempfile.TemporaryDirectory() as folder:
                runs["without"].append(seconds_with(None, epochs))
                runs["with"].append(seconds_with(Path(folder) / "run.pt", epochs))
        rows.append([str(epochs), *(f"{statistics.median(t):.2f} s" for t in runs.values())])
    return table(["epochs of a tiny model", "without a checkpoint", "with one"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 5 if parser.parse_args().quick else 25
    torch.set_num_threads(1)
    print(loaders(rounds))
    print(loops(rounds))
    print(checkpoints(rounds))


if __name__ == "__main__":
    main()
