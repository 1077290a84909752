"""Every branch of linesearch.py, by the line of the listing it stands for; numbers to check by hand."""

import math

import pytest

from cmalight.rules.linesearch import SearchResult, edfl, edfl_certified, edfl_light
from tests.rules.line import Line

# delta = 1/2 makes the trials 1, 2, 4, 8; slope 0.1 asks for 0.1 per unit of alpha.
SETTINGS = {"zeta": 1.0, "slope": 0.1, "delta": 0.5, "max_extrapolations": 10}


def test_light_line_3_fails_without_an_evaluation():
    f = Line({})
    assert edfl_light(f, f_start=1.0, f_tilde=0.95, **SETTINGS) == SearchResult(0.0, 1.0, 1.0, None)
    assert f.asked == []


def test_light_line_10_evaluates_the_tentative_point_when_no_extrapolation_is_accepted():
    f = Line({2.0: 0.91, 1.0: 0.85})
    assert edfl_light(f, f_start=1.0, f_tilde=0.9, **SETTINGS) == SearchResult(1.0, 0.85, 1.0, 0.85)
    assert f.asked == [2.0, 1.0]


def test_light_lines_6_and_7_go_on_while_the_trial_is_low_enough_and_not_higher_than_the_last():
    f = Line({2.0: 0.8, 4.0: 0.5, 8.0: 0.55})
    assert edfl_light(f, f_start=1.0, f_tilde=0.9, **SETTINGS) == SearchResult(4.0, 0.5, 1.0, None)
    assert f.asked == [2.0, 4.0, 8.0]


def test_light_line_6_asks_for_a_decrease_at_alpha_not_at_the_trial():
    accepted = edfl_light(Line({2.0: 0.9, 4.0: 1.0}), f_start=1.0, f_tilde=0.9, **SETTINGS)
    assert accepted.alpha == 2.0


def test_light_line_6_refuses_a_trial_that_falls_but_not_enough():
    f = Line({2.0: 0.88, 4.0: 0.85})  # 0.85 is below 0.88, but 1 − 0.1 · 2 = 0.8 was asked for
    result = edfl_light(f, f_start=1.0, f_tilde=0.9, **SETTINGS)
    assert (result.alpha, result.f_hat) == (2.0, 0.88)


def test_the_guard_ends_the_loop_and_says_so():
    f = Line({2.0: 0.8, 4.0: 0.6})
    result = edfl_light(f, f_start=1.0, f_tilde=0.9, **{**SETTINGS, "max_extrapolations": 2})
    assert result == SearchResult(4.0, 0.6, 1.0, None, ended_by_guard=True)
    assert f.asked == [2.0, 4.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_light_a_trial_that_is_not_finite_is_refused(bad):
    result = edfl_light(Line({2.0: bad, 1.0: 0.9}), f_start=1.0, f_tilde=0.9, **SETTINGS)
    assert result.alpha == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_light_an_estimate_that_is_not_finite_is_refused(bad):
    assert edfl_light(Line({}), f_start=1.0, f_tilde=bad, **SETTINGS).alpha == 0.0


def test_certified_line_3_tests_the_true_value():
    f = Line({1.0: 0.95})
    assert edfl_certified(f, f_start=1.0, **SETTINGS) == SearchResult(0.0, 1.0, 1.0, 0.95)
    assert f.asked == [1.0]


def test_certified_line_10_knows_the_tentative_point_already():
    f = Line({1.0: 0.9, 2.0: 0.95})
    assert edfl_certified(f, f_start=1.0, **SETTINGS) == SearchResult(1.0, 0.9, 1.0, 0.9)
    assert f.asked == [1.0, 2.0]


def test_certified_an_accepted_extrapolation_decreases_by_gamma_delta_alpha():
    result = edfl_certified(Line({1.0: 0.9, 2.0: 0.9, 4.0: 0.95}), f_start=1.0, **SETTINGS)
    assert result.alpha == 2.0
    assert result.f_hat <= 1.0 - 0.1 * 0.5 * result.alpha


def test_cma_rejects_without_an_evaluation_of_its_own():
    f = Line({})
    assert edfl(f, f_start=1.0, f_end=0.95, **SETTINGS) == SearchResult(0.0, 1.0, 1.0, 0.95)
    assert f.asked == []


def test_cma_asks_for_a_decrease_at_the_trial():
    refused = edfl(Line({2.0: 0.85}), f_start=1.0, f_end=0.9, **SETTINGS)
    assert refused == SearchResult(1.0, 0.9, 1.0, 0.9)
    accepted = edfl(Line({2.0: 0.8, 4.0: 0.7}), f_start=1.0, f_end=0.9, **SETTINGS)
    assert accepted == SearchResult(2.0, 0.8, 1.0, 0.9)
