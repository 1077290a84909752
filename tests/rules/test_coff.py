"""Every branch of COFF's rule; numbers to check by hand."""

import math
from dataclasses import replace

import pytest

from cmalight.rules.baselines import CoffRule
from cmalight.rules.outcome import Outcome
from cmalight.rules.paper import InnerCycle, Known
from tests.rules.line import Line, Told, told

INNER = InnerCycle(zeta=0.5, f_tilde=0.85, direction_norm=1.0, batches=10.0)
KNOWN = Known(f_0=1.0, phi=0.8, f_current=0.9)
# delta = 1/2 makes the trials 1, 2, 4, ...; γ‖d‖²/K = 0.001.
COFF = CoffRule(theta=0.5, tau=1e-2, gamma=1e-2, delta=0.5, max_extrapolations=2)


def decided(values: dict[float, float], **changes: float) -> tuple[Told, list[float]]:
    line = Line(values)
    decision = told(COFF.decide(KNOWN, replace(INNER, **changes), line))
    return decision, line.asked


def test_the_first_loss_is_the_first_to_beat():
    assert COFF.init(2.0) == Known(2.0, 2.0, 2.0)


KEPT, REJECTED = Outcome.SMALL_DIRECTION_KEPT, Outcome.SMALL_DIRECTION_REJECTED
DECISIONS = {
    # How the epoch differs from INNER, the values on the line; the decision (theta is 1/2), and where f was asked for.
    "line 7 accepts on the estimate": (
        {"f_tilde": 0.7}, {}, Told(Outcome.ACCEPTED, 0.5, 1.0, phi=0.7, f_next=None), [],
    ),
    "line 10 keeps below f_0": (
        {"f_tilde": 0.95, "direction_norm": 0.005}, {}, Told(KEPT, 0.5, 0.5, phi=0.8, f_next=None), [],
    ),
    "line 10 rejects above f_0": (
        {"f_tilde": 1.1, "direction_norm": 0.005}, {}, Told(REJECTED, 0.0, 0.5, phi=0.8, f_next=0.9), [],
    ),
    # 0.7999 is no decrease by γζ/K = 0.0005 · 0.005, but it is below φ.
    "line 10 takes a lower estimate over as the value to beat": (
        {"f_tilde": 0.7999, "direction_norm": 0.005}, {}, Told(KEPT, 0.5, 0.5, phi=0.7999, f_next=None), [],
    ),
    "line 17 grows the learning rate to the step that was found": (
        {}, {1.0: 0.75, 2.0: 0.76}, Told(Outcome.SEARCH_SUCCEEDED, 1.0, 2.0, phi=0.75, f_next=0.75), [0, 1, 2],
    ),
    "line 17 without an extrapolation does not evaluate where it goes": (
        {}, {1.0: 0.86}, Told(Outcome.SEARCH_SUCCEEDED, 0.5, 1.0, phi=0.8, f_next=None), [0, 1],
    ),
    # 0.9 − γ‖d‖²ζ/K = 0.8995 would refuse the estimate 0.9; an extrapolation must still gain it.
    "the first test has no term in gamma": (
        {"f_tilde": 0.9}, {1.0: 0.8999}, Told(Outcome.SEARCH_SUCCEEDED, 0.5, 1.0, phi=0.8, f_next=None), [0, 1],
    ),
    # α̃‖d‖² = 0.5 · 0.0081 ≤ τζ = 0.005.
    "line 15 keeps a small gain and shrinks": (
        {"direction_norm": 0.09}, {1.0: 0.95}, Told(Outcome.SEARCH_SHORT, 0.5, 0.5, phi=0.8, f_next=None), [0, 1],
    ),
    "a search that the guard ends is not small": (
        {"direction_norm": 0.01}, {1.0: 0.8, 2.0: 0.79},
        Told(Outcome.SEARCH_SUCCEEDED, 2.0, 4.0, phi=0.79, f_next=0.79), [0, 1, 2],
    ),
    "line 15 keeps below f_0 after a search that found nothing": (
        {"f_tilde": 0.95}, {}, Told(Outcome.SEARCH_FAILED_KEPT, 0.5, 0.5, phi=0.8, f_next=None), [0],
    ),
    "line 15 rejects above f_0 after a search that found nothing": (
        {"f_tilde": 1.1}, {}, Told(Outcome.SEARCH_FAILED_REJECTED, 0.0, 0.5, phi=0.8, f_next=0.9), [0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision(name):
    changes, values, decision, asked = DECISIONS[name]
    assert decided(values, **changes) == (decision, asked)


@pytest.mark.parametrize("spoilt", [{"f_tilde": math.inf}, {"f_tilde": math.nan}, {"direction_norm": math.nan}])
def test_what_is_not_finite_is_undone_without_an_evaluation(spoilt):
    assert decided({}, **spoilt) == (Told(Outcome.DIVERGED, 0.0, 0.5, phi=0.8, f_next=0.9), [])
