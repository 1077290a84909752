"""Every branch of the rules of CMA and IG; numbers to check by hand."""

import math
from dataclasses import replace

import pytest

from cmalight.rules.baselines import DecayRule, MonotoneRule
from cmalight.rules.outcome import Outcome
from cmalight.rules.paper import InnerCycle, Known
from tests.rules.line import Line, Told, told

INNER = InnerCycle(zeta=0.5, f_tilde=0.7, direction_norm=1.0, batches=10.0)
KNOWN = Known(f_0=1.0, phi=0.8, f_current=0.9)
# delta = 1/2 makes the trials 0.5, 1, 2, ...; γζ/K = 0.0005, γ‖d‖²/K = 0.001.
CMA = MonotoneRule(theta=0.75, tau=1e-2, gamma=1e-2, delta=0.5, max_extrapolations=10)


def cma(values: dict[float, float], **changes: float) -> tuple[Told, list[float]]:
    line = Line(values)
    decision = told(CMA.decide(KNOWN, replace(INNER, **changes), line))
    return decision, [alpha for alpha in line.asked if alpha]  # but for f(w^k), which is known


def test_cma_accepts_a_sufficient_decrease_of_the_true_value():
    assert cma({0.5: 0.89}) == (Told(Outcome.ACCEPTED, 0.5, 1.0, phi=0.89, f_next=0.89), [0.5])


@pytest.mark.parametrize("spoilt", [{"f_tilde": math.inf}, {"direction_norm": math.nan}])
def test_cma_undoes_what_is_not_finite_without_an_evaluation(spoilt):
    assert cma({}, **spoilt) == (Told(Outcome.DIVERGED, 0.0, 0.75, phi=0.8, f_next=0.9), [])


def test_cma_small_direction_keeps_a_point_below_the_start_and_knows_its_value():
    decision = Told(Outcome.SMALL_DIRECTION_KEPT, 0.5, 0.75, phi=0.95, f_next=0.95)
    assert cma({0.5: 0.95}, direction_norm=0.005) == (decision, [0.5])


def test_cma_small_direction_undoes_a_point_above_the_start():
    decision = Told(Outcome.SMALL_DIRECTION_REJECTED, 0.0, 0.75, phi=0.9, f_next=0.9)
    assert cma({0.5: 1.1}, direction_norm=0.005) == (decision, [0.5])


def test_cma_search_moves_and_keeps_the_true_value():
    """0.89975 is no decrease by γζ/K, but one by γ‖d‖²ζ/K, for a direction of 0.6 of the length."""
    values = {0.5: 0.89975, 1.0: 0.85, 2.0: 0.86}
    decision = Told(Outcome.SEARCH_SUCCEEDED, 1.0, 1.0, phi=0.85, f_next=0.85)
    assert cma(values, direction_norm=0.6) == (decision, [0.5, 1.0, 2.0])


def test_cma_asks_a_trial_for_a_decrease_in_proportion_to_its_own_length():
    """0.89955 is enough for alpha = 0.5 and less than alpha = 1 asks for, 0.8994."""
    values = {0.5: 0.89975, 1.0: 0.89955}
    decision, asked = cma(values, direction_norm=math.sqrt(0.5))
    assert (decision.alpha, decision.f_next, asked) == (0.5, 0.89975, [0.5, 1.0])


def test_cma_failed_search_below_the_start_stays_where_it_led():
    decision = Told(Outcome.SEARCH_FAILED_KEPT, 0.5, 0.75, phi=0.95, f_next=0.95)
    assert cma({0.5: 0.95}) == (decision, [0.5])


@pytest.mark.parametrize("value", [1.1, math.inf])
def test_cma_failed_search_above_the_start_goes_back(value):
    decision = Told(Outcome.SEARCH_FAILED_REJECTED, 0.0, 0.75, phi=0.9, f_next=0.9)
    assert cma({0.5: value}) == (decision, [0.5])


@pytest.mark.parametrize(("f_tilde", "phi"), [(5.0, 0.8), (0.7, 0.7), (math.inf, 0.8)])
def test_ig_lets_every_epoch_stand_and_decays(f_tilde, phi):
    decision = told(DecayRule(0.2).decide(KNOWN, replace(INNER, f_tilde=f_tilde), Line({})))
    assert decision == Told(Outcome.UNCONTROLLED, 0.5, 0.8, phi=phi, f_next=None)


def test_ig_without_an_objective_has_no_value_to_beat():
    nothing = Known(math.inf, math.inf, None)
    decision = told(DecayRule(0.2).decide(nothing, INNER, Line({})))
    assert math.isnan(decision.phi)


def test_the_decay_of_the_public_code_shrinks_in_proportion_to_the_step_size():
    decision = told(DecayRule(0.5, relative=True).decide(KNOWN, replace(INNER, zeta=0.05), Line({})))
    assert decision.lr_factor == 1.0 - 0.5 * 0.05


def test_both_start_from_the_first_loss():
    assert CMA.init(2.0) == Known(2.0, 2.0, 2.0)
    assert DecayRule(0.5).init(2.0) == Known(2.0, 2.0, None)
