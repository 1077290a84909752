"""Every branch of paper.py, by the line of the listing it stands for."""

import math

import pytest

from cmalight.rules import paper
from cmalight.rules.linesearch import SearchResult
from cmalight.rules.paper import Constants, InnerCycle, Known, Outcome

CONSTANTS = Constants(theta=0.75, tau=0.01, gamma=0.01)
KNOWN = Known(f_0=1.0, phi=0.8, f_current=0.9)


def inner(f_tilde=0.7, direction_norm=2.0, zeta=0.5, batches=10.0):
    return InnerCycle(zeta=zeta, f_tilde=f_tilde, direction_norm=direction_norm, batches=batches)


def found(alpha, f_hat, *, f_step=None, guard=False):
    return SearchResult(alpha, f_hat, f_start=0.9, f_step=f_step, ended_by_guard=guard)


def decide(cycle, search=None, *, certified=False, known=KNOWN):
    def run():
        assert search is not None, "line 13 was not to be reached"
        return search

    return paper.cmalight(cycle, known, CONSTANTS, certified=certified, search=run)


def test_line_7_accepts_when_the_estimate_fell_enough():
    decision = decide(inner(f_tilde=0.7))
    assert decision == paper.Decision(Outcome.ACCEPTED, 0.5, 1.0, phi=0.7, f_next=None)


def test_line_6_needs_gamma_zeta_over_k_below_phi():
    just_enough = 0.8 - 0.01 * 0.5 / 10
    assert decide(inner(f_tilde=just_enough)).outcome is Outcome.ACCEPTED
    not_enough = math.nextafter(just_enough, 1.0)
    assert decide(inner(f_tilde=not_enough), found(0.0, 0.9)).outcome is not Outcome.ACCEPTED


def test_line_6_refuses_an_estimate_above_the_start_even_below_phi():
    known = Known(f_0=0.5, phi=0.8, f_current=0.9)
    assert decide(inner(f_tilde=0.7), found(0.0, 0.9), known=known).outcome is Outcome.SEARCH_FAILED_REJECTED


def test_line_10_small_direction_keeps_a_point_below_the_start():
    decision = decide(inner(f_tilde=0.95, direction_norm=0.005))
    assert decision == paper.Decision(Outcome.SMALL_DIRECTION_KEPT, 0.5, 0.75, phi=0.8, f_next=None)


def test_line_10_small_direction_undoes_a_point_above_the_start():
    decision = decide(inner(f_tilde=1.1, direction_norm=0.005))
    assert decision == paper.Decision(Outcome.SMALL_DIRECTION_REJECTED, 0.0, 0.75, phi=0.8, f_next=0.9)


def test_line_8_is_an_inequality_with_equality():
    assert decide(inner(f_tilde=0.95, direction_norm=0.01 * 0.5)).outcome is Outcome.SMALL_DIRECTION_KEPT
    assert decide(inner(f_tilde=0.95, direction_norm=0.00501), found(0.0, 0.9)).outcome is Outcome.SEARCH_FAILED_KEPT


def test_line_15_moves_by_a_short_search_below_the_start():
    decision = decide(inner(f_tilde=0.85, direction_norm=0.05), found(0.6, 0.82))
    assert decision == paper.Decision(Outcome.SEARCH_SHORT, 0.6, 0.75, phi=0.8, f_next=0.82)


def test_line_15_undoes_a_short_search_above_the_start():
    decision = decide(inner(f_tilde=0.85, direction_norm=0.05), found(0.6, 1.2))
    assert decision == paper.Decision(Outcome.SEARCH_FAILED_REJECTED, 0.0, 0.75, phi=0.8, f_next=0.9)


def test_line_15_keeps_the_tentative_point_of_a_failed_search_below_the_start():
    decision = decide(inner(f_tilde=0.95), found(0.0, 0.9))
    assert decision == paper.Decision(Outcome.SEARCH_FAILED_KEPT, 0.5, 0.75, phi=0.8, f_next=None)


def test_line_15_undoes_a_failed_search_above_the_start():
    decision = decide(inner(f_tilde=1.1), found(0.0, 0.9))
    assert decision == paper.Decision(Outcome.SEARCH_FAILED_REJECTED, 0.0, 0.75, phi=0.8, f_next=0.9)


def test_line_17_moves_below_the_start_and_keeps_the_step_size():
    decision = decide(inner(f_tilde=0.85), found(0.6, 0.7))
    assert decision == paper.Decision(Outcome.SEARCH_SUCCEEDED, 0.6, 1.0, phi=0.7, f_next=0.7)


def test_line_17_undoes_above_the_start_and_shrinks():
    decision = decide(inner(f_tilde=0.85), found(0.6, 1.2))
    assert decision == paper.Decision(Outcome.SEARCH_REJECTED, 0.0, 0.75, phi=0.8, f_next=0.9)


def test_line_18_takes_the_least_of_the_three():
    assert decide(inner(f_tilde=0.85), found(0.6, 0.7)).phi == 0.7
    known = Known(f_0=0.5, phi=0.8, f_current=0.9)
    assert decide(inner(f_tilde=0.6), found(0.0, 0.9), known=known).phi == 0.6
    assert decide(inner(f_tilde=0.95), found(0.0, 0.9)).phi == 0.8


def test_a_search_ended_by_the_guard_continues_with_line_17():
    decision = decide(inner(f_tilde=0.85, direction_norm=0.05), found(0.6, 0.82, guard=True))
    assert decision.outcome is Outcome.SEARCH_SUCCEEDED
    assert decision.zeta_factor == 1.0


def test_line_14_holds_for_a_failed_search_even_where_the_squared_norm_overflows():
    assert decide(inner(f_tilde=0.95, direction_norm=1e200), found(0.0, 0.9)).outcome is Outcome.SEARCH_FAILED_KEPT


def test_certified_line_15_moves_by_a_certified_decrease_above_the_start():
    known = Known(f_0=0.5, phi=0.4, f_current=0.9)
    decision = decide(inner(f_tilde=0.85, direction_norm=0.05), found(0.6, 0.82), certified=True, known=known)
    assert decision == paper.Decision(Outcome.SEARCH_SHORT, 0.6, 0.75, phi=0.4, f_next=0.82)


def test_certified_line_17_moves_by_a_certified_decrease_above_the_start():
    known = Known(f_0=0.5, phi=0.4, f_current=0.9)
    decision = decide(inner(f_tilde=0.85), found(0.6, 0.7), certified=True, known=known)
    assert decision == paper.Decision(Outcome.SEARCH_SUCCEEDED, 0.6, 1.0, phi=0.4, f_next=0.7)


def test_certified_failed_search_knows_the_value_at_the_tentative_point_it_keeps():
    decision = decide(inner(f_tilde=0.95), found(0.0, 0.9, f_step=0.91), certified=True)
    assert decision == paper.Decision(Outcome.SEARCH_FAILED_KEPT, 0.5, 0.75, phi=0.8, f_next=0.91)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("which", ["f_tilde", "direction_norm"])
def test_an_epoch_that_is_not_finite_is_undone_without_a_search(which, value):
    decision = decide(inner(**{which: value}))
    assert decision == paper.Decision(Outcome.DIVERGED, 0.0, 0.75, phi=0.8, f_next=0.9)


def test_early_rejection_gives_phi_what_line_18_would():
    decision = paper.rejected_early(0.75, KNOWN, CONSTANTS)
    assert decision == paper.Decision(Outcome.REJECTED_EARLY, 0.0, 0.75, phi=0.75, f_next=0.75)


def test_stalled_below_rounding_or_without_moving():
    ordinary = {"zeta": 0.1, "zeta_0": 0.5, "rounding": 1e-7, "epochs_still": 0, "patience": 30}
    assert not paper.has_stalled(**ordinary)
    assert paper.has_stalled(**{**ordinary, "zeta": 1e-8})
    assert paper.has_stalled(**{**ordinary, "epochs_still": 30})


def test_a_huge_first_step_size_does_not_make_an_ordinary_one_look_like_rounding():
    assert not paper.has_stalled(zeta=0.01, zeta_0=1e6, rounding=1e-7, epochs_still=0, patience=30)


def test_an_outcome_reads_by_itself_and_names_its_line():
    assert str(Outcome.SEARCH_SUCCEEDED) == "line search found a better point: moved (line 17)"
    assert {outcome.line for outcome in Outcome} == {5, 7, 10, 15, 17, 22} | {34, 37, 38, 40}
