"""The watchdog rule: every branch by hand, and the promises of docs/understand/watchdog.md as properties."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmalight.rules.outcome import Outcome
from cmalight.rules.watchdog import END, Memory, Watchdog, Window, reason

RULE = Watchdog()
losses = st.one_of(st.integers(-1000, 1000).map(float), st.sampled_from([math.nan, math.inf, -math.inf]))


CALM = (12.0, 10.0, 11.0, 10.0, 11.0)


class Ask:
    """f here and at the confirmed point, and the probe; None for a run without f."""

    def __init__(self, here=None, there=0.0, probe=math.nan):
        self.values, self._probe = {END: here, 0.0: there}, probe
        self.has_f = here is not None
        self.asked = []

    def f_at(self, alpha):
        self.asked.append(alpha)
        return self.values[alpha]

    def f_start(self):
        return self.f_at(0.0)

    def probe(self):
        self.asked.append("probe")
        return self._probe


def flat(value, *, steps=5, so_far=5, progress=None, is_finite=True):
    """A window whose losses are all the same, so that they do not scatter."""
    return Window((float(value),) * steps, is_finite, so_far, progress)


def after(means, *, ask=None, rule=RULE, memory=None):
    """The memory after windows with these mean losses, and the last decision."""
    memory = rule.init() if memory is None else memory
    decision = None
    for number, mean in enumerate(means, 1):
        decision = rule.decide(memory, flat(mean, so_far=5 * number), ask or Ask())
        memory = decision.memory
    return memory, decision


def decided(memory, mean, ask=None, **window):
    return RULE.decide(memory, flat(mean, **window), ask or Ask())


# Line 6: the alarm.


def test_the_first_window_is_compared_with_its_first_loss_and_its_scatter():
    """Differences 2, 4, 2, 4: a scatter of 3 / 0.954."""
    window = Window((10.0, 12.0, 8.0, 10.0, 6.0), True, 5)
    assert RULE.decide(RULE.init(), window, Ask(1.0)).bound == pytest.approx(10.0 + 3 * 3 / 0.954)
    assert RULE.decide(RULE.init(), window, Ask()).bound == pytest.approx(10.0 + 6 * 3 / 0.954)


def test_later_ones_with_the_lowest_recent_mean_and_the_usual_change():
    memory, _ = after([100.0, 60.0, 40.0, 30.0])  # changes of 0, 40, 20, 10
    assert decided(memory, 0.0).bound == 30.0 + 6 * 20.0
    assert decided(memory, 0.0, Ask(1.0)).bound == 30.0 + 3 * 20.0


def test_if_losses_scatter_more_than_means_change_the_scatter_of_a_mean_counts():
    memory = replace(after([10.0] * 3)[0], recent=(10.0, 14.0) * 10)
    window = Window((10.0,) * 16, True, 40)
    assert RULE.decide(memory, window, Ask(1.0)).bound == pytest.approx(10.0 + 3 * (4 / 0.954) / 4)


def test_a_window_no_higher_than_the_last_kept_one_raises_no_alarm():
    memory = replace(after([10.0] * 3)[0], ends=(*[10.0] * 9, 30.0), recent=(10.0,) * 50)
    assert decided(memory, 30.0).outcome is Outcome.KEPT


def test_only_the_last_windows_count():
    memory, _ = after([1000.0, *[10.0, 11.0] * 6])
    assert memory.ends == (10.0, 11.0) * 5
    assert decided(memory, 0.0, Ask(1.0)).bound == 10.0 + 3 * 1.0
    assert decided(memory, 0.0).bound == 11.0 + 6 * 1.0  # without f: above the last one


def test_without_f_a_loss_that_rises_by_the_usual_change_all_the_time_is_no_alarm():
    means = [*range(30, 10, -1), *range(10, 60)]
    assert decided(after(means)[0], 61.0).outcome is Outcome.KEPT
    assert decided(after(means)[0], 61.0, Ask(1.0, 1.0)).outcome is Outcome.DISMISSED


# Without f.


def alarmed():
    memory, decision = after([*CALM, 100.0])
    assert decision.outcome is Outcome.ALARM
    return memory


def test_a_single_alarm_undoes_nothing_and_changes_nothing_but_the_plan():
    memory, before = alarmed(), after(CALM)[0]
    assert memory.is_alarmed
    assert (memory.scale, memory.ends, memory.cooldown) == (1.0, before.ends, 0)


def test_the_next_window_takes_the_alarm_back():
    decision = decided(alarmed(), 12.0)
    assert (decision.outcome, decision.alpha, decision.memory.is_alarmed) == (Outcome.KEPT, END, False)
    assert decision.memory.scale == 1.0


def test_a_second_alarm_in_a_row_undoes_and_the_first_undo_keeps_the_learning_rate():
    decision = decided(alarmed(), 100.0)
    assert (decision.outcome, decision.alpha, decision.memory.scale) == (Outcome.UNDONE, 0.0, 1.0)
    assert not decision.memory.is_alarmed


def test_an_undo_soon_after_another_halves_the_scale():
    decision = decided(replace(alarmed(), calm=9), 100.0)
    assert (decision.outcome, decision.memory.scale) == (Outcome.UNDONE, 0.5)


def test_losses_alone_never_bring_the_scale_below_the_floor():
    memory = replace(alarmed(), scale=0.1, cooldown=3, kept=0, calm=0)
    assert decided(memory, 100.0).memory.scale == 1 / 16
    risen = decided(replace(memory, scale=1 / 16), 100.0)
    assert (risen.outcome, risen.alpha, risen.memory.scale) == (Outcome.RISEN, END, 1 / 16)
    assert risen.memory.ends == (100.0,)  # the new normal


def test_if_the_confirmed_point_has_a_high_loss_too_the_data_have_changed():
    undone = decided(alarmed(), 100.0).memory
    risen = decided(undone, 100.0)
    assert (risen.outcome, risen.alpha, risen.memory.ends) == (Outcome.RISEN, END, (100.0,))
    assert decided(replace(undone, scatter=20.0), 100.0).outcome is Outcome.ALARM
    window = Window((10.0, *[100.0] * 4), True, 40)  # it began low: the steps are to blame
    waiting = RULE.decide(undone, window, Ask())
    assert waiting.outcome is Outcome.ALARM
    assert decided(waiting.memory, 100.0).outcome is Outcome.UNDONE  # its first loss is not that of a confirmed point


# With f.


def test_while_there_is_no_alarm_f_is_not_evaluated():
    ask = Ask(1.0)
    memory, _ = after(CALM, ask=ask)
    assert {asked for asked in ask.asked if asked != "probe"} == set()
    assert memory.scale == 1.0


@pytest.mark.parametrize(
    ("here", "there", "outcome"),
    [
        (1.0, 1.0, Outcome.DISMISSED),
        (0.9, 1.0, Outcome.DISMISSED),
        (1.5, 1.0, Outcome.UNDONE),
        (math.inf, 1.0, Outcome.UNDONE),
        (math.nan, 1.0, Outcome.UNDONE),
    ],
)
def test_f_settles_an_alarm_at_once(here, there, outcome):
    memory, _ = after(CALM)
    ask = Ask(here, there)
    decision = decided(memory, 100.0, ask)
    assert decision.outcome is outcome
    assert [asked for asked in ask.asked if asked != "probe"] == [END, 0.0]  # two evaluations
    assert decision.memory.is_failing == (outcome is Outcome.UNDONE)


def test_the_probe_is_evaluated_while_windows_have_at_most_ten_steps():
    memory, asked = RULE.init(), []
    for so_far in range(10, 140, 10):
        ask = Ask(1.0, 1.0, probe=-float(so_far))
        memory = decided(memory, 10.0, ask, so_far=so_far).memory
        asked += [so_far] * ("probe" in ask.asked)
    assert asked == list(range(10, 110, 10))


def test_a_loss_that_is_not_finite_is_an_alarm_that_f_may_dismiss():
    memory, _ = after(CALM)
    decision = decided(memory, math.nan, Ask(0.9, 1.0))
    assert (decision.outcome, decision.memory.ends) == (Outcome.DISMISSED, memory.ends)
    assert decided(memory, math.nan, Ask(1.5, 1.0)).outcome is Outcome.UNDONE


def probed(*values, here=1.1, ends=(10.0, 10.0)):
    """The decisions in short windows with these values of the probe; f rises by 0.1."""
    memory, found = replace(RULE.init(), ends=ends, recent=(10.0,) * 50), []
    for value in values:
        found.append(decided(memory, 10.0, Ask(here, 1.0, probe=value)))
        memory = found[-1].memory
    return found


def test_a_probe_above_the_last_one_is_an_alarm_and_its_undo_halves_the_scale_at_once():
    decisions = probed(5.0, 4.0, 4.1)
    assert [d.outcome for d in decisions] == [Outcome.KEPT, Outcome.KEPT, Outcome.UNDONE]
    assert [d.memory.scale for d in decisions] == [1.0, 1.0, 0.5]


def test_after_an_undo_the_probe_has_no_value_to_be_compared_with():
    assert [d.outcome for d in probed(4.0, 4.1, 4.2)] == [Outcome.KEPT, Outcome.UNDONE, Outcome.KEPT]


def test_f_may_dismiss_the_alarm_of_the_probe():
    assert probed(5.0, 4.0, 4.1, here=1.0)[-1].outcome is Outcome.DISMISSED


def test_a_rise_of_the_probe_or_of_f_below_a_third_of_the_usual_change_is_none():
    assert probed(4.0, 4.1, ends=(10.2, 10.0, 10.2, 10.0))[-1].outcome is Outcome.UNDONE
    assert probed(4.0, 4.1, ends=(10.6, 10.0, 10.6, 10.0))[-1].outcome is Outcome.KEPT
    assert probed(4.0, 4.3, ends=(10.6, 10.0, 10.6, 10.0))[-1].outcome is Outcome.DISMISSED


def test_a_rise_of_f_that_the_losses_could_not_show_upholds_no_alarm():
    """They scatter by 1 / 0.954: a third of that over the root of 50 steps is 0.049."""
    memory = replace(RULE.init(), ends=(10.0, 10.0), recent=(9.0, 10.0) * 50)
    window = Window((29.0, 30.0) * 25, True, 500)
    assert RULE.decide(memory, window, Ask(1.04, 1.0)).outcome is Outcome.DISMISSED
    assert RULE.decide(memory, window, Ask(1.06, 1.0)).outcome is Outcome.UNDONE


# Steps that are not finite, the scale, and the plan.


def test_a_state_that_is_not_finite_is_undone_without_an_evaluation():
    ask = Ask(1.0)
    decision = decided(after(CALM)[0], 10.0, ask, is_finite=False)
    assert (decision.outcome, decision.alpha, decision.memory.scale) == (Outcome.DIVERGED, 0.0, 1.0)
    again = decided(decision.memory, 10.0, ask, is_finite=False)
    assert (again.outcome, again.memory.scale) == (Outcome.DIVERGED, 0.5)
    assert ask.asked == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_losses_that_are_not_finite_do_not_count_but_a_window_of_them_is_an_alarm(value):
    memory, _ = after(CALM)
    window = Window((value, 10.0, value, 12.0, value), True, 40)
    assert RULE.decide(memory, window, Ask()).memory.ends[-1] == 11.0
    assert decided(memory, value).outcome is Outcome.ALARM


def test_before_anything_finite_was_seen_there_is_no_bound():
    decision = decided(RULE.init(), math.nan)
    assert (decision.outcome, decision.bound) == (Outcome.ALARM, math.inf)


def failed(memory, **window):
    return decided(memory, 10.0, is_finite=False, **window).memory


def test_a_failure_during_the_warm_up_lowers_the_peak_to_half_of_what_failed():
    memory = failed(after([10.0, 11.0, 10.0])[0], progress=0.02)
    assert memory.scale == 1.0
    memory = failed(memory, progress=0.02)
    assert memory.scale == pytest.approx(0.5 * 0.02 / 0.05)
    assert failed(memory, progress=0.02).scale == pytest.approx(0.25 * 0.02 / 0.05)  # one failure


def test_failures_in_a_row_are_one_and_the_scale_comes_back():
    memory = after([10.0, 11.0, 10.0])[0]
    for _ in range(3):
        memory = failed(memory)
    assert (memory.scale, memory.kept, memory.cooldown) == (0.25, 0, 3)
    scales = []
    for _ in range(3 * memory.cooldown):
        memory = decided(memory, 10.0).memory
        scales.append(memory.scale)
    assert scales == sorted(scales)
    assert scales[-1] == 1.0


def test_the_cooldown_is_forgotten_in_long_windows_only():
    slow = replace(RULE.init(), ends=(10.0, 10.0), recent=(10.0,) * 9, cooldown=4, length=200)
    short = long = slow
    for _ in range(4):
        short = decided(short, 10.0, so_far=100).memory
        long = decided(long, 10.0, so_far=10_000).memory
    assert (short.cooldown, long.cooldown) == (4, 2)


def test_windows_are_a_tenth_of_the_steps_so_far_between_5_and_200():
    lengths = [decided(RULE.init(), 10.0, so_far=n).memory.length for n in (5, 50, 60, 1234, 5000)]
    assert (RULE.init().length, lengths) == (5, [5, 5, 6, 123, 200])


def test_every_change_of_the_scale_has_a_reason():
    high = RULE.init()
    low = replace(high, scale=0.5)
    assert [reason(high, high), reason(low, high)] == ["", "raised after kept windows"]
    again = [replace(high, is_failing=True), replace(high, calm=RULE.memory - 1)]
    assert [reason(before, low) for before in again] == 2 * ["undone again"]
    assert reason(high, low) == "the probe rose, the losses did not"


def test_the_memory_is_plain_numbers():
    memory, _ = after([10.0, 11.0, 100.0, 101.0])
    assert json.loads(json.dumps(asdict(memory))) == {
        **asdict(memory),
        "ends": list(memory.ends),
        "recent": list(memory.recent),
    }


# The promises, as properties.

windows = st.lists(st.lists(losses, min_size=5, max_size=5), max_size=60)


def run(windows, ask_of=lambda _: Ask(), memory=None):
    """Decisions and memories, window by window."""
    memory, found = memory or RULE.init(), []
    for number, values in enumerate(windows, 1):
        window = Window(tuple(values), all(map(math.isfinite, values)), 5 * number)
        decision = RULE.decide(memory, window, ask_of(number))
        found.append((memory, decision))
        memory = decision.memory
    return found


@given(windows)
def test_without_f_nothing_finite_is_undone_by_a_single_alarm(windows):
    for memory, decision in run(windows):
        if decision.outcome is Outcome.UNDONE:
            assert memory.is_alarmed


@given(windows, st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=60, max_size=60))
def test_with_f_no_undo_of_a_finite_window_lands_higher_than_it_leaves(windows, values):
    asks = [Ask(*pair) for pair in values]
    for (_, decision), ask in zip(run(windows, lambda number: asks[number - 1]), asks, strict=False):
        if decision.outcome is Outcome.UNDONE:
            assert ask.values[0.0] < ask.values[END]
        assert len([asked for asked in ask.asked if asked != "probe"]) <= 2


@given(st.lists(st.lists(st.integers(-1000, 1000).map(float), min_size=5, max_size=5), max_size=60))
def test_false_alarms_cannot_hold_the_scale_below_a_sixteenth_nor_undo_much_more_than_they_keep(windows):
    """However the finite losses come. Each undo costs three windows."""
    undone, kept = 0, 0
    for _, decision in run(windows):
        assert decision.memory.scale >= RULE.floor
        undone += decision.outcome is Outcome.UNDONE
        kept += decision.outcome in (Outcome.KEPT, Outcome.RISEN)
        assert 3 * undone <= 15 + 1.3 * kept


@given(windows, st.sampled_from([0.5, 2.0, 1024.0]), st.integers(-1000, 1000).map(float))
def test_f_and_a_f_plus_b_give_the_same_decisions(windows, a, b):
    one = run(windows)
    other = run([[a * loss + b for loss in values] for values in windows])
    assert [d.outcome for _, d in one] == [d.outcome for _, d in other]
    assert [d.memory.scale for _, d in one] == [d.memory.scale for _, d in other]


@given(windows)
def test_the_scale_recovers(windows):
    found = run(windows)
    memory: Memory = found[-1][1].memory if found else RULE.init()
    needed = max(1, memory.cooldown) * math.ceil(math.log2(1 / memory.scale))
    for _ in range(needed):
        memory = decided(memory, min(memory.ends, default=0.0)).memory
    assert memory.scale == 1.0
