"""Checks of arguments, and what is said if an optional library is missing."""

import math
from functools import partial

import numpy
import pytest

from cmalight import errors

CHECKS = {
    "whole": (partial(errors.check_whole, least=1, most=9), (1, 9, numpy.int64(3)), (0, 10, 1.0, True)),
    "at least two": (partial(errors.check_whole, least=2), (2, 10**9), (1, -2)),
    "seed": (errors.check_seed, (0, 2**32 - 1), (-1, 2**32, 0.5, True)),
    "positive": (errors.check_positive, (1, 1e-300), (0, -1, math.inf, math.nan, "1", True, 10**400)),
    "least": (lambda *words: errors.check_least(*words, 0), (0, 0.5), (-1e-9, math.inf, math.nan, None)),
    "fraction": (errors.check_fraction, (0.5, 1e-9), (0, 1, math.nan, "0.5")),
    "part": (errors.check_part, (0, 0.5), (1, -0.1, math.nan, True)),
    "unit interval": (errors.check_unit_interval, (0, 1, 0.5), (-0.1, 1.1, math.nan, True)),
    "flag": (errors.check_flag, (True, False), (0, None, "True")),
    "choice": (partial(errors.check_choice, choices=("a", 1)), ("a", 1), ("b", True, ["a"], {})),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_takes_what_is_in_its_range_alone(name):
    check, good, wrong = CHECKS[name]
    for value in good:
        check("n", value)
    for value in wrong:
        with pytest.raises(ValueError, match=r"^Invalid n value: .*; expected "):
            check("n", value)


@pytest.mark.parametrize(("name", "words"), [("whole", "a whole number from 1 to 9"), ("choice", "one of a, 1")])
def test_a_range_is_named_by_its_ends(name, words):
    with pytest.raises(ValueError, match=rf"^Invalid n value: 10; expected {words}$"):
        CHECKS[name][0]("n", 10)


def test_a_missing_library_is_named_with_what_brings_it():
    words = r'^a figure needs it: pip install "cmalight\[bench\]"$'
    with pytest.raises(ImportError, match=words) as raised, errors.needed("a figure needs it", "bench"):
        import no_such_library_anywhere  # noqa: F401
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)
