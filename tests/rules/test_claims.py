"""The three claims of docs/understand/theory.md on the tolerant rule, for any sequence of losses."""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cmalight import Controlled, Objective
from cmalight.rules.outcome import Outcome
from cmalight.rules.rule import InnerCycle, Known
from cmalight.rules.tolerant import (
    CAP,
    EARLY,
    GATE,
    LEVEL,
    PATIENCE,
    REST,
    SLACK,
    START,
    Settings,
    TolerantRule,
)

F_0 = 1.0
LEAST = 1e-3

# What a window leads to, as a multiple of the lowest so far: mostly a descent, so that bounds are reached, and now and
# then anything, what is not finite included.
losses = st.one_of(
    st.floats(0.5, 1.05),
    st.floats(0.5, 1.0),
    st.floats(0.5, 3.0),
    st.sampled_from([1.0, math.inf, math.nan]),
)
usual_or_not = st.sampled_from([0.01, math.inf])
first_step_sizes = st.sampled_from([1e-6, 5e-3, 0.01, 10.0])


@dataclass
class Ends:
    """f_S where a window began and where it ended."""

    before: float
    after: float

    def sample_before(self) -> float:
        return self.before

    def sample_after(self) -> float:
        return self.after


@dataclass(frozen=True)
class Judged:
    """One window of a run."""

    outcome: Outcome
    f_before: float
    f_after: float
    low: float  # before it
    scale: float  # before it
    usual: float  # after it
    zeta: float  # after it
    batches_judged: float
    new_low: bool
    rose: bool


def run(sequence, usual, lr, *, budget, batches=32.0):
    """The windows of a run that sees these losses; with a budget all of it comes before the line to zero."""
    rule = TolerantRule(Settings(usual=usual))
    zeta = rule.begins_at(lr)
    memory = rule.fresh(F_0, zeta)
    current = F_0
    for multiple in sequence:
        f_after = max(LEAST, multiple * memory.low)
        inner = InnerCycle(zeta, 0.5, 1.0, batches=batches, share=0.1 if budget else None)
        before, f_before = memory, current
        decision, memory = rule.decide(inner, Known(F_0, F_0, None), memory, Ends(current, f_after))
        zeta *= decision.zeta_factor
        current = f_after if decision.alpha else current
        yield Judged(
            decision.outcome,
            f_before,
            f_after,
            before.low,
            before.scale,
            memory.usual_lr,
            zeta,
            memory.batches_judged,
            new_low=memory.low < before.low,
            rose=decision.outcome is Outcome.GROWN,
        )


@settings(max_examples=300)
@given(
    st.lists(losses, min_size=1, max_size=120),
    usual_or_not,
    first_step_sizes,
    st.booleans(),
    st.sampled_from([4.0, 20.0, 32.0, 100.0]),
)
def test_claim_1_nothing_is_kept_above_the_start_or_far_above_the_lowest(sequence, usual, lr, budget, batches):
    for window in run(sequence, usual, lr, budget=budget, batches=batches):
        if window.outcome.keeps:
            gained = window.low <= LEVEL * F_0
            assert window.f_after <= F_0 * (1.0 if gained else 1.0 + SLACK)
            tolerated = Settings().tolerance * window.scale * max(1.0, 32.0 / batches)
            assert window.f_after <= max(window.low + tolerated, window.f_before)
        else:
            assert not window.f_after <= min(F_0, window.low)


def is_kept(sizes, *, end):
    """Whether a window of batches of these sizes from f_S = 0.21 to `end` is, where low is 0.2 and scale 0.1."""
    model = torch.nn.Linear(1, 1, bias=False).double()
    batches = [(torch.ones(size, 1).double(), None) for size in sizes]
    objective = Objective(model, lambda outputs, _: outputs.mean(), [(x, x) for x, _ in batches])
    optimizer = Controlled(torch.optim.Adam(model.parameters()))

    def window(value):
        with optimizer.epoch(objective) as epoch:
            for x, _ in batches:
                optimizer.zero_grad()
                loss = model(x).mean()
                loss.backward()
                epoch.observe(loss, len(x))
                optimizer.step()
            torch.nn.init.constant_(model.weight, value)
        return epoch.report

    torch.nn.init.constant_(model.weight, 1.0)
    assert window(0.21).outcome.keeps
    optimizer.param_groups[0].update(low=0.2, scale=0.1, starting=0, batches_judged=1000.0)
    return window(end).outcome.keeps


@pytest.mark.parametrize("sizes", [(128, 128, 128, 128), (128, 128, 128, 128, 1), (32, 128, 128), (128, 32)])
def test_claim_1_counts_a_window_by_its_samples_over_the_size_of_its_first_batch(sizes):
    """As an epoch hands it to the rule: five batches, the last of one sample, count as 4.01 and not as 5."""
    n = max(1.0, sum(sizes) / sizes[0])
    most = 0.2 + Settings().tolerance * 0.1 * max(1.0, 32.0 / n)
    assert is_kept(sizes, end=most - 1e-6)
    assert not is_kept(sizes, end=most + 1e-6)


@settings(max_examples=300)
@given(st.lists(losses, min_size=1, max_size=120), usual_or_not, first_step_sizes, st.booleans())
@example([0.85] * 60, 0.01, 0.01, True)
@example([0.97] * 250, 0.01, 0.01, True)
@example([*[0.9] * 8, 2.0, *[0.85] * 60], math.inf, 1e-3, True)
@example([0.8, 3.0] * 60, 0.01, 0.01, True)
@example([*[0.85] * 20, *[1.01] * 30, *[0.9] * 20, *[1.01] * 30, *[0.9] * 20], 0.01, 0.01, True)
def test_claim_2_step_sizes_are_bounded_and_a_refusal_bars_growth_for_longer_each_time(sequence, usual, lr, budget):
    windows = list(run(sequence, usual, lr, budget=budget))
    refusals, barred, followed, cap = 0, 0, set(), math.inf
    for window in windows:
        assert window.zeta <= min(CAP * window.usual, cap) * (1 + 1e-9)
        if window.rose:
            assert barred == 0
            assert window.zeta <= window.usual * (1 + 1e-9) or (window.new_low and window.f_after <= GATE * F_0)
            followed.add(refusals)
        barred = max(0, barred - 1)
        if not window.outcome.keeps:
            refusals += 1
            barred = max(barred, 2**refusals - 2)
        if window.outcome is Outcome.STAGNATED and budget:
            cap = window.zeta
        elif window.outcome is Outcome.STAGNATED:
            barred = max(barred, REST - 1)
    assert len(followed - {0}) <= math.log2(len(windows) + 2) - 1


@settings(max_examples=300)
@given(
    st.lists(losses, max_size=60),
    st.lists(st.floats(1.0, 1.3), min_size=30, max_size=60),
    usual_or_not,
    first_step_sizes,
)
def test_claim_3_without_a_budget_and_without_new_lows_the_step_size_goes_to_zero(sequence, above, usual, lr):
    """Nothing raises it any more, and in any three windows in a row it shrinks, or is as small as the batches allow."""
    later = list(run([*sequence, *above], usual, lr, budget=False))[len(sequence) + 1 :]  # the first may end the start
    assert not any(window.new_low for window in later)
    for n in range(2 * PATIENCE, len(later) - PATIENCE):
        now, then = later[n], later[n + PATIENCE]
        assert later[n + 1].zeta <= now.zeta
        bound = max(Settings().theta, 1 / START) * now.zeta
        assert then.zeta <= max(bound, now.usual * math.sqrt(EARLY / now.batches_judged)) * (1 + 1e-9)


@pytest.mark.parametrize("steps", [10, 100, 1000])
def test_claim_2_with_a_budget_the_step_size_ends_near_zero_and_its_sum_is_bounded(steps):
    decay = Settings().decay
    factors = [TolerantRule(Settings()).factor((step + 0.5) / steps, step) for step in range(steps)]
    assert factors[-1] <= 1 / (2 * decay * steps) * (1 + 1e-9)
    assert sum(factors) <= (1 - decay / 2) * steps + 1
