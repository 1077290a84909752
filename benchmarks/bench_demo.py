"""How long `cmalight bench run demo` takes on two workers."""

from __future__ import annotations

import tempfile
import time

from common import quick_option

from cmalight import bench


def main() -> None:
    spec = bench.read_spec("demo")
    if quick_option(__doc__):
        spec = bench.narrowed(spec, bench.Narrowing(seeds="1", only=("diabetes", "1x50", "cmalight", "adam")))
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        summary = bench.run(spec, folder, workers=2)
        seconds = time.perf_counter() - began
        training = float(bench.load(folder).runs["seconds"].sum())
    print(f"{summary.total} runs, {training:.0f} s of training on two workers: {seconds:.0f} s from start to end")


if __name__ == "__main__":
    main()
