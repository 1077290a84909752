"""What the test-bed costs beside the training: its runner on runs of 10 s, and reading 10,000 results."""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import quick_option, table, write_without_fsync

from cmalight import bench
from cmalight.bench.spec.planning import key_of
from cmalight.bench.spec.study import spec_from_plain
from cmalight.bench.store.results import read_result, runs_folder


def overhead(folder: Path, *, seconds: float, runs: int) -> tuple[float, float]:
    """Seconds that are neither training nor measuring, as a share of the training: between runs, and with the start."""
    plain = {
        "datasets": ["teacher:rows=20000,features=20"],
        "networks": ["3x20"],
        "solvers": ["cmalight"],
        "seeds": runs,
        "time_limit": seconds,
    }
    began = time.time()
    bench.run(spec_from_plain(plain, origin="benchmark"), folder, workers=1)
    ended = time.time()
    frame = bench.load(folder).runs.sort_values("started")
    training = float(frame["seconds"].sum())
    busy = float((frame["finished"] - frame["started"]).sum())  # loading data, training, measuring
    start = float(frame["started"].min()) - began
    return (ended - began - start - busy) / training, (ended - began - busy) / training


def start_of_the_command(place: Path, tries: int) -> tuple[float, float]:
    """Seconds of `cmalight bench run` until its first run begins, and in all where there is nothing to run."""
    spec = place / "spec.toml"
    spec.write_text('datasets = ["diabetes"]\nnetworks = ["1x5"]\nsolvers = ["adam"]\nseeds = 1\nmax_epochs = 1\n')
    first, alone = [], []
    for number in range(tries):
        out = place / f"start{number}"
        command = [sys.executable, "-m", "cmalight", "bench", "run", str(spec), "--out", str(out), "--quiet"]
        began = time.time()
        subprocess.run(command, check=True)
        first.append(float(bench.load(out).runs["started"].min()) - began)
        began = time.time()
        subprocess.run(command, check=True)
        alone.append(time.time() - began)
    return min(first), min(alone)


def inside(folder: Path) -> float:
    """Building the network and measuring, as a share of the training; not of the first run, which loads the data."""
    frame = bench.load(folder).runs.sort_values("started").iloc[1:]
    return float(((frame["finished"] - frame["started"] - frame["seconds"]) / frame["seconds"]).median())


def reading(folder: Path, example: Path, *, runs: int, epochs: int) -> tuple[float, int]:
    """Seconds for `load`, and the rows of its second frame."""
    runs_folder(folder).mkdir(parents=True)
    content = read_result(example)
    columns = {name: (values * epochs)[:epochs] for name, values in content["epochs"].items()}
    for number in range(runs):
        one = copy.copy(content)
        one["run"] = {**content["run"], "seed": number}
        one["key"] = key_of(one["run"])
        one["epochs"] = columns
        path = runs_folder(folder) / f"{one['key']}.json"
        write_without_fsync(path, one)
    began = time.perf_counter()
    results = bench.load(folder)
    return time.perf_counter() - began, len(results.epochs)


def main() -> None:
    quick = quick_option(__doc__)
    seconds, runs = (1.0, 2) if quick else (10.0, 4)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        between, with_start = overhead(folder / "overhead", seconds=seconds, runs=runs)
        within = inside(folder / "overhead")
        begins, alone = start_of_the_command(folder, 1 if quick else 5)
        example = next(runs_folder(folder / "overhead").glob("*.json"))
        load_seconds, rows = reading(folder / "many", example, runs=200 if quick else 10_000, epochs=100)
    print(f"{runs} runs of {seconds:g} s, one after the other, as shares of the training time:\n")
    print(
        table(
            ("", "share"),
            [
                ("the runner between runs", f"{between:.2%}"),
                ("the same with starting the worker process once", f"{with_start:.2%}"),
                ("within a run: the network, measuring the true loss", f"{within:.2%}"),
            ],
        )
    )
    print(
        f"\n`cmalight bench run` until its first run begins: {begins:.1f} s; with nothing to run: {alone:.1f} s;"
        f" so the start of the first process takes {begins - alone:.1f} s"
    )
    print(f"reading {rows // 100} results of 100 epochs into frames: {load_seconds:.1f} s")


if __name__ == "__main__":
    main()
