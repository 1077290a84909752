"""The study of docs/results/paper.md: `make reproduce`, or `make reproduce QUICK=1` in ten minutes on embedded data.

A call goes on where the last one stopped, by Ctrl-C or otherwise. It says before each part how long all of what is left
will take, and with every run how long the rest of its part will. Then it measures single samples (descent.py), and
ends with a report and the table of claims.
`--publish FILE.tar.xz` then joins everything into one file with rounded columns, as in docs/results.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cmalight import bench
from cmalight.bench.running.executors import default_workers
from cmalight.bench.spec.spec_files import PRESETS
from cmalight.bench.store.results import result_path
from cmalight.cli.errors import show_messages
from cmalight.errors import duration

PAPER = Path(__file__).parents[1] / "docs" / "results" / "paper"
QUICK = "reproduced-quick"
MEASURING = 1.3  # what a run takes beside its limit, for measuring, as a factor


def parts(quick: bool) -> Iterator[bench.Spec]:
    """Start by start, so that a study that is broken off has as many starts of everything as it can."""
    if quick:
        yield bench.read_spec(QUICK)
        return
    presets = [one for one in PRESETS if one.startswith("reproduced-") and one != QUICK]
    specs = [bench.read_spec(preset) for preset in (*presets, "cifar10-small")]
    for starts in range(1, 1 + max(len(spec.seeds) for spec in specs)):
        for spec in specs:
            if starts <= len(spec.seeds):
                yield bench.narrowed(spec, bench.Narrowing(seeds=f"{starts}"))


def seconds_left(specs: list[bench.Spec], out: Path, workers: int) -> float:
    """Of all runs that have no result yet, if each takes its limit."""
    left = {
        run.key: run.definition.time_limit or 0.0
        for spec in specs
        for run in bench.plan(spec)
        if not result_path(out / spec.name, run.key).is_file()
    }
    return MEASURING * sum(left.values()) / workers


def descent(out: Path, *, quick: bool) -> Path:
    """Which way single samples lead, measured by the script of the page; what is there is not measured again."""
    file = out / "descent.json"
    if not file.is_file():
        print("descent.py: which way single samples lead, some minutes more", flush=True)
        spec = bench.read_spec(QUICK)
        names = [network.name.removeprefix("paper:") for network in spec.networks]
        fewer = ["--datasets", *spec.datasets, "--networks", *names] if quick else []
        out.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, str(PAPER / "descent.py"), "--out", str(file), *fewer], check=True)
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="embedded data, ten minutes")
    parser.add_argument("--out", type=Path, default=Path("reproduced"), help="a folder for the results [reproduced]")
    parser.add_argument("--workers", type=int, default=default_workers(1), help="runs at once [one a core]")
    parser.add_argument("--publish", type=Path, metavar="FILE.tar.xz", help="join what is there into this file, too")
    chosen = parser.parse_args()
    show_messages(quiet=False)
    specs = list(parts(chosen.quick))
    missing: dict[str, str] = {}
    for at, spec in enumerate(specs):
        left = duration(seconds_left(specs[at:], chosen.out, chosen.workers))
        print(f"part {at + 1} of {len(specs)}: {spec.name}; about {left} left in all", flush=True)
        missing |= bench.run(spec, chosen.out / spec.name, workers=chosen.workers, progress=True).left_out
    for what, why in missing.items():
        print(f"left out: {what} ({why})")
    points = descent(chosen.out, quick=chosen.quick)
    archive = chosen.publish or chosen.out / "study.tar.xz"
    folders = [chosen.out / name for name in dict.fromkeys(spec.name for spec in specs)]
    bench.merge(folders, archive, rounded=chosen.publish is not None)
    print(f"report: {bench.write_report(archive, chosen.out / 'report')}")
    command = [sys.executable, str(PAPER / "make.py"), "--results", str(archive), "--descent", str(points)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted: what is finished is kept, and the same command goes on from there", file=sys.stderr)
        sys.exit(130)
