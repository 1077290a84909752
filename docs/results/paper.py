"""The numbers and the figures of paper.md, from the runs in paper.csv and cifar.csv.

    python docs/results/paper.py --run FOLDER           runs the studies; the same command resumes them
    python docs/results/paper.py --collect FOLDER       puts what ran into both files, in place of the same runs
    python docs/results/paper.py                        writes the pages' tables and figures

A run of 4 s is also one of 0.5 s: what it had reached by then. Needs the `bench` extra, and for
the first two commands the data sets.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import pandas as pd
from pages import filled
from paper_figures import FIGURES, cifar_curves
from paper_runs import STUDIES, collect, collect_cifar, renewed, specs_of
from paper_tables import BLOCKS, CIFAR_BLOCKS

HERE = Path(__file__).parent
RUNS, CIFAR = HERE / "paper.csv", HERE / "cifar.csv"
PAGES = (HERE / "paper.md", HERE / "paper-appendix.md")
START = ["dataset", "network", "solver", "seed"]


def study(folder: Path, workers: int) -> None:
    """Run all studies of the page, one after the other, into folders of their names."""
    for name in (*STUDIES, "cifar"):
        for spec in specs_of(name):
            command = [sys.executable, "-m", "cmalight", "bench", "run", str(spec)]
            options = ["--out", str(folder / f"paper-{name}"), "--workers", str(workers)]
            subprocess.run([*command, *options], check=True)


def written(runs: pd.DataFrame, cifar: pd.DataFrame) -> dict[Path, str]:
    """The pages with their tables and the figures, by file."""
    texts = {}
    for page in PAGES:
        text = filled(page.read_text(encoding="utf-8"), BLOCKS, runs)
        texts[page] = filled(text, CIFAR_BLOCKS, cifar)
    texts |= {HERE / name: draw(runs) for name, draw in FIGURES.items()}
    return texts | {HERE / "paper-fig5.svg": cifar_curves(cifar)}


def main() -> None:
    """What the command does."""
    parser = argparse.ArgumentParser(description="Write the numbers of paper.md.")
    parser.add_argument("--run", type=Path, metavar="FOLDER")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--collect", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.run:
        study(options.run, options.workers)
        return
    if options.collect:
        runs = renewed(pd.read_csv(RUNS), collect(options.collect), ["reading", *START])
        cifar = renewed(pd.read_csv(CIFAR), collect_cifar(options.collect), ["solver", "seed"])
        runs.to_csv(RUNS, index=False, float_format="%.6g")
        cifar.to_csv(CIFAR, index=False, float_format="%.6g")
    for file, text in written(pd.read_csv(RUNS), pd.read_csv(CIFAR)).items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
