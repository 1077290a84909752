"""Every branch of paper.py, by the line of the listing it stands for."""

import math
from dataclasses import replace

import pytest

from cmalight.rules.linesearch import SearchResult
from cmalight.rules.outcome import Outcome
from cmalight.rules.paper import InnerCycle, Known, PaperRule
from tests.rules.line import Line, Told, told

CONSTANTS = {"theta": 0.75, "tau": 0.01, "gamma": 0.01, "delta": 0.5, "max_extrapolations": 10}
KNOWN = Known(f_0=1.0, phi=0.8, f_current=0.9)


def inner(f_tilde=0.7, direction_norm=2.0, zeta=0.5, batches=10.0):
    return InnerCycle(zeta=zeta, f_tilde=f_tilde, direction_norm=direction_norm, batches=batches)


def found(alpha, f_hat, *, f_step=None, guard=False):
    return SearchResult(alpha, f_hat, f_start=0.9, f_step=f_step, ended_by_guard=guard)


def decide(cycle, search=None, *, certified=False, known=KNOWN):
    class Searched(PaperRule):
        def search(self, inner, ask):
            assert search is not None, "line 13 was not to be reached"
            return search

    return told(Searched(**CONSTANTS, certified=certified).decide(known, cycle, None))


def test_line_6_needs_gamma_zeta_over_k_below_phi():
    just_enough = 0.8 - 0.01 * 0.5 / 10
    assert decide(inner(f_tilde=just_enough)).outcome is Outcome.ACCEPTED
    not_enough = math.nextafter(just_enough, 1.0)
    assert decide(inner(f_tilde=not_enough), found(0.0, 0.9)).outcome is not Outcome.ACCEPTED


def test_line_6_refuses_an_estimate_above_the_start_even_below_phi():
    known = Known(f_0=0.5, phi=0.8, f_current=0.9)
    assert decide(inner(f_tilde=0.7), found(0.0, 0.9), known=known).outcome is Outcome.SEARCH_FAILED_REJECTED


@pytest.mark.parametrize("direction_norm", [2.0, 0.005], ids=["line 15", "line 10"])
def test_an_estimate_that_differs_from_the_start_by_rounding_is_not_above_it(direction_norm):
    known = Known(f_0=0.5, phi=0.4, f_current=0.5)
    for f_tilde, alpha in ((0.5 * (1 + 1e-7), 0.5), (0.5 * (1 + 1e-5), 0.0)):
        assert decide(inner(f_tilde, direction_norm), found(0.0, 0.5), known=known).alpha == alpha


def test_line_8_is_an_inequality_with_equality():
    assert decide(inner(f_tilde=0.95, direction_norm=0.01 * 0.5)).outcome is Outcome.SMALL_DIRECTION_KEPT
    assert decide(inner(f_tilde=0.95, direction_norm=0.00501), found(0.0, 0.9)).outcome is Outcome.SEARCH_FAILED_KEPT


LOW = Known(f_0=0.5, phi=0.4, f_current=0.9)
DECISIONS = {
    # The epoch, what the search found, and the decision; the certified ones move above the start.
    "line 7 accepts when the estimate fell enough": (
        inner(f_tilde=0.7), None, Told(Outcome.ACCEPTED, 0.5, 1.0, phi=0.7, f_next=None),
    ),
    "line 10 keeps a point below the start": (
        inner(f_tilde=0.95, direction_norm=0.005), None,
        Told(Outcome.SMALL_DIRECTION_KEPT, 0.5, 0.75, phi=0.8, f_next=None),
    ),
    "line 10 undoes a point above the start": (
        inner(f_tilde=1.1, direction_norm=0.005), None,
        Told(Outcome.SMALL_DIRECTION_REJECTED, 0.0, 0.75, phi=0.8, f_next=0.9),
    ),
    "line 15 moves by a short search below the start": (
        inner(f_tilde=0.85, direction_norm=0.05), found(0.6, 0.82),
        Told(Outcome.SEARCH_SHORT, 0.6, 0.75, phi=0.8, f_next=0.82),
    ),
    "line 15 undoes a short search above the start": (
        inner(f_tilde=0.85, direction_norm=0.05), found(0.6, 1.2),
        Told(Outcome.SEARCH_FAILED_REJECTED, 0.0, 0.75, phi=0.8, f_next=0.9),
    ),
    "line 15 keeps the tentative point of a failed search below the start": (
        inner(f_tilde=0.95), found(0.0, 0.9),
        Told(Outcome.SEARCH_FAILED_KEPT, 0.5, 0.75, phi=0.8, f_next=None),
    ),
    "line 15 undoes a failed search above the start": (
        inner(f_tilde=1.1), found(0.0, 0.9),
        Told(Outcome.SEARCH_FAILED_REJECTED, 0.0, 0.75, phi=0.8, f_next=0.9),
    ),
    "line 17 moves below the start and keeps the step size": (
        inner(f_tilde=0.85), found(0.6, 0.7), Told(Outcome.SEARCH_SUCCEEDED, 0.6, 1.0, phi=0.7, f_next=0.7),
    ),
    "line 17 undoes above the start and shrinks": (
        inner(f_tilde=0.85), found(0.6, 1.2), Told(Outcome.SEARCH_REJECTED, 0.0, 0.75, phi=0.8, f_next=0.9),
    ),
    "certified line 15 moves by a decrease above the start": (
        inner(f_tilde=0.85, direction_norm=0.05), found(0.6, 0.82),
        Told(Outcome.SEARCH_SHORT, 0.6, 0.75, phi=0.4, f_next=0.82),
    ),
    "certified line 17 moves by a decrease above the start": (
        inner(f_tilde=0.85), found(0.6, 0.7), Told(Outcome.SEARCH_SUCCEEDED, 0.6, 1.0, phi=0.4, f_next=0.7),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision(name):
    cycle, search, decision = DECISIONS[name]
    certified = name.startswith("certified")
    assert decide(cycle, search, certified=certified, known=LOW if certified else KNOWN) == decision


def test_line_18_takes_the_least_of_the_three():
    assert decide(inner(f_tilde=0.85), found(0.6, 0.7)).phi == 0.7
    known = Known(f_0=0.5, phi=0.8, f_current=0.9)
    assert decide(inner(f_tilde=0.6), found(0.0, 0.9), known=known).phi == 0.6
    assert decide(inner(f_tilde=0.95), found(0.0, 0.9)).phi == 0.8


def test_a_search_ended_by_the_guard_continues_with_line_17():
    decision = decide(inner(f_tilde=0.85, direction_norm=0.05), found(0.6, 0.82, guard=True))
    assert decision.outcome is Outcome.SEARCH_SUCCEEDED
    assert decision.lr_factor == 1.0


def test_line_14_holds_for_a_failed_search_even_where_the_squared_norm_overflows():
    assert decide(inner(f_tilde=0.95, direction_norm=1e200), found(0.0, 0.9)).outcome is Outcome.SEARCH_FAILED_KEPT


def test_certified_failed_search_knows_the_value_at_the_tentative_point_it_keeps():
    decision = decide(inner(f_tilde=0.95), found(0.0, 0.9, f_step=0.91), certified=True)
    assert decision == Told(Outcome.SEARCH_FAILED_KEPT, 0.5, 0.75, phi=0.8, f_next=0.91)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("which", ["f_tilde", "direction_norm"])
def test_an_epoch_that_is_not_finite_is_undone_without_a_search(which, value):
    decision = decide(inner(**{which: value}))
    assert decision == Told(Outcome.DIVERGED, 0.0, 0.75, phi=0.8, f_next=0.9)


def ruled(cycle, asked, *, certified, known=KNOWN):
    return told(PaperRule(**CONSTANTS, certified=certified).decide(known, cycle, asked))


ACCEPTED = inner(f_tilde=0.7)
SMALL = inner(f_tilde=0.95, direction_norm=0.005)
LINE_22 = Told(Outcome.UNCONFIRMED, 0.0, 0.75, phi=0.8, f_next=0.9)


@pytest.mark.parametrize("cycle", [ACCEPTED, SMALL], ids=["line 7", "10"])
def test_line_21_the_certified_search_evaluates_what_the_estimate_kept(cycle):
    asked = Line({0.5: 1.0})
    decision = ruled(cycle, asked, certified=True)
    assert (decision.alpha, decision.f_next) == (0.5, 1.0)
    assert asked.asked == [0.5]
    for value in (1.01, math.inf, math.nan):
        assert ruled(cycle, Line({0.5: value}), certified=True) == LINE_22


@pytest.mark.parametrize("cycle", [ACCEPTED, SMALL], ids=["line 7", "10"])
def test_line_21_the_light_search_believes_the_estimate_of_several_batches(cycle):
    asked = Line({})
    assert ruled(cycle, asked, certified=False).alpha == 0.5
    assert asked.asked == []


@pytest.mark.parametrize("certified", [False, True])
def test_line_21_one_batch_is_confirmed_by_an_evaluation(certified):
    cycle = inner(f_tilde=0.7, batches=1.0)
    kept = ruled(cycle, Line({0.5: 0.6}), certified=certified)
    assert kept == Told(Outcome.ACCEPTED, 0.5, 1.0, phi=0.7, f_next=0.6)
    for value in (1.01, math.inf, math.nan):
        assert ruled(cycle, Line({0.5: value}), certified=certified) == LINE_22


def test_line_21_what_the_certified_search_has_evaluated_is_not_evaluated_again():
    """The search failed, f̃ keeps the point on line 15, and f there is known."""
    cycle = inner(f_tilde=0.85)
    asked = Line({0.5: 0.95})
    assert ruled(cycle, asked, certified=True).outcome is Outcome.SEARCH_FAILED_KEPT
    assert asked.asked == [0.0, 0.5]
    assert ruled(cycle, Line({0.5: 1.2}), certified=True).outcome is Outcome.UNCONFIRMED


@pytest.mark.parametrize(("certified", "batches"), [(True, 4.0), (True, 1.0), (False, 1.0)])
def test_line_22_keeps_what_the_search_has_evaluated_at_the_point_it_goes_back_to(certified, batches):
    nothing_known = replace(KNOWN, f_current=None)
    cycle = inner(f_tilde=0.95, batches=batches)
    decision = ruled(cycle, Line({0.5: 1.2}), certified=certified, known=nothing_known)
    assert (decision.outcome, decision.f_next) == (Outcome.UNCONFIRMED, 0.9)


def test_line_21_what_a_search_found_is_not_asked_about():
    asked = Line({0.5: 0.6, 1.0: 0.5, 2.0: 0.7})
    decision = ruled(inner(f_tilde=0.85), asked, certified=True)
    assert (decision.outcome, decision.alpha) == (Outcome.SEARCH_SUCCEEDED, 1.0)
    assert asked.asked == [0.0, 0.5, 1.0, 2.0]
    light = Line({1.0: 0.95, 0.5: 0.84})
    assert ruled(inner(f_tilde=0.85), light, certified=False).outcome is Outcome.SEARCH_SUCCEEDED
    assert light.asked == [0.0, 1.0, 0.5]
