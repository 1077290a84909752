"""Every branch of coff.py; numbers to check by hand."""

import math
from dataclasses import replace

import pytest

from cmalight.rules.coff import CoffRule
from cmalight.rules.epochs import Decision, InnerCycle, Known
from cmalight.rules.outcome import Outcome
from cmalight.rules.paper import Constants

INNER = InnerCycle(zeta=0.5, f_tilde=0.85, direction_norm=1.0, batches=10.0)
KNOWN = Known(f_0=1.0, phi=0.8, f_current=0.9)
# delta = 1/2 makes the trials 1, 2, 4, ...; γ‖d‖²/K = 0.001.
COFF = CoffRule(Constants(theta=0.5, tau=1e-2, gamma=1e-2), delta=0.5, max_extrapolations=2)


class Line:
    """f(w^k + alpha d) from a table; f(w^k) is asked for only where the search begins."""

    def __init__(self, values: dict[float, float]) -> None:
        self.values = values
        self.asked: list[float] = []

    def f_start(self) -> float:
        self.asked.append(0.0)
        return 0.9

    def f_at(self, alpha: float) -> float:
        self.asked.append(alpha)
        return self.values[alpha]


def decided(values: dict[float, float], **changes: float) -> tuple[Decision, list[float]]:
    line = Line(values)
    decision = COFF.decide(KNOWN, replace(INNER, **changes), line)
    return decision, line.asked


def test_the_first_loss_is_the_first_to_beat():
    assert COFF.init(2.0) == Known(2.0, 2.0, 2.0)


def test_line_7_accepts_on_the_estimate():
    assert decided({}, f_tilde=0.7) == (Decision(Outcome.ACCEPTED, 0.5, 1.0, phi=0.7, f_next=None), [])


@pytest.mark.parametrize("spoilt", [{"f_tilde": math.inf}, {"f_tilde": math.nan}, {"direction_norm": math.nan}])
def test_what_is_not_finite_is_undone_without_an_evaluation(spoilt):
    assert decided({}, **spoilt) == (Decision(Outcome.DIVERGED, 0.0, 0.5, phi=0.8, f_next=0.9), [])


@pytest.mark.parametrize(
    ("f_tilde", "outcome", "alpha", "f_next"),
    [
        (0.95, Outcome.SMALL_DIRECTION_KEPT, 0.5, None),
        (1.1, Outcome.SMALL_DIRECTION_REJECTED, 0.0, 0.9),
    ],
)
def test_line_10_shrinks(f_tilde, outcome, alpha, f_next):
    decision = Decision(outcome, alpha, 0.5, phi=0.8, f_next=f_next)
    assert decided({}, f_tilde=f_tilde, direction_norm=0.005) == (decision, [])


def test_line_10_takes_a_lower_estimate_over_as_the_value_to_beat():
    """0.7999 is no decrease by γζ/K = 0.0005 · 0.005, but it is below φ."""
    decision, _ = decided({}, f_tilde=0.7999, direction_norm=0.005)
    assert (decision.outcome, decision.phi) == (Outcome.SMALL_DIRECTION_KEPT, 0.7999)


def test_line_17_grows_the_learning_rate_to_the_step_that_was_found():
    decision = Decision(Outcome.SEARCH_SUCCEEDED, 1.0, 2.0, phi=0.75, f_next=0.75)
    assert decided({1.0: 0.75, 2.0: 0.76}) == (decision, [0.0, 1.0, 2.0])


def test_line_17_without_an_extrapolation_does_not_evaluate_where_it_goes():
    decision = Decision(Outcome.SEARCH_SUCCEEDED, 0.5, 1.0, phi=0.8, f_next=None)
    assert decided({1.0: 0.86}) == (decision, [0.0, 1.0])


def test_the_first_test_has_no_term_in_gamma():
    """0.9 − γ‖d‖²ζ/K = 0.8995 would refuse the estimate 0.9; an extrapolation must still gain it."""
    decision, asked = decided({1.0: 0.8999}, f_tilde=0.9)
    assert (decision.outcome, decision.alpha, asked) == (Outcome.SEARCH_SUCCEEDED, 0.5, [0.0, 1.0])


def test_line_15_keeps_a_small_gain_and_shrinks():
    """α̃‖d‖² = 0.5 · 0.0081 ≤ τζ = 0.005."""
    decision = Decision(Outcome.SEARCH_SHORT, 0.5, 0.5, phi=0.8, f_next=None)
    assert decided({1.0: 0.95}, direction_norm=0.09) == (decision, [0.0, 1.0])


def test_a_search_that_the_guard_ends_is_not_small():
    decision = Decision(Outcome.SEARCH_SUCCEEDED, 2.0, 4.0, phi=0.79, f_next=0.79)
    assert decided({1.0: 0.8, 2.0: 0.79}, direction_norm=0.01) == (decision, [0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("f_tilde", "outcome", "alpha", "f_next"),
    [
        (0.95, Outcome.SEARCH_FAILED_KEPT, 0.5, None),
        (1.1, Outcome.SEARCH_FAILED_REJECTED, 0.0, 0.9),
    ],
)
def test_line_15_after_a_search_that_found_nothing(f_tilde, outcome, alpha, f_next):
    decision = Decision(outcome, alpha, 0.5, phi=0.8, f_next=f_next)
    assert decided({}, f_tilde=f_tilde) == (decision, [0.0])
