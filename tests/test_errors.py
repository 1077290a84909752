"""Checks of arguments, and what is said where an optional library is missing."""

import math

import numpy
import pytest

from cmalight import errors

CHECKS = {
    "whole": (
        lambda value: errors.check_whole("n", value, least=1, most=9),
        (1, 9, numpy.int64(3)),
        (0, 10, 1.0, True),
    ),
    "seed": (lambda value: errors.check_seed("n", value), (0, 2**32 - 1), (-1, 2**32, 0.5, True)),
    "positive": (
        lambda value: errors.check_positive("n", value),
        (1, 1e-300),
        (0, -1, math.inf, math.nan, "1", True, 10**400),
    ),
    "least": (lambda value: errors.check_least("n", value, 0), (0, 0.5), (-1e-9, math.inf, math.nan, None)),
    "fraction": (lambda value: errors.check_fraction("n", value), (0.5, 1e-9), (0, 1, math.nan, "0.5")),
    "part": (lambda value: errors.check_part("n", value), (0, 0.5), (1, -0.1, math.nan, True)),
    "share": (lambda value: errors.check_share("n", value), (0, 1, 0.5), (-0.1, 1.1, math.nan, True)),
    "flag": (lambda value: errors.check_flag("n", value), (True, False), (0, None, "True")),
    "choice": (lambda value: errors.check_choice("n", value, ("a", 1, None)), ("a", 1, None), ("b", True, ["a"], {})),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_takes_what_is_in_its_range_alone(name):
    check, good, wrong = CHECKS[name]
    for value in good:
        check(value)
    for value in wrong:
        with pytest.raises(ValueError, match=r"^Invalid n value: .*; expected "):
            check(value)


def test_a_range_is_named_by_its_ends():
    with pytest.raises(ValueError, match=r"expected a whole number from 1 to 9$"):
        CHECKS["whole"][0](10)
    with pytest.raises(ValueError, match=r"expected a whole number >= 2$"):
        errors.check_whole("n", 1, least=2)
    with pytest.raises(ValueError, match=r"expected one of a, 1, None$"):
        CHECKS["choice"][0]("b")


def test_a_missing_library_is_named_with_what_brings_it():
    words = r'^a figure needs it: pip install "cmalight\[cli\]"$'
    with pytest.raises(ImportError, match=words) as raised, errors.needed("a figure needs it", "cli"):
        import no_such_library_anywhere  # noqa: F401
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)
