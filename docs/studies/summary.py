"""The tables of docs/results/auto.md from results of the test-bed.

    python docs/studies/summary.py FOLDER [FOLDER ...]

A folder is one that `cmalight bench run` or `bench merge` wrote, or an archive of it. A rival is a
run of Adam or AdamW; the best of them is chosen afterwards, for each problem and seed.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from cmalight.bench import load

PROBLEM = ["dataset", "network", "seed"]
DEFAULT = ("auto lr=0.01", "auto")


def mean(ratios: pd.Series) -> float:
    """Geometric mean."""
    return float(np.exp(np.log(ratios).mean()))


def wide(runs: pd.DataFrame, value: str) -> pd.DataFrame:
    """One row per problem and seed, one column per solver."""
    return runs.pivot(index=PROBLEM, columns="solver", values=value)


def rows(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per solver that is no rival."""
    # A run that diverged or died has no loss to be proud of.
    runs = runs.assign(
        loss=runs["final_loss"].where(runs["status"] == "done", np.inf).fillna(np.inf)
    )
    losses, first, validation = (
        wide(runs, "loss"),
        wide(runs, "initial_loss"),
        wide(runs, "final_validation_loss"),
    )
    accepted, seconds = wide(runs, "accepted"), wide(runs, "seconds")
    rivals = [name for name in losses if name.startswith("adam")]
    best = losses[rivals].idxmin(axis=1)
    at_best = pd.Series(np.arange(len(losses)), losses.index)
    column = {name: i for i, name in enumerate(losses.columns)}

    def of_best(frame: pd.DataFrame) -> pd.Series:
        return at_best.map(lambda i: frame.iat[i, column[best.iat[i]]])

    default = losses[next(name for name in DEFAULT if name in losses)]
    found = {}
    for name in losses:
        if name in rivals:
            continue
        ratio, over_default = losses[name] / losses[rivals].min(axis=1), losses[name] / default
        unseen = validation[name] / of_best(validation)
        worst = ratio.idxmax()
        found[name] = {
            "runs": len(ratio),
            "over the best rival": mean(ratio),
            "worst": ratio.max(),
            "worst at": " ".join(map(str, worst)),
            "validation": mean(unseen),
            "not worse there": int((unseen <= 1.0).sum()),
            "over auto": mean(over_default),
            "within 1.5": int((over_default <= 1.5).sum()),
            "within 3": int((over_default <= 3.0).sum()),
            "above f_0": int((losses[name] > first[name]).sum()),
            "undone": int((accepted[name] < 1.0).sum()) if name.startswith("auto") else 0,
            "seconds": mean(seconds[name] / of_best(seconds)),
        }
    return pd.DataFrame(found).T


def by_problem(runs: pd.DataFrame, solver: str) -> pd.DataFrame:
    """One row per problem: the solver over the best rival, geometric mean over the seeds."""
    losses = wide(runs, "final_loss")
    ratio = losses[solver] / losses[[name for name in losses if name.startswith("adam")]].min(
        axis=1
    )
    return ratio.groupby(level=[0, 1]).agg([mean, "min", "max"])


def main() -> None:
    """Print a table for each folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument(
        "--problems", metavar="SOLVER", help="also one row per problem for this solver"
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    pd.set_option("display.width", 250, "display.max_columns", None, "display.max_colwidth", None)
    for folder in args.folders:
        runs = load(folder).runs
        complete = runs.groupby(PROBLEM)["solver"].transform("nunique") == runs["solver"].nunique()
        print(
            f"\n{folder.name}: {complete.sum()} of {len(runs)} runs are of problems that every solver has finished"
        )
        print(rows(runs[complete]).to_string(float_format="{:.3g}".format))
        if args.problems:
            print(by_problem(runs[complete], args.problems).to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
