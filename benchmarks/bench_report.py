"""The report of 10,000 runs of 100 epochs: seconds for its parts, and the size of the page."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import quick_option, table, write_without_fsync

from cmalight.bench import write_report
from cmalight.bench.report.content import page_data, read_study, tables
from cmalight.bench.report.figures import figure_files
from cmalight.bench.report.page import page
from cmalight.bench.store.results import runs_folder

OUTCOMES = ("accepted", "accepted", "accepted", "search_failed_kept", "rejected_early", "search_succeeded")
SOLVERS = ("cmalight", "cmalight-certified", "cma", "ig", "adam", "adagrad", "adadelta", "sgd", "nadam", "lbfgs")
RULES = {"time_limit": 300.0, "batch_size": 128, "order": "reshuffle", "measure_every": 1, "threads": 1}
MACHINE = {"host": "made-up", "cpu": "made up", "cores": 64, "concurrency": 1, "load": 1.0, "versions": {}}


def made_up(chance: np.random.Generator, dataset: str, network: str, seed: int, solver: str, epochs: int) -> Any:
    """A loss that falls quickly, then slowly, with noise: about half of its epochs are lower than all before."""
    floor, speed = 10 ** chance.uniform(-3, -1), chance.uniform(0.3, 1.5)
    fall = floor + (1 - floor) * np.arange(2, epochs + 2) ** -speed
    losses = [round(float(one), 9) for one in fall * np.exp(0.01 * chance.standard_normal(epochs))]
    seconds = [round(float(one), 6) for one in np.cumsum(chance.uniform(0.5, 1.5, epochs)) * 300 / epochs]
    controlled = solver.startswith("cma")
    counts = np.cumsum(chance.integers(0, 3, epochs)) if controlled else np.zeros(epochs)
    columns: dict[str, Any] = {
        "epoch": list(range(epochs)),
        "seconds": seconds,
        "train_loss": losses,
        "test_loss": [round(1.1 * one, 9) for one in losses],
        "test_accuracy": [None] * epochs,
        "f_tilde": losses,
        "lr": [0.5 * 0.9 ** (epoch // 4) for epoch in range(epochs)],
        "alpha": [None] * epochs,
        "outcome": [str(one) for one in chance.choice(OUTCOMES, epochs)] if controlled else ["uncontrolled"] * epochs,
        "evaluations": [int(one) for one in counts],
    }
    definition = {
        "dataset": dataset,
        "network": {"network": network, "name": network, "options": {}},
        "seed": seed,
        "solver": {"solver": solver, "name": solver, "options": {}},
        **RULES,
    }
    return {
        "key": hashlib.sha256(repr((dataset, network, seed, solver)).encode()).hexdigest()[:40],
        "run": definition,
        "status": "done" if chance.random() > 0.02 else "diverged",
        "started": 0.0,
        "finished": 0.0,
        "environment": MACHINE,
        "epochs": columns,
        "initial_loss": 1.0,
        "final_loss": losses[-1],
        "final_test_loss": 1.1 * losses[-1],
        "seconds": seconds[-1],
        "evaluations": int(counts[-1]),
        "ended_by": "time_limit",
        "data_sha256": dataset,
    }


def make(folder: Path, *, datasets: int, networks: int, seeds: int, epochs: int) -> int:
    chance = np.random.default_rng(0)
    runs_folder(folder).mkdir(parents=True)
    names = [f"teacher:rows={1000 * (n + 1) ** 2},features=10" for n in range(datasets)]
    nets = [f"{n + 1}x50" for n in range(networks)]
    cells = list(itertools.product(names, nets, range(seeds), SOLVERS))
    for dataset, network, seed, solver in cells:
        content = made_up(chance, dataset, network, seed, solver, epochs)
        write_without_fsync(runs_folder(folder) / f"{content['key']}.json", content)
    return len(cells)


def _timed(parts: dict[str, tuple[float, float]], name: str, work: Callable[[], Any]) -> Any:
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    parts[name] = time.perf_counter() - wall, time.process_time() - processor
    return result


def main() -> None:
    quick = quick_option(__doc__)
    size = {"datasets": 2, "networks": 2, "seeds": 2} if quick else {"datasets": 20, "networks": 10, "seeds": 5}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "results"
        runs = make(folder, **size, epochs=100)
        parts: dict[str, tuple[float, float]] = {}
        study = _timed(parts, "reading the results", lambda: read_study(folder))
        text = _timed(parts, "the page", lambda: page(page_data(study)))
        _timed(parts, "tables", lambda: tables(study))
        _timed(parts, "figures", lambda: list(figure_files(study)))
        _timed(parts, "all of it in one call", lambda: write_report(folder))
    print(f"{runs} runs of 100 epochs:\n")
    rows = [(name, f"{wall:.1f} s", f"{processor:.1f} s") for name, (wall, processor) in parts.items()]
    print(table(("", "wall clock", "processor"), rows))
    print(f"\nthe page has {len(text.encode()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
