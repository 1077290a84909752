"""First, do no harm: sound runs end as well watched as alone, and in the same bits if nothing was undone.

Within the spread of seeds: no error is farther above the worst of the seeds alone than that is above the best, by a
ratio, and a tenth (`bound` in benchmarks/sound.py). benchmarks/bench_harm.py runs them longer, with more seeds.
"""

from dataclasses import replace
from functools import cache

import pytest

from benchmarks.sound import SOUND, Result, Sound, bound, measure

SEEDS = range(3)
STEPS = 300
DRIFTS = [sound for sound in SOUND if "drifts" in sound.name or "tasks" in sound.name]
CASES = [(sound, objective) for sound in SOUND if sound not in DRIFTS for objective in (False, True)[: 1 + sound.has_f]]
NAMES = [sound.name + (" with an objective" if objective else "") for sound, objective in CASES]


def run(sound: Sound, seed: int, **how) -> Result:
    task = sound.make(seed)
    return measure(replace(task, epochs=max(1, min(task.epochs, STEPS // task.length))), **how)


@cache
def alone(sound: Sound) -> list[Result]:
    return [run(sound, seed) for seed in SEEDS]


@pytest.mark.parametrize(("sound", "objective"), CASES, ids=NAMES)
def test_watched_ends_within_the_spread_of_seeds(sound, objective):
    within = bound([base.error for base in alone(sound)])
    for seed, base in zip(SEEDS, alone(sound), strict=True):
        watched = run(sound, seed, watched=True, objective=objective)
        assert watched.error <= within
        assert watched.undone or watched.weights == base.weights


@pytest.mark.parametrize("drifts", DRIFTS, ids=lambda sound: sound.name)
def test_a_loss_that_jumps_because_the_data_change_costs_one_undo_at_most(drifts):
    """The losses cannot tell this from a failure before they have gone back once."""
    for seed in SEEDS:
        base = measure(drifts.make(seed))
        watched = measure(drifts.make(seed), watched=True, objective=False)
        assert watched.undone <= 1
        assert watched.error <= 2 * base.error
