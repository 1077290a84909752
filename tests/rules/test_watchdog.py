"""The watchdog rule: every branch by hand, and the claims of docs/understand/watchdog.md as properties."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmalight.rules.watchdog import Memory, Watchdog

RULE = Watchdog()
whole_losses = st.integers(-1000, 1000).map(float)
any_losses = st.lists(st.one_of(whole_losses, st.sampled_from([math.nan, math.inf, -math.inf])), max_size=40)


def after(losses: list[float], *, f_0: float = 100.0, error: float = 0.0, rule: Watchdog = RULE) -> Memory:
    """The memory after windows that end at these losses."""
    memory = rule.init(f_0, error)
    for loss in losses:
        _, memory = rule.decide(memory, loss, memory.window)
    return memory


def keeps(memory: Memory, f_end: float) -> bool:
    return RULE.decide(memory, f_end, 1)[0].keeps


def bound(memory: Memory) -> float:
    return RULE.decide(memory, 0.0, 1)[0].bound


def test_the_rule_has_at_most_eight_constants() -> None:
    assert len(fields(Watchdog)) <= 8


# What a window may end at.


def test_without_an_error_the_first_window_is_held_to_f_0() -> None:
    assert bound(RULE.init(100.0)) == 100.0
    assert keeps(RULE.init(100.0), 100.0)
    assert not keeps(RULE.init(100.0), 100.5)


def test_while_nothing_is_gained_a_window_may_rise_by_the_error_of_f_0() -> None:
    memory = after([98.0, 101.0, 99.0], error=2.0)
    assert bound(memory) == 102.0
    assert memory.refused == 0


def test_after_a_gain_the_bound_is_four_median_changes_above_the_lowest() -> None:
    memory = after([20.0, 12.0, 10.0], f_0=1000.0)  # changes of 980, 8, 2
    assert bound(memory) == 10.0 + 4 * 8.0


def test_an_even_number_of_changes_has_the_upper_median() -> None:
    memory = after([20.0, 12.0, 10.0, 11.0], f_0=1000.0)  # changes of 980, 8, 2, 1
    assert bound(memory) == 10.0 + 4 * 8.0


def test_a_window_gives_back_at_most_a_quarter_of_the_gain() -> None:
    assert bound(after([50.0, 10.0])) == 10.0 + (100.0 - 10.0) / 4  # the recent ends would allow 10 + 4 * 40


def test_a_window_may_give_back_four_times_the_error_even_of_a_small_gain() -> None:
    memory = after([70.0, 55.0], error=5.0)
    assert bound(memory) == 55.0 + 4 * 5.0  # a quarter of the gain would be 12.5
    assert bound(replace(memory, noise=4.0)) == 55.0 + 4 * 5.0  # the larger of both
    assert bound(replace(memory, noise=6.0)) == 55.0 + 4 * 6.0


def test_a_window_may_end_the_last_error_above_the_lowest_recent_end() -> None:
    memory = after([50.0, *[10.0] * 10], error=2.0)  # a plateau
    assert bound(memory) == 10.0 + 2.0
    assert bound(replace(memory, noise=3.0)) == 10.0 + 3.0
    assert bound(replace(memory, noise=1.0)) == 10.0 + 1.0


def test_only_the_last_ends_count() -> None:
    memory = after([90.0, 70.0, 50.0, 30.0, 10.0, *[11.0, 10.0] * 4, 11.0])
    assert memory.ends == (10.0, *[11.0, 10.0] * 4, 11.0)
    assert bound(memory) == 10.0 + 4 * 1.0
    assert bound(after([90.0, 70.0, 50.0, 30.0, 10.0, *[11.0, 10.0] * 2])) == 10.0 + 90.0 / 4  # changes of 20 count


def test_a_window_that_ends_no_higher_than_it_began_is_kept() -> None:
    memory = after([8.0, *[10.0] * 10])
    memory = replace(memory, ends=(*[10.0] * 9, 30.0))
    assert bound(memory) == 30.0


@pytest.mark.parametrize("f_end", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_undone(f_end: float) -> None:
    assert not keeps(RULE.init(100.0), f_end)


def test_a_bound_that_overflows_keeps_finite_losses_only() -> None:
    memory = after([-1e308, -1.5e308], f_0=1e308)
    assert not keeps(memory, math.inf)
    assert keeps(memory, 0.0)


@pytest.mark.parametrize("f_0", [math.nan, math.inf, -math.inf])
def test_a_start_that_is_not_finite_is_refused(f_0: float) -> None:
    with pytest.raises(ValueError, match=f"loss at the start is {f_0}"):
        RULE.init(f_0)


@pytest.mark.parametrize("error", [-1.0, math.nan, math.inf])
def test_an_error_that_is_no_size_is_refused(error: float) -> None:
    with pytest.raises(ValueError, match="Invalid error value"):
        RULE.init(1.0, error)


# What an undone window costs, and how the scale comes back.


def test_an_undone_window_lowers_the_scale_and_changes_no_end() -> None:
    before = after([20.0, 10.0])
    memory = RULE.decide(before, 500.0, 1)[1]
    assert memory.scale == RULE.shrink
    assert (memory.ends, memory.lowest) == (before.ends, before.lowest)
    assert (memory.refused, memory.cooldown, memory.kept) == (1, 1, 0)


def test_windows_undone_in_a_row_are_counted_until_one_is_kept() -> None:
    assert after([500.0] * 3).refused == 3
    assert after([500.0] * 3 + [100.0]).refused == 0


def test_each_failure_doubles_the_cooldown_and_adds_one() -> None:
    assert [after([500.0, 100.0] * count).cooldown for count in range(4)] == [0, 1, 3, 7]


def test_windows_undone_in_a_row_are_one_failure() -> None:
    memory = after([500.0] * 4)
    assert (memory.scale, memory.cooldown) == (1 / 16, 1)


def test_the_scale_doubles_each_time_the_cooldown_is_over() -> None:
    failed_twice = [500.0, 100.0, 500.0, 500.0]  # the cooldown is 3
    scales = [after([*failed_twice, *[100.0] * count]).scale for count in (0, 2, 3, 5, 6, 9)]
    assert scales == [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]


def test_a_short_window_that_gives_back_a_sixteenth_of_the_gain_is_kept_and_lowers_the_scale() -> None:
    memory = after([20.0])
    assert RULE.decide(memory, 20.0 + 80.0 / 16, 1)[1].scale == 1.0
    verdict, steep = RULE.decide(memory, 20.0 + 80.0 / 16 + 0.5, 1)
    assert verdict.keeps
    assert (steep.scale, steep.cooldown, steep.refused, steep.ends[-1]) == (1 / 2, 1, 0, 25.5)


def test_short_windows_that_rise_further_are_the_same_failure_and_those_that_fall_are_none() -> None:
    steep = after([20.0, 26.0])
    further, lower = (RULE.decide(steep, f_end, 1)[1] for f_end in (27.0, 25.9))
    assert (further.scale, further.cooldown) == (1 / 4, 1)
    assert (lower.scale, lower.cooldown) == (1.0, 1)


@pytest.mark.parametrize("f_end", [26.0, 500.0])  # steep, undone
def test_during_the_warm_up_the_first_failure_lowers_the_peak_to_half_of_what_has_failed(f_end: float) -> None:
    first = RULE.decide(after([20.0]), f_end, 1, progress=0.005)[1]
    assert first.scale == pytest.approx(0.1 / 2)
    second = RULE.decide(first, f_end + 1, 1, progress=0.01)[1]
    assert second.scale == pytest.approx(0.1 / 4)


def test_the_warm_up_is_over_after_its_share_of_the_run() -> None:
    assert [RULE.risen(progress) for progress in (0.0, 0.025, 0.05, 0.9)] == pytest.approx([1e-3, 0.5, 1.0, 1.0])


def test_long_windows_are_kept_or_undone() -> None:
    memory = replace(after([20.0]), window=10)
    assert RULE.decide(memory, 30.0, 1)[1].scale == 1.0


def test_the_scale_never_exceeds_one() -> None:
    memory = replace(RULE.init(100.0), scale=0.75)
    assert RULE.decide(memory, 100.0, 1)[1].scale == 1.0


def test_the_scale_never_becomes_zero() -> None:
    assert after([math.nan] * 3000).scale > 0.0


def test_short_windows_do_not_shorten_the_cooldown() -> None:
    memory = replace(RULE.init(100.0), cooldown=1)
    for _ in range(5):
        _, memory = RULE.decide(memory, 100.0, 1)
    assert memory.cooldown == 1


def test_a_cooldown_is_forgotten_by_halves_while_long_windows_are_kept_at_full_scale() -> None:
    memory = replace(RULE.init(100.0), cooldown=3, steps=2000)
    seen = []
    for _ in range(5):
        _, memory = RULE.decide(memory, 100.0, 1)
        seen.append(memory.cooldown)
    assert seen == [3, 3, 1, 0, 0]


# How long windows are.


def test_windows_grow_with_the_steps_so_far() -> None:
    memory = RULE.init(100.0)
    assert memory.window == 1
    assert [RULE.decide(memory, 100.0, steps)[1].window for steps in (1, 19, 20, 500, 2000, 9000)] == [
        1, 1, 2, 50, 200, 200,
    ]  # fmt: skip


def test_undone_steps_count_as_steps() -> None:
    memory = RULE.decide(RULE.init(100.0), 500.0, 300)[1]
    assert (memory.steps, memory.window) == (300, 30)


# The schedule.


def test_the_schedule_rises_stays_and_falls_on_a_line() -> None:
    shares = (0.0, 0.025, 0.05, 0.5, 0.8, 0.9)
    assert [RULE.factor(share, 7) for share in shares] == pytest.approx([1e-3, 0.5, 1.0, 1.0, 0.5, 0.25])


def test_steps_past_the_end_have_a_small_constant_factor() -> None:
    assert RULE.factor(1.0, 1000) == RULE.factor(1.5, 1500) == 1e-3


def test_without_progress_the_step_size_rises_over_a_hundred_steps() -> None:
    assert [RULE.factor(None, steps) for steps in (0, 50, 100, 10**6)] == [1e-3, 0.5, 1.0, 1.0]


@given(st.one_of(st.none(), st.floats(0.0, 2.0)), st.integers(0, 10**7))
def test_a_factor_is_above_zero_and_at_most_one(progress: float | None, steps: int) -> None:
    assert 0.0 < RULE.factor(progress, steps) <= 1.0


# The claims.


@given(whole_losses, st.integers(0, 100).map(float), any_losses)
def test_claim_1_no_kept_end_is_above_f_0_plus_its_error(f_0: float, error: float, losses: list[float]) -> None:
    memory = RULE.init(f_0, error)
    for loss in losses:
        verdict, memory = RULE.decide(memory, loss, 1)
        assert memory.ends[-1] <= f_0 + error
        assert verdict.bound <= f_0 + error
        assert not verdict.keeps or memory.ends[-1] == loss


@given(whole_losses, st.integers(0, 100).map(float), any_losses)
def test_claim_1_at_most_a_quarter_of_the_gain_is_given_back(f_0: float, error: float, losses: list[float]) -> None:
    memory = RULE.init(f_0, error)
    for loss in losses:
        _, memory = RULE.decide(memory, loss, 1)
        given_back = memory.ends[-1] - memory.lowest
        assert given_back <= max(4 * error, (f_0 + error - memory.lowest) / 4)


@given(whole_losses, st.integers(0, 100).map(float), any_losses, st.integers(0, 100))
def test_claim_2_a_window_that_does_not_rise_is_kept(f_0: float, error: float, losses: list[float], fall: int) -> None:
    memory = after(losses, f_0=f_0, error=error)
    assert keeps(memory, memory.ends[-1] - fall)


@given(
    whole_losses,
    st.integers(0, 100).map(float),
    any_losses,
    st.integers(-20, 20).map(lambda power: 2.0**power),
    st.integers(-(10**6), 10**6).map(float),
)
def test_claim_3_the_loss_may_be_scaled_and_shifted(
    f_0: float, error: float, losses: list[float], a: float, b: float
) -> None:
    one, other = RULE.init(f_0, error), RULE.init(a * f_0 + a * b, a * error)  # exact: a power of two, whole numbers
    for loss in losses:
        first, one = RULE.decide(one, loss, 1)
        second, other = RULE.decide(other, a * loss + a * b, 1)
        assert first.keeps == second.keeps
        assert a * first.bound + a * b == second.bound
        assert (one.scale, one.cooldown, one.window) == (other.scale, other.cooldown, other.window)


@given(any_losses, st.integers(0, 30))
def test_claim_4_windows_undone_in_a_row_are_bounded(losses: list[float], power: int) -> None:
    memory, bearable = after(losses), 2.0**-power
    most = math.ceil(max(0.0, math.log(memory.scale / bearable, 1 / RULE.shrink)))
    undone = 0
    while memory.scale > bearable:
        _, memory = RULE.decide(memory, math.inf, 1)
        undone += 1
    assert undone <= most
    assert keeps(memory, memory.ends[-1])


@given(any_losses)
def test_claim_5_the_scale_recovers(losses: list[float]) -> None:
    memory = after(losses[:8])
    wait = max(1, memory.cooldown)
    for _ in range(wait * math.ceil(math.log2(1 / memory.scale))):
        _, memory = RULE.decide(memory, memory.ends[-1], 2000)
    assert memory.scale == 1.0
    for _ in range(2 * wait + 1):
        _, memory = RULE.decide(memory, memory.ends[-1], 2000)
    assert memory.cooldown == 0


@given(st.integers(1, 8), st.integers(1, 400))
def test_claim_6_a_step_size_too_large_costs_few_windows(power: int, windows: int) -> None:
    memory, undone = RULE.init(0.0), 0
    for _ in range(windows):
        verdict, memory = RULE.decide(memory, 1.0 if memory.scale > 2.0**-power else 0.0, 1)
        undone += not verdict.keeps
    assert undone <= power + math.log2(windows + 1)


# Memory is plain, decisions are pure.


@given(any_losses, whole_losses)
def test_a_memory_that_was_written_and_read_decides_alike(losses: list[float], f_end: float) -> None:
    memory = after(losses)
    plain = json.loads(json.dumps(asdict(memory)))
    read = Memory(**{**plain, "ends": tuple(plain["ends"])})
    assert read == memory
    assert RULE.decide(read, f_end, 5) == RULE.decide(memory, f_end, 5)
