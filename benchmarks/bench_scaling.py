"""Which scaling of the inputs serves `cmalight train` best: test scores on tables, with and without an outlier.

    python benchmarks/bench_scaling.py [--rows 4000] [--epochs 30] [--seeds 3] [NAME ...]

prints a Markdown table: r2, or accuracy for classes, on the test rows, the mean over seeds, by scaling. "+ outlier" has
one cell in each column of ten training rows multiplied by 1e6. Needs the files of the data sets (CMALIGHT_DATA).
"""

from __future__ import annotations

import argparse
import logging

import numpy as np

from cmalight.datasets import dataset_info
from cmalight.datasets.loading import raw_data
from cmalight.tables.scaling import SCALING_KINDS
from cmalight.tables.table import Column, Table
from cmalight.tabular.train_and_predict import TableChoices, train_on_table

NAMES = ("ailerons", "beijing-pm25", "bikes", "blogfeedback", "california", "mv", "skin-nonskin", "breast-cancer")
NAMES += ("diabetes", "digits", "wine")


def table_of(name: str, rows: int, *, outliers: bool) -> tuple[Table, str]:
    entry = dataset_info(name)
    raw = raw_data(entry)
    chosen = np.random.default_rng(0).permutation(len(raw.x))[:rows]
    x, y = np.array(raw.x[chosen], dtype=np.float64), np.array(raw.y[chosen], dtype=np.float64)
    if outliers:
        for column in range(x.shape[1]):
            x[column % 10, column] = 1e6 * (1 + abs(x[column % 10, column]))
    columns = [Column(f"x{i}", x[:, i]) for i in range(x.shape[1])]
    return Table(name, (*columns, Column("y", y))), entry.task


def score(table: Table, task: str, kind: str, *, seed: int, epochs: int) -> float:
    choices = TableChoices(target="y", task=task, seed=seed, scaling=kind)  # type: ignore[arg-type]
    result = train_on_table(table, choices, batch_size=32, max_epochs=epochs)
    return next(iter(result.scores.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    logging.getLogger("cmalight").setLevel(logging.ERROR)
    print("| table | " + " | ".join(SCALING_KINDS) + " |")
    print("|---|" + "---:|" * len(SCALING_KINDS))
    for name in given.names:
        for outliers in (False, True):
            table, task = table_of(name, given.rows, outliers=outliers)
            means = [
                np.mean([score(table, task, kind, seed=seed, epochs=given.epochs) for seed in range(given.seeds)])
                for kind in SCALING_KINDS
            ]
            title = f"{name} + outlier" if outliers else name
            print(f"| {title} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |", flush=True)


if __name__ == "__main__":
    main()
