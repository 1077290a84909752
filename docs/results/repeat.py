"""Trains published runs again with the code that is here, and compares their losses bit for bit.

    python docs/results/repeat.py FOLDER [--runs 40] [--epochs 30]

FOLDER is a results folder, also one of an earlier commit. The runs are drawn at random, and each is repeated for its
first epochs. `auto` is left out where the budget is time: its schedule follows the clock. Needs the `bench` extra.
"""

import argparse
import random
from pathlib import Path

from cmalight.bench.models import Result, Run
from cmalight.bench.store import read_results
from cmalight.bench.training import train


def repeated(result: Result, epochs: int) -> Result:
    """The run again, for so many epochs at most; the time limit would end it at another step."""
    limits = {"seconds": None, "batches": None, "epochs": max(1, min(epochs, result.epochs))}
    return train(Run.model_validate(result.run.model_dump() | limits), warm_up=False)


def compared(old: Result, new: Result) -> tuple[int, int]:
    """How many of the points that both have at the same step are equal, and how many there are.

    The last point of the new run lies after the judgement of its last epoch, where the old run has none.
    """
    before = dict(zip(old.points.step, old.points.train_loss, strict=True))
    after = list(zip(new.points.step, new.points.train_loss, strict=True))[:-1]
    pairs = [(before[step], loss) for step, loss in after if step in before]
    return sum(one == other for one, other in pairs), len(pairs)


def main() -> None:
    """What the command does."""
    parser = argparse.ArgumentParser(
        description="Repeat published runs with the code that is here."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args()
    results = [one for one in read_results(options.folder) if one.points.step]
    results = [one for one in results if one.run.solver != "auto" or one.run.seconds is None]
    differ = 0
    for old in random.Random(0).sample(results, min(options.runs, len(results))):
        equal, points = compared(old, repeated(old, options.epochs))
        differ += equal < points
        print(f"{old.run}: {equal} of {points} points equal", flush=True)
    print(f"{differ} runs differ")


if __name__ == "__main__":
    main()
