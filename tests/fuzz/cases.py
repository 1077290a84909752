"""How many cases a fuzzing test tries, and from which seed: few in a normal run, thousands where asked for.

CMALIGHT_FUZZ_CASES=N makes every test try N cases, CMALIGHT_FUZZ_SEED=S other ones.
"""

import os
import random


def cases(default: int) -> int:
    """The number of cases of a test that tries `default` in a normal run."""
    return int(os.environ.get("CMALIGHT_FUZZ_CASES") or default)


def seed() -> int:
    """What the cases depend on; 0 unless told."""
    return int(os.environ.get("CMALIGHT_FUZZ_SEED") or 0)


def numbers(kind: str, case: int) -> random.Random:
    """Random numbers for one case of one kind, so that a failing case can be tried alone."""
    return random.Random(f"{kind} {seed()} {case}")
