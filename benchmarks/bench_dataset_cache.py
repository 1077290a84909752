"""Loading a table of Covertype's size from the cache against parsing its text."""

from __future__ import annotations

import gzip
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import quick_option, table

ROWS, NUMBERS, INDICATORS = 581_012, 10, 44


def write_text(path: Path, rows: int) -> None:
    """Ten columns of whole numbers, one wilderness, one soil, one class: the publisher's format with made-up values."""
    random = np.random.default_rng(0)
    numbers = random.integers(-200, 7_200, size=(rows, NUMBERS))
    indicators = np.zeros((rows, INDICATORS), dtype=np.int64)
    indicators[np.arange(rows), random.integers(0, 4, rows)] = 1
    indicators[np.arange(rows), random.integers(4, INDICATORS, rows)] = 1
    values = np.concatenate([numbers, indicators, random.integers(1, 8, size=(rows, 1))], axis=1)
    with gzip.open(path, "wt", compresslevel=1) as file:
        for row in values.tolist():
            file.write(",".join(map(str, row)) + "\n")


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    quick = quick_option(__doc__)
    rows = 20_000 if quick else ROWS
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CMALIGHT_CACHE"] = str(Path(folder) / "cache")
        from cmalight.datasets import Delimited, Entry, RemoteFile, load_dataset, register

        file = "covertype_sized.data.gz"
        write_text(Path(folder) / file, rows)
        source = Delimited(file=file, target=NUMBERS + INDICATORS)
        name = register(
            Entry(
                name="covertype-sized", task="regression", source=source, files=(RemoteFile(file),), folder=Path(folder)
            )
        ).name
        parsed = seconds(lambda: load_dataset(name))
        loaded = min(seconds(lambda: load_dataset(name)) for _ in range(3))
        size = sum(path.stat().st_size for path in (Path(folder) / "cache").rglob("*.bin"))
    cells = [f"{rows} x {NUMBERS + INDICATORS}", f"{parsed:.2f} s", f"{loaded:.3f} s", f"**{loaded / parsed:.3f}**"]
    print(
        table(
            ["table", "parsed, split, scaled", "from the cache", "ratio", "cache"], [[*cells, f"{size / 1e6:.0f} MB"]]
        )
    )


if __name__ == "__main__":
    main()
