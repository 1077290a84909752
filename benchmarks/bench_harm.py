"""Does the watchdog harm runs that need none? Each sound run alone, watched without, and watched with an objective.

    python benchmarks/bench_harm.py --seeds 5 [--out harm.csv]

The error at the end over that of the base alone, by seed: the geometric mean and the worst. "same bits" counts the runs
that end at exactly the weights of the base alone. The file has one row per run.
"""

from __future__ import annotations

import argparse
import csv
import math
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from sound import HELD_BACK, SOUND, Result, Sound, bound, measure

WATCHES = {"alone": {}, "watched": {"watched": True}, "with an objective": {"watched": True, "objective": True}}


def runs_of(sound: Sound, seeds: int) -> dict[str, list[Result]]:
    """What each watch gives, by seed."""
    watches = list(WATCHES)[: 2 + sound.has_f]
    return {name: [measure(sound.make(seed), **WATCHES[name]) for seed in range(seeds)] for name in watches}


def cells(runs: dict[str, list[Result]]) -> list[str]:
    errors = [one.error for one in runs["alone"]]
    watched = [results for name, results in runs.items() if name != "alone"]
    return [f"{min(errors):.3g} to {max(errors):.3g}", *(cell(results, runs["alone"]) for results in watched)]


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
    parser.add_argument("--out", type=Path, help="a CSV file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| run | error alone | watched: mean, worst | watched with an objective |\n|---|---|---|---|")
    rows: list[tuple[object, ...]] = [("group", "run", "watch", "seed", "error", "same_bits", "undone", "evaluations")]
    for sound in (*SOUND, *HELD_BACK):
        if not any(part in sound.name for part in args.only):
            continue
        runs = runs_of(sound, args.seeds)
        print("| " + " | ".join([sound.name, *cells(runs)]) + " |", flush=True)
        group = "held back" if sound in HELD_BACK else "small"
        for watch, results in runs.items():
            for seed, (one, base) in enumerate(zip(results, runs["alone"], strict=True)):
                said = (f"{one.error:.6g}", one.weights == base.weights, one.undone, one.evaluations)
                rows.append((group, sound.name, watch, seed, *said))
    if args.out:
        with args.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
