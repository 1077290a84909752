"""Every branch of tolerant.py, by the line of the listing in docs/understand/controlled.md; numbers by hand."""

import math
from dataclasses import replace

import pytest

from cmalight.rules import tolerant
from cmalight.rules.outcome import Outcome
from cmalight.rules.rule import Decision, InnerCycle, Known
from cmalight.rules.tolerant import Remembered, Settings, TolerantRule

RULE = TolerantRule(Settings(usual=0.01, growth=2.0, tolerance=0.1, theta=0.5, decay=0.4, window=200))
UNKNOWN_USUAL = TolerantRule(replace(RULE.settings, usual=math.inf))
KNOWN = Known(f_0=1.0, phi=0.9, f_current=None)
# ζ is what is usual, the first window led to 0.8, and nothing was refused.
MEMORY = Remembered(low=0.8, scale=0.8, usual_lr=0.01, batches_judged=100.0, starting=0)
STARTING = replace(MEMORY, starting=1, scale=math.inf)
FIRST = Remembered(low=1.0, usual_lr=0.01)
NOTHING_USUAL = replace(STARTING, usual_lr=math.inf)


class Sample:
    """f_S before and after; nothing else may be asked for."""

    def __init__(self, after: float, before: float | None = None) -> None:
        self.after, self.before = after, before

    def sample_after(self) -> float:
        return self.after

    def sample_before(self) -> float:
        assert self.before is not None, "f_S(w^k) was not to be asked for"
        return self.before


def judged(
    after, memory=MEMORY, *, before=None, rule=RULE, zeta=0.01, f_tilde=0.7, share=None, known=KNOWN, batches=32.0
):
    inner = InnerCycle(zeta=zeta, f_tilde=f_tilde, direction_norm=1.0, batches=batches, share=share)
    return rule.decide(inner, known, memory, Sample(after, before))


def test_line_31_begins_at_what_is_usual_at_most():
    assert RULE.begins_at(0.5) == 0.01
    assert RULE.begins_at(1e-4) == 1e-4
    assert UNKNOWN_USUAL.begins_at(0.5) == 0.5


def test_line_31_remembers_where_it_began():
    assert RULE.fresh(1.0, 0.01) == Remembered(low=1.0, usual_lr=0.01, starting=0)
    assert RULE.fresh(1.0, 0.001).starting
    assert UNKNOWN_USUAL.fresh(1.0, 10.0).starting


def test_line_32_rises_step_by_step_and_without_a_budget_stays():
    steps = tolerant.RISE_STEPS
    assert RULE.factor(None, 0) == 1 / steps
    assert RULE.factor(None, steps // 2 - 1) == 0.5
    assert RULE.factor(None, steps - 1) == RULE.factor(None, 10**6) == 1.0


def test_line_32_rises_sooner_in_a_short_budget_and_ends_at_zero():
    assert RULE.factor(tolerant.RISE_SHARE / 2, 0) == 0.5
    assert RULE.factor(tolerant.RISE_SHARE, 0) == 1.0
    assert RULE.factor(0.6, 10**6) == 1.0
    assert RULE.factor(0.8, 10**6) == pytest.approx(0.5)
    assert RULE.factor(1.0, 10**6) == 0.0


LATER = replace(MEMORY, batches_judged=1e6)


@pytest.mark.parametrize(
    ("memory", "batches", "window"),
    [
        (LATER, 50, None),  # an epoch that is short enough
        (LATER, 200, None),
        (LATER, 201, 101),  # two equal parts
        (LATER, 1000, 200),
        (LATER, 1001, 167),  # six
        (LATER, None, 200),  # nobody knows how long it is
        (FIRST, None, tolerant.FIRST),
        (FIRST, 1000, tolerant.FIRST),
        (FIRST, tolerant.FIRST, None),
        (replace(FIRST, batches_judged=800.0), 1000, round(800 * tolerant.PART)),
    ],
)
def test_line_33_judges_epochs_or_equal_parts_and_sooner_at_first(memory, batches, window):
    assert RULE.window(memory, batches) == window


def test_line_34_keeps_what_is_not_far_above_the_lowest():
    decision, memory = judged(0.85)
    assert decision == Decision(Outcome.KEPT, 0.01, 1.0, phi=0.8, f_next=None)
    assert (memory.low, memory.windows_since_low, memory.batches_judged) == (0.8, 1, 132.0)


def test_line_34_a_lower_loss_is_the_new_low():
    decision, memory = judged(0.75)
    assert decision.phi == memory.low == 0.75
    assert memory.windows_since_low == 0


@pytest.mark.parametrize("after", [0.881, math.inf])
def test_line_40_undoes_what_is_far_above_the_lowest_and_bars_growth(after):
    """low + tolerance · scale = 0.88."""
    decision, memory = judged(after, before=0.87)
    assert decision == Decision(Outcome.REFUSED, 0.0, 0.5, phi=0.9, f_next=None)
    assert (memory.wait, memory.due, memory.low) == (1, 1, 0.8)
    assert judged(after, memory, before=0.87)[1].wait == 3
    assert judged(after, replace(memory, wait=3), before=0.87)[1].due == 7


def test_line_34_keeps_what_is_no_higher_than_where_it_began():
    """Else from a point that was kept while no bound was known every window would be refused, though it leads down."""
    assert judged(0.95, before=0.95)[0].outcome is Outcome.KEPT
    assert judged(0.95, before=0.94)[0].outcome is Outcome.REFUSED


def test_line_34_tolerates_more_in_windows_of_few_batches():
    """low + tolerance · scale · 32/16 = 0.96."""
    assert judged(0.95, batches=16.0)[0].outcome is Outcome.KEPT
    assert judged(0.97, batches=16.0, before=0.9)[0].outcome is Outcome.REFUSED
    assert judged(0.88, batches=1000.0)[0].outcome is Outcome.KEPT
    assert judged(0.89, batches=1000.0, before=0.85)[0].outcome is Outcome.REFUSED


def test_line_34_keeps_nothing_above_the_start_once_something_is_gained():
    gained = replace(MEMORY, low=tolerant.LEVEL, scale=3.0)
    assert judged(1.0, gained)[0].outcome is Outcome.KEPT
    assert judged(math.nextafter(1.0, 2.0), gained)[0].outcome is Outcome.REFUSED


def test_line_34_until_then_a_little_above_it_is_kept():
    """On a plateau from the start everything ends a little above it; refusing that would shrink steps to nothing."""
    plateau = replace(MEMORY, low=0.98, scale=1.0)
    assert judged(1.05, plateau)[0].outcome is Outcome.KEPT
    assert judged(1.06, plateau)[0].outcome is Outcome.REFUSED
    assert judged(1.05, plateau, batches=1.0)[0].outcome is Outcome.REFUSED  # a gradient of all the data has no noise


def test_line_34_while_the_step_size_goes_to_zero_it_may_only_come_down_from_there():
    plateau = replace(MEMORY, low=0.98, scale=1.0)
    assert judged(1.03, plateau, before=1.04, share=0.7)[0].outcome is Outcome.KEPT
    assert judged(1.03, plateau, before=1.02, share=0.7)[0].outcome is Outcome.REFUSED
    assert judged(1.03, plateau, before=1.02, share=0.3)[0].outcome is Outcome.KEPT


@pytest.mark.parametrize("f_tilde", [math.inf, math.nan])
def test_line_34_undoes_what_is_not_finite_without_an_evaluation(f_tilde):
    decision, _ = judged(math.nan, f_tilde=f_tilde)
    assert decision == Decision(Outcome.DIVERGED, 0.0, 0.5, phi=0.9, f_next=None)


def test_line_34_with_negative_losses_the_tolerance_is_a_length():
    negative = replace(MEMORY, low=-1.0, scale=-0.8)
    known = replace(KNOWN, f_0=-0.5)
    assert judged(-0.93, negative, known=known)[0].outcome.keeps
    assert judged(-0.91, negative, known=known, before=-0.95)[0].outcome is Outcome.REFUSED


def test_line_37_with_negative_losses_nothing_grows():
    """A share of a negative loss is higher than the loss itself, so that being below it says nothing."""
    negative = replace(MEMORY, low=-1.0, scale=-0.8)
    assert judged(-1.05, negative, known=replace(KNOWN, f_0=-0.5))[0].outcome is Outcome.KEPT


def test_line_35_rises_to_what_is_usual_as_long_as_nothing_does_harm():
    decision, memory = judged(0.7, STARTING, before=0.75, zeta=1e-4)
    assert decision == Decision(Outcome.GROWN, 1e-4, tolerant.START, phi=0.7, f_next=None)
    assert (memory.starting, memory.scale) == (1, math.inf)
    decision, memory = judged(0.6, memory, before=0.7, zeta=5e-3)
    assert decision.zeta_factor == pytest.approx(2.0)
    assert memory.starting == 0


@pytest.mark.parametrize("zeta", [5e-3, 3e-3, 1e-3])
def test_line_35_the_start_ends_at_what_is_usual_also_where_the_product_is_rounded_down(zeta):
    rule = TolerantRule(Settings(usual=7e-3))
    memory = rule.fresh(1.0, zeta)
    decision, memory = judged(0.5, memory, before=1.0, rule=rule, zeta=zeta)
    assert decision.zeta_factor == 7e-3 / zeta
    assert memory.starting == 0


def test_line_35_rises_without_end_where_nothing_is_usual():
    decision, memory = judged(0.7, NOTHING_USUAL, before=0.75, zeta=100.0, rule=UNKNOWN_USUAL)
    assert decision.zeta_factor == tolerant.START
    assert memory.starting


def test_line_39_at_the_start_a_window_that_ends_above_its_beginning_is_the_end_of_the_rise():
    decision, memory = judged(0.76, STARTING, before=0.75, zeta=1e-3)
    assert decision == Decision(Outcome.REFUSED, 0.0, 1 / tolerant.START, phi=0.9, f_next=None)
    assert (memory.starting, memory.wait, memory.due, memory.usual_lr) == (0, 1, 1, 0.01)


def test_line_39_where_nothing_was_usual_what_is_left_is():
    memory = judged(0.76, NOTHING_USUAL, before=0.75, zeta=1e-3, rule=UNKNOWN_USUAL)[1]
    assert memory.usual_lr == pytest.approx(1e-4)


def test_line_39_the_first_window_at_the_usual_step_size_is_early_too():
    decision, memory = judged(2.0, replace(FIRST, starting=0))
    assert decision == Decision(Outcome.REFUSED, 0.0, 1 / tolerant.START, phi=0.9, f_next=None)
    assert (memory.wait, memory.usual_lr) == (1, 0.01)


@pytest.mark.parametrize(("memory", "usual"), [(STARTING, 0.01), (NOTHING_USUAL, 1e-3)])
def test_line_35_where_nothing_moves_nothing_rises(memory, usual):
    decision, memory = judged(0.75, memory, before=0.75, zeta=1e-3)
    assert decision.outcome in (Outcome.KEPT, Outcome.GROWN)
    assert (memory.starting, memory.usual_lr, memory.scale) == (0, usual, 0.75)
    assert decision.zeta_factor == (2.0 if usual == 0.01 else 1.0)  # line 36, one step at a time


def test_the_first_windows_give_the_scale():
    memory = judged(0.6, replace(MEMORY, scale=math.inf))[1]
    assert memory.scale == 0.6
    assert judged(0.5, memory)[1].scale == 0.6
    early = replace(memory, batches_judged=tolerant.FIRST)
    assert judged(0.5, early)[1].scale == 0.5


def test_short_windows_give_neither_scale_nor_low_before_they_are_as_long_as_a_first_window():
    memory = replace(FIRST, starting=0)
    for after in (0.3, 0.6, 0.5):
        decision, memory = judged(after, memory, batches=10.0)
        assert decision.outcome is Outcome.KEPT
        assert (memory.low, memory.scale) == (after, math.inf)
    memory = judged(0.55, memory, batches=10.0)[1]
    assert (memory.low, memory.scale) == (0.5, 0.55)


def test_line_36_below_what_is_usual_a_window_that_gains_lets_it_rise():
    assert judged(0.7, before=0.75, zeta=1e-3)[0] == Decision(Outcome.GROWN, 1e-3, 2.0, phi=0.7, f_next=None)
    assert judged(0.7, before=0.75, zeta=8e-3)[0].zeta_factor == pytest.approx(1.25)
    assert judged(0.76, before=0.75, zeta=1e-3)[0].zeta_factor == 1.0


def test_line_36_not_while_a_refusal_bars_it():
    assert judged(0.7, replace(MEMORY, due=2), zeta=1e-3)[0].outcome is Outcome.KEPT
    assert judged(0.7, replace(MEMORY, due=1), before=0.75, zeta=1e-3)[0].outcome is Outcome.GROWN


PAYS = 0.999 * min(tolerant.GATE * 1.0, tolerant.LEVEL * 0.8)


def test_line_37_more_than_usual_takes_a_new_low_far_below_the_start():
    decision, memory = judged(PAYS, before=0.8)
    assert decision == Decision(Outcome.GROWN, 0.01, 2.0, phi=PAYS, f_next=None)
    assert judged(PAYS, memory, before=0.8)[0].outcome is Outcome.KEPT


@pytest.mark.parametrize(
    "dearer",
    [
        {"known": replace(KNOWN, f_0=0.9 * PAYS / tolerant.GATE)},
        {"memory": replace(MEMORY, scale=0.9 * PAYS / tolerant.LEVEL)},
        {"memory": replace(MEMORY, low=PAYS)},
        {"memory": replace(MEMORY, due=2)},
        {"memory": replace(MEMORY, low=0.79 / tolerant.STEADY)},
    ],
)
def test_line_37_each_of_its_conditions_can_be_the_one_that_is_missing(dearer):
    assert judged(PAYS, **dearer, before=0.8)[0].outcome is Outcome.KEPT


def test_line_37_does_not_grow_past_the_cap_nor_shrink_to_it():
    highest = tolerant.CAP * 0.01
    assert judged(PAYS, zeta=highest / 1.25, before=0.8)[0].zeta_factor == pytest.approx(1.25)
    assert judged(PAYS, zeta=2 * highest, before=0.8)[0].zeta_factor == 1.0
    assert (
        judged(PAYS, replace(MEMORY, usual_lr=math.inf), zeta=1e6, rule=UNKNOWN_USUAL, before=0.8)[0].zeta_factor == 2.0
    )


@pytest.mark.parametrize(("share", "factor"), [(None, 2.0), (0.0, 2.0), (0.59, 2.0), (0.6, 1.0), (0.9, 1.0)])
def test_lines_36_and_37_nothing_grows_on_the_way_to_zero(share, factor):
    assert judged(PAYS, share=share, before=0.8)[0].zeta_factor == factor
    assert judged(0.7, before=0.75, zeta=1e-3, share=share)[0].zeta_factor == factor


def test_line_37_a_perfect_fit_does_not_grow():
    assert judged(0.0)[0].outcome is Outcome.KEPT


def test_a_growth_of_one_never_grows():
    rule = TolerantRule(replace(RULE.settings, growth=1.0))
    assert judged(PAYS, rule=rule, before=0.8)[0].outcome is Outcome.KEPT
    assert rule.fresh(1.0, 1e-4) == Remembered(low=1.0, usual_lr=0.01, starting=0)
    unknown = TolerantRule(replace(UNKNOWN_USUAL.settings, growth=1.0))
    assert unknown.fresh(1.0, 1e-4) == Remembered(low=1.0, usual_lr=1e-4, starting=0)


def test_line_38_without_a_budget_windows_without_a_new_low_shrink_it():
    memory = replace(MEMORY, windows_since_low=tolerant.PATIENCE - 1, batches_judged=1e4)
    decision, after = judged(0.82, memory)
    assert decision == Decision(Outcome.STAGNATED, 0.01, 0.5, phi=0.8, f_next=None)
    assert (after.windows_since_low, after.usual_lr, after.wait, after.due) == (0, 0.01, 0, tolerant.REST)
    assert judged(0.82, replace(memory, windows_since_low=0))[0].outcome is Outcome.KEPT


def test_line_38_a_plateau_leaves_a_step_size_that_can_leave_it():
    memory = replace(MEMORY, windows_since_low=tolerant.PATIENCE, batches_judged=4 * tolerant.EARLY - 10)
    decision, _ = judged(0.82, memory, zeta=0.006, batches=10)
    assert decision.zeta_factor == pytest.approx(0.005 / 0.006)  # usual √(1/4)
    decision, _ = judged(0.82, memory, zeta=0.004, batches=10)
    assert (decision.outcome, decision.zeta_factor) == (Outcome.KEPT, 1.0)
    early = replace(memory, batches_judged=tolerant.EARLY / 2)
    assert judged(0.82, early)[0].outcome is Outcome.KEPT


def test_after_a_plateau_new_lows_bring_the_step_size_back():
    """Thirty windows without a new low, then one in each."""
    zeta, memory, before = 0.01, replace(MEMORY, low=0.96, scale=0.96), 0.96
    for after in [0.961] * 30 + [0.96 * 0.99**k for k in range(1, 15)]:
        decision, memory = judged(after, memory, before=before, zeta=zeta, batches=50)
        zeta, before = zeta * decision.zeta_factor, after
        if after == 0.961:
            at_the_end = zeta
    assert at_the_end < 0.005
    assert zeta == pytest.approx(0.01)


def test_line_38_with_a_budget_they_do_not():
    memory = replace(MEMORY, windows_since_low=tolerant.PATIENCE_ABOVE + 5)
    for zeta in (0.01, 0.005, 0.01 * (1 + 1e-15)):  # at what is usual, and below it
        decision, after = judged(0.82, memory, before=0.81, share=0.3, zeta=zeta)
        assert (decision.outcome, after.cap) == (Outcome.KEPT, math.inf)


def test_line_38_with_a_budget_many_of_them_end_a_growth():
    memory = replace(MEMORY, windows_since_low=tolerant.PATIENCE_ABOVE - 1)
    decision, after = judged(0.82, memory, share=0.3, zeta=0.08)
    assert decision == Decision(Outcome.STAGNATED, 0.08, 0.5, phi=0.8, f_next=None)
    assert (after.windows_since_low, after.cap, after.due) == (0, 0.04, MEMORY.due - 1)
    decision, after = judged(0.82, memory, share=0.3, zeta=0.015)  # to what is usual, no further
    assert (decision.zeta_factor, after.cap) == (pytest.approx(0.01 / 0.015), pytest.approx(0.01))
    one_less = replace(memory, windows_since_low=tolerant.PATIENCE_ABOVE - 2)
    for other, share in ((one_less, 0.3), (replace(memory, due=3), 0.3), (memory, 0.7)):
        assert judged(0.82, other, share=share, zeta=0.08)[0].outcome is Outcome.KEPT


def test_line_37_what_stagnated_is_not_grown_to_again():
    memory = replace(MEMORY, cap=0.03)
    decision, _ = judged(PAYS, memory, before=0.8, share=0.3, zeta=0.02)
    assert (decision.outcome, decision.zeta_factor) == (Outcome.GROWN, pytest.approx(1.5))
    assert judged(PAYS, memory, before=0.8, share=0.3, zeta=0.03)[0].outcome is Outcome.KEPT


def test_what_somebody_else_sets_is_not_raised():
    memory = RULE.after_outside_change(STARTING, zeta=1e-4)
    assert judged(0.7, memory, before=0.75, zeta=1e-4)[0].outcome is Outcome.KEPT
    assert judged(PAYS, memory, before=0.8)[0].outcome is Outcome.KEPT
    assert judged(2.0, memory)[0].zeta_factor < 1.0
    assert UNKNOWN_USUAL.after_outside_change(NOTHING_USUAL, zeta=1e-4).usual_lr == 1e-4
