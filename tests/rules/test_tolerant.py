"""The tolerant watchdog on plain floats: a test a clause, and what holds for every sequence of losses."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmalight.rules.paper import InnerCycle, Known, Outcome
from cmalight.rules.tolerant import PROBATION, RAMP, Tolerance, Watch, tolerant

CONSTANTS = Tolerance(gamma=0.1, theta=0.5, tolerance=1.5, patience=3, growth=1.5)
F_0 = 8.0
KNOWN = Known(f_0=F_0, phi=F_0, f_current=None)


def inner(f_tilde: float, zeta: float = 1.0) -> InnerCycle:
    return InnerCycle(zeta=zeta, f_tilde=f_tilde, direction_norm=1.0, batches=1.0)


def watch(best: float = 4.0, *, since: int = 0, **more) -> Watch:
    return Watch(best, since, **{"moved": True, "ramping": False, **more})


def no_evaluation() -> float:
    raise AssertionError("a full evaluation was made")


def decide(f_tilde: float, before: Watch, *, zeta: float = 1.0, f_end=no_evaluation, f_start=lambda: F_0):
    return tolerant(inner(f_tilde, zeta), KNOWN, before, CONSTANTS, f_start=f_start, f_end=f_end)


def test_a_new_best_is_kept_and_the_step_size_grows():
    decision, after = decide(3.9, watch(4.0, since=2))
    assert (decision.outcome, decision.alpha, decision.zeta_factor) == (Outcome.NEW_BEST, 1.0, 1.5)
    assert (after.best, after.epochs_since_best, decision.phi) == (3.9, 0, 3.9)


def test_a_decrease_below_gamma_zeta_is_no_new_best():
    decision, after = decide(3.91, watch(4.0))
    assert (decision.outcome, decision.zeta_factor, after.best) == (Outcome.TOLERATED, 1.0, 4.0)


def test_as_long_as_every_epoch_is_a_new_best_the_step_size_grows_faster():
    decision, after = decide(3.0, watch(4.0, ramping=True))
    assert (decision.zeta_factor, after.ramping) == (RAMP, True)


def test_without_growth_there_is_no_ramp_either():
    still = Tolerance(gamma=0.1, theta=0.5, tolerance=1.5, patience=3, growth=1.0)
    decision, _ = tolerant(inner(3.0), KNOWN, watch(ramping=True), still, f_start=no_evaluation, f_end=no_evaluation)
    assert decision.zeta_factor == 1.0


def test_the_first_epoch_that_is_no_new_best_ends_the_ramp():
    assert not decide(4.5, watch(4.0, ramping=True))[1].ramping
    assert not decide(7.0, watch(4.0, ramping=True))[1].ramping


def test_a_growth_is_undone_where_the_next_epoch_does_harm():
    decision, after = decide(3.0, watch(4.0))
    assert after.raised == decision.zeta_factor == 1.5
    decision, later = decide(PROBATION * 3.0 + 0.01, after, zeta=1.5)
    assert (decision.outcome, decision.alpha, 1.5 * decision.zeta_factor) == (Outcome.GROWTH_UNDONE, 0.0, 1.0)
    assert (later.best, later.ceiling, later.refusals, later.raised) == (3.0, math.inf, 0, 1.0)
    decision, later = decide(PROBATION * 3.0, after, zeta=1.5)
    assert (decision.outcome, later.raised) == (Outcome.TOLERATED, 1.0)


def test_on_the_ramp_only_progress_stands():
    _, after = decide(3.0, watch(4.0, ramping=True))
    decision, later = decide(3.01, after, zeta=RAMP)
    assert (decision.outcome, decision.zeta_factor * RAMP) == (Outcome.GROWTH_UNDONE, pytest.approx(1.0))
    assert not later.ramping
    assert decide(3.0, after, zeta=RAMP)[0].outcome is Outcome.TOLERATED


@pytest.mark.parametrize("f_tilde", [math.inf, math.nan])
def test_a_growth_that_leads_to_what_is_not_finite_is_undone_like_any_other(f_tilde):
    """So that an epoch which is ended early, before that shows, has the same result."""
    decision, after = decide(f_tilde, watch(4.0, raised=1.5), zeta=1.5)
    assert (decision.outcome, 1.5 * decision.zeta_factor, after.ceiling) == (Outcome.DIVERGED, 1.0, math.inf)


@pytest.mark.parametrize("ceiling", [1.0, 1.0 + 2e-16, 0.9])
def test_a_growth_that_the_ceiling_forbade_has_no_probation(ceiling):
    decision, after = decide(3.0, watch(4.0, ceiling=ceiling))
    assert decision.zeta_factor == 1.0
    assert decide(4.4, after)[0].outcome is Outcome.TOLERATED


def test_a_stricter_tolerance_holds_after_a_growth_too():
    strict = Tolerance(gamma=0.1, theta=0.5, tolerance=1.1, patience=3, growth=1.5)
    decision, _ = tolerant(
        inner(4.6), KNOWN, watch(4.0, raised=1.5), strict, f_start=no_evaluation, f_end=no_evaluation
    )
    assert decision.outcome is Outcome.GROWTH_UNDONE


def test_a_loss_within_the_tolerance_is_kept():
    decision, after = decide(6.0, watch(4.0))
    assert (decision.outcome, decision.alpha, decision.zeta_factor) == (Outcome.TOLERATED, 1.0, 1.0)
    assert (after.best, after.epochs_since_best) == (4.0, 1)


def test_epochs_without_a_new_best_shrink_the_step_size_but_stand():
    decision, after = decide(6.0, watch(4.0, since=2))
    assert (decision.outcome, decision.alpha, decision.zeta_factor) == (Outcome.STAGNATED, 1.0, 0.5)
    assert after.epochs_since_best == 0


def test_a_loss_above_the_tolerance_is_undone():
    decision, after = decide(6.01, watch(4.0, since=1))
    assert (decision.outcome, decision.alpha, decision.zeta_factor) == (Outcome.REFUSED, 0.0, 0.5)
    assert (after.best, after.epochs_since_best, decision.phi) == (4.0, 1, 4.0)


def test_nothing_above_twice_the_start_is_kept_however_tolerant():
    patient = Tolerance(gamma=0.1, theta=0.5, tolerance=9.0, patience=3, growth=1.5)
    for f_tilde, outcome in ((16.0, Outcome.TOLERATED), (16.01, Outcome.REFUSED)):
        decision, _ = tolerant(inner(f_tilde), KNOWN, watch(7.9), patient, f_start=no_evaluation, f_end=no_evaluation)
        assert decision.outcome is outcome


@pytest.mark.parametrize("f_tilde", [math.inf, math.nan])
def test_what_is_not_finite_is_undone(f_tilde):
    decision, after = decide(f_tilde, watch(4.0, ramping=True))
    assert (decision.outcome, decision.alpha, decision.zeta_factor) == (Outcome.DIVERGED, 0.0, 0.5)
    assert after.best == 4.0


@pytest.mark.parametrize("raised", [1.0, 1.5])
def test_weights_that_are_not_finite_after_a_fine_loss_are_a_divergence(raised):
    broken = InnerCycle(zeta=1.0, f_tilde=3.0, direction_norm=math.inf, batches=1.0)
    before = watch(4.0, raised=raised)
    decision, _ = tolerant(broken, KNOWN, before, CONSTANTS, f_start=no_evaluation, f_end=no_evaluation)
    assert (decision.outcome, decision.alpha) == (Outcome.DIVERGED, 0.0)


def test_an_epoch_a_little_above_a_good_start_stands():
    """Fine-tuning: where the batches disagree, f̃ exceeds f(w⁰) for every small ζ."""
    assert decide(8.5, Watch.from_start(F_0))[0].outcome is Outcome.TOLERATED


def test_before_anything_was_accepted_the_true_loss_may_certify_an_epoch():
    decision, after = decide(12.5, Watch.from_start(F_0), f_end=lambda: 7.9)
    assert (decision.outcome, decision.alpha, decision.zeta_factor) == (Outcome.CERTIFIED, 1.0, 1.0)
    assert decision.f_next == 7.9
    assert (after.best, after.ceiling) == (12.5, math.inf)  # from now on compared in the epochs' own terms


def test_an_epoch_that_the_true_loss_does_not_certify_is_undone():
    decision, after = decide(12.5, Watch.from_start(F_0), f_end=lambda: 7.91)
    assert decision.outcome is Outcome.REFUSED
    assert after.best == F_0


def test_the_second_refusal_in_a_row_has_to_be_a_true_one():
    """The last epoch ended far above its own losses: f(w^k) = 7 where best = 4."""
    decision, after = decide(7.0, watch(4.0, refusals=1), f_start=lambda: 7.0, f_end=lambda: 6.9)
    assert (decision.outcome, decision.alpha, decision.zeta_factor) == (Outcome.CERTIFIED, 1.0, 1.0)
    assert (after.best, after.refusals) == (7.0, 0)
    decision, after = decide(7.0, watch(4.0, refusals=1), f_start=lambda: 7.0, f_end=lambda: 6.91)
    assert (decision.outcome, decision.f_next, after.refusals) == (Outcome.REFUSED, 7.0, 2)


@pytest.mark.parametrize("f_tilde", [7.0, math.inf])
def test_what_was_refused_is_not_grown_into_again(f_tilde):
    after = decide(f_tilde, watch(4.0), zeta=1.0)[1]
    assert after.ceiling == 0.5
    assert decide(3.0, after, zeta=0.5)[0].zeta_factor == 1.0
    assert decide(3.0, after, zeta=0.25)[0].zeta_factor == 1.5
    assert decide(f_tilde, watch(4.0, ceiling=0.1), zeta=1.0)[1].ceiling == 0.1


def test_growth_ends_at_the_ceiling():
    assert decide(3.0, watch(4.0, ceiling=1.2))[0].zeta_factor == 1.2
    assert decide(3.0, watch(4.0, ceiling=0.7))[0].zeta_factor == 1.0


def test_a_loss_far_above_the_start_is_not_worth_an_evaluation():
    assert decide(16.01, Watch.from_start(F_0))[0].outcome is Outcome.REFUSED


def test_a_first_refusal_costs_no_evaluation():
    assert decide(7.0, watch(4.0))[0].outcome is Outcome.REFUSED


def test_with_a_negative_best_the_start_is_the_only_bound():
    assert decide(8.0, watch(-1.0))[0].outcome is Outcome.TOLERATED
    assert decide(8.01, watch(-1.0))[0].outcome is Outcome.REFUSED


losses = st.lists(st.floats(0.0, 20.0), min_size=1, max_size=200)


@given(losses)
def test_growth_is_paid_for_by_a_decrease_of_the_best(sequence):
    """Σ γ ζ over the epochs that grew is at most f(w⁰), as long as no epoch is certified: so ζ goes to zero."""
    zeta, state, paid = 1.0, Watch.from_start(F_0), 0.0
    for f_tilde in sequence:
        before = state
        decision, state = decide(f_tilde, before, zeta=zeta, f_end=lambda: math.inf)
        assert state.best <= before.best
        if decision.outcome is Outcome.NEW_BEST:
            paid += CONSTANTS.gamma * zeta
            assert state.best <= before.best - CONSTANTS.gamma * zeta
        else:
            assert decision.zeta_factor <= 1.0
        if decision.alpha:
            assert f_tilde <= 2 * F_0
        zeta *= decision.zeta_factor
    assert paid <= F_0 * (1 + 1e-9)


@given(st.lists(st.tuples(st.floats(0.0, 16.0), st.booleans()), min_size=1, max_size=200))
def test_the_step_size_never_exceeds_the_ceiling_which_every_refusal_lowers(sequence):
    zeta, unraised, state, certified_since = 1.0, 1.0, Watch.from_start(F_0), 0
    for f_tilde, true_loss_fell in sequence:
        before = state
        f_end = (lambda: -math.inf) if true_loss_fell else (lambda: math.inf)
        decision, state = decide(f_tilde, before, zeta=zeta, f_end=f_end)
        unraised, zeta = (zeta if decision.outcome is Outcome.NEW_BEST else unraised), zeta * decision.zeta_factor
        assert zeta <= state.ceiling * (1 + 1e-12)
        if decision.outcome is Outcome.GROWTH_UNDONE:
            assert zeta == pytest.approx(unraised)
            assert state.ceiling == before.ceiling
        elif not decision.alpha:
            certified_since = 0
            assert state.ceiling <= CONSTANTS.theta * before.ceiling
        certified_since += decision.outcome is Outcome.CERTIFIED
        assert certified_since <= 1  # so the best rises as often as there are refusals, at most


@given(losses, st.sampled_from([1.0, 1.5]))
def test_without_a_new_best_the_step_size_shrinks_every_few_epochs(sequence, raised):
    zeta, state = raised, watch(1e-3, raised=raised)
    for number, f_tilde in enumerate(sequence, start=1 if raised == 1.0 else 0):  # the first may end a growth
        decision, state = decide(f_tilde + 1e-3, state, zeta=zeta, f_end=lambda: math.inf)
        zeta *= decision.zeta_factor
        assert zeta <= raised * CONSTANTS.theta ** (number // CONSTANTS.patience)
