"""What the test-bed costs beside the training: the start, and the time between two runs."""

from __future__ import annotations

import tempfile
import time

from common import quick_option

from cmalight import bench


def main() -> None:
    changes = ["seconds = 0.2", 'datasets = ["diabetes"]'] if quick_option(__doc__) else []
    spec = bench.read_spec("demo", changes)
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        summary = bench.run(spec, folder)
        seconds = time.time() - began
        runs = bench.load(folder).runs
    training = float(runs["seconds"].sum())
    before = float(runs["started"].min()) - began
    print(f"{summary}: {seconds:.0f} s in all, {training:.0f} s of training, {before:.1f} s until the first run")
    print(f"{(seconds - before - training) / summary.total:.2f} s beside the training for each run, measuring included")


if __name__ == "__main__":
    main()
