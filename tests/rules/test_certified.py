"""What the naive twin (tests/optim/test_certified.py) does not show: the scale, what is not finite, the promises."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmalight.rules.certified import CertifiedMemory, CertifiedRule
from cmalight.rules.outcome import Outcome
from cmalight.rules.paper import InnerCycle
from tests.rules.line import Line

RULE = CertifiedRule()
START = RULE.init(1.0, 10.0)
PLAIN = CertifiedMemory(f=1.0, eta=0.5, scale=0.5, batches=10.0, plain=True, undone=1)
END = InnerCycle(zeta=0.5, f_tilde=0.0, direction_norm=1.0, batches=10.0)


def decided(memory, values, *, end=END):
    line = Line(values, memory.f)
    decision = RULE.decide(memory, end, line)
    return decision, decision.memory, [alpha for alpha in line.asked if alpha]  # but for f(w^k), which is known


@pytest.mark.parametrize(("scale", "later"), [(0.25, 0.25 * 1.2), (0.9, 1.0)])
def test_the_learning_rate_of_the_base_comes_back_while_its_epochs_are_kept(scale, later):
    slow = CertifiedMemory(f=1.0, eta=0.5, scale=scale, batches=10.0)
    assert decided(slow, {0.5: 0.9})[1].scale == later


@pytest.mark.parametrize("spoilt", [{"f_tilde": math.inf}, {"direction_norm": math.nan}])
@pytest.mark.parametrize("memory", [START, PLAIN], ids=["base", "plain"])
def test_what_is_not_finite_is_undone_without_an_evaluation(memory, spoilt):
    end = InnerCycle(**{"zeta": 0.5, "f_tilde": 0.0, "direction_norm": 1.0, "batches": 10.0, **spoilt})
    decision, after, asked = decided(memory, {}, end=end)
    assert (decision.outcome, decision.alpha, asked, after.f) == (Outcome.DIVERGED, 0.0, [], 1.0)
    assert after.eta == (0.25 if memory.plain else 0.5)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40), st.floats(1e-9, 1e3))
def test_f_and_eta_never_rise_and_each_base_epoch_lowers_f_by_its_share(ends, norm):
    memory = START
    for f_end in ends:
        value = f_end if math.isfinite(f_end) else math.inf
        end = InnerCycle(zeta=memory.eta, f_tilde=0.0, direction_norm=norm, batches=10.0)
        line = Line({}, memory.f)
        line.f_at = lambda alpha, eta=memory.eta, value=value: value if alpha == eta else math.inf
        decision = RULE.decide(memory, end, line)
        after = decision.memory
        assert after.f <= memory.f
        assert after.eta == memory.eta or (memory.plain and after.eta == 0.5 * memory.eta)
        if decision.outcome is Outcome.KEPT:
            assert after.f <= memory.f - 1e-2 * memory.eta / 10
        assert after.plain == (decision.alpha == 0.0 and not memory.plain)
        memory = after
