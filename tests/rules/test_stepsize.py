"""The search for a first step size on plain floats."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmalight.rules.stepsize import MOST_TRIALS, choice, next_trial, tempered

F_0 = 1.0


def search(loss, start: float) -> tuple[float, dict[float, float]]:
    tried: dict[float, float] = {}
    zeta: float | None = start
    while zeta is not None:
        tried[zeta] = loss(zeta)
        zeta = next_trial(tried, F_0)
    return choice(tried, F_0), tried


def valley(zeta: float) -> float:
    """Best at 1e-2, nearly as good at 1e-3, nothing gained from 1e-5 down, worse than the start from 1 up."""
    exponent = round(math.log10(zeta))
    return {-2: 0.10, -3: 0.15, -4: 0.6, -1: 0.3, 0: 4.0}.get(exponent, 1.0 if exponent < 0 else math.inf)


@pytest.mark.parametrize("exponent", range(-5, 2))
def test_from_everywhere_the_smallest_that_gains_nearly_as_much_as_the_best_is_found(exponent):
    chosen, tried = search(valley, 10.0**exponent)
    assert round(math.log10(chosen)) == -3
    assert len(tried) <= MOST_TRIALS


def test_of_equal_losses_the_smallest_step_size_counts():
    assert choice({1.0: 0.5, 0.1: 0.5}, F_0) == 0.1


def test_where_nothing_helps_what_harms_least_is_taken_and_the_search_ends():
    """A trained model: every step size raises the loss of so few batches, the smaller the less."""
    chosen, tried = search(lambda zeta: 1.0 + 50.0 * zeta, 1e-2)
    assert chosen == pytest.approx(1e-4)
    assert sorted(tried) == pytest.approx([1e-4, 1e-3, 1e-2])


@pytest.mark.parametrize("exponent", range(-5, 2))
def test_where_hardly_anything_is_gained_the_largest_that_does_no_harm_is_found(exponent):
    """A deep network near the mean of its targets, as measured on California [5x50]."""
    losses = {-5: 0.991, -4: 0.937, -3: 0.941, -2: 1.330, -1: 5.08}
    chosen, _ = search(lambda zeta: losses.get(round(math.log10(zeta)), 1.0 if zeta < 1 else 2000.0), 10.0**exponent)
    assert round(math.log10(chosen)) == -3


def test_none_is_tried_above_what_is_allowed():
    tried = {1e-3: 0.5}
    assert next_trial(tried, F_0, at_most=1e-2) == pytest.approx(1e-2)
    tried[1e-2] = 0.2
    assert next_trial(tried, F_0, at_most=1e-2) is None


def test_what_the_trials_found_is_drawn_down_to_the_usual_but_never_up():
    assert tempered(1e-2, usual=1e-4) == pytest.approx(1e-3)
    assert tempered(1e-4, usual=1e-2) == 1e-4
    assert tempered(1e-2, usual=math.inf) == 1e-2


def test_trials_that_all_fail_end_with_the_smallest():
    chosen, tried = search(lambda _: math.inf, 1.0)
    assert chosen == min(tried)
    assert len(tried) <= MOST_TRIALS


@given(st.lists(st.floats(0.0, 10.0), min_size=MOST_TRIALS, max_size=MOST_TRIALS), st.sampled_from([1e-3, 0.5, 1e2]))
def test_whatever_the_losses_the_search_ends_with_a_step_size_that_was_tried(losses, start):
    source = iter(losses)
    chosen, tried = search(lambda _: next(source), start)
    assert chosen in tried
    assert len(tried) <= MOST_TRIALS
