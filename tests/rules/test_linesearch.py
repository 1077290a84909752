"""Every branch of linesearch.py, by the line of the listing it stands for; numbers to check by hand."""

import math

import pytest

from cmalight.rules.linesearch import SearchResult, edfl, edfl_certified, edfl_light
from tests.rules.line import Line

# delta = 1/2 makes the trials 1, 2, 4, 8; slope 0.1 asks for 0.1 per unit of alpha.
SETTINGS = {"zeta": 1.0, "slope": 0.1, "delta": 0.5, "max_extrapolations": 10}


def light(f_tilde, **changes):
    return lambda f: edfl_light(f.f_at, f_start=1.0, f_tilde=f_tilde, **{**SETTINGS, **changes})


def certified(f):
    return edfl_certified(f.f_at, f_start=1.0, **SETTINGS)


def cma(f_end):
    return lambda f: edfl(f.f_at, f_start=1.0, f_end=f_end, **SETTINGS)


SEARCHES = {
    # The search, the values on the line, what it finds: α̃, f̂, f(w^k), f(w^k + ζd); and where it asks.
    "light, line 3: fails without an evaluation": (light(0.95), {}, (0.0, 1.0, 1.0, None), []),
    "light, line 10: evaluates the tentative point when no extrapolation is accepted": (
        light(0.9), {2.0: 0.91, 1.0: 0.85}, (1.0, 0.85, 1.0, 0.85), [2.0, 1.0],
    ),
    "light, lines 6 and 7: goes on while a trial is low enough and not higher than the last": (
        light(0.9), {2.0: 0.8, 4.0: 0.5, 8.0: 0.55}, (4.0, 0.5, 1.0, None), [2.0, 4.0, 8.0],
    ),
    "light, line 6: asks for a decrease at alpha, not at the trial": (
        light(0.9), {2.0: 0.9, 4.0: 1.0}, (2.0, 0.9, 1.0, None), [2.0, 4.0],
    ),
    # 0.85 is below 0.88, but 1 − 0.1 · 2 = 0.8 was asked for.
    "light, line 6: refuses a trial that falls but not enough": (
        light(0.9), {2.0: 0.88, 4.0: 0.85}, (2.0, 0.88, 1.0, None), [2.0, 4.0],
    ),
    "light: the guard ends the loop and says so": (
        light(0.9, max_extrapolations=2), {2.0: 0.8, 4.0: 0.6}, (4.0, 0.6, 1.0, None, True), [2.0, 4.0],
    ),
    "light: a trial that is no number is refused": (
        light(0.9), {2.0: math.nan, 1.0: 0.9}, (1.0, 0.9, 1.0, 0.9), [2.0, 1.0],
    ),
    "light: an estimate that is no number is refused": (light(math.nan), {}, (0.0, 1.0, 1.0, None), []),
    "certified, line 3: tests the true value": (certified, {1.0: 0.95}, (0.0, 1.0, 1.0, 0.95), [1.0]),
    "certified, line 10: knows the tentative point already": (
        certified, {1.0: 0.9, 2.0: 0.95}, (1.0, 0.9, 1.0, 0.9), [1.0, 2.0],
    ),
    "certified: an accepted extrapolation decreases by γδα": (
        certified, {1.0: 0.9, 2.0: 0.9, 4.0: 0.95}, (2.0, 0.9, 1.0, 0.9), [1.0, 2.0, 4.0],
    ),
    "cma: rejects without an evaluation of its own": (cma(0.95), {}, (0.0, 1.0, 1.0, 0.95), []),
    "cma: refuses less than a decrease at the trial": (cma(0.9), {2.0: 0.85}, (1.0, 0.9, 1.0, 0.9), [2.0]),
    "cma: accepts a decrease at the trial": (cma(0.9), {2.0: 0.8, 4.0: 0.7}, (2.0, 0.8, 1.0, 0.9), [2.0, 4.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search(name):
    search, values, result, asked = SEARCHES[name]
    line = Line(values)
    assert (search(line), line.asked) == (SearchResult(*result), asked)
