"""Does the watchdog harm runs that need none? Each sound run alone, watched without, and watched with an objective.

    python benchmarks/bench_harm.py --seeds 5

The error at the end over that of the base alone, by seed: the geometric mean and the worst. "same bits" counts the runs
that end at exactly the weights of the base alone.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Sequence

import torch
from sound import SOUND, Result, Sound, bound, measure


def row(sound: Sound, seeds: int) -> list[str]:
    alone = [measure(sound.make(seed)) for seed in range(seeds)]
    cells = [sound.name, f"{min(r.error for r in alone):.3g} to {max(r.error for r in alone):.3g}"]
    for objective in (False, True)[: 1 + sound.has_f]:
        cells.append(
            cell([measure(sound.make(seed), watched=True, objective=objective) for seed in range(seeds)], alone)
        )
    return cells


def cell(watched: Sequence[Result], alone: Sequence[Result]) -> str:
    ratios = [one.error / base.error for one, base in zip(watched, alone, strict=True)]
    same = sum(one.weights == base.weights for one, base in zip(watched, alone, strict=True))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    text = f"{mean:.3g}, {max(ratios):.3g}; {same} same bits, {sum(one.undone for one in watched)} undone"
    evaluations = sum(one.evaluations for one in watched)
    harmed = sum(not one.error <= bound([base.error for base in alone]) for one in watched)
    return text + (f", {evaluations} evaluations" if evaluations else "") + (f"; **{harmed} harmed**" if harmed else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[""], help="runs whose names contain one of these")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| run | error alone | watched: mean, worst | watched with an objective |\n|---|---|---|---|")
    for sound in SOUND:
        if any(part in sound.name for part in args.only):
            print("| " + " | ".join(row(sound, args.seeds)) + " |", flush=True)


if __name__ == "__main__":
    main()
