"""IG's rule, and what the naive twins of CMA and COFF in tests/optim do not show."""

import math

import pytest

from cmalight.rules.baselines import CoffRule, DecayRule
from cmalight.rules.outcome import Outcome
from cmalight.rules.paper import InnerCycle, Known
from tests.rules.line import Line, Told, told


def decided(rule, *, f_0=1.0, zeta=0.5, f_tilde=0.7, values=None):
    inner = InnerCycle(zeta=zeta, f_tilde=f_tilde, direction_norm=1.0, batches=10.0)
    return told(rule.decide(Known(f_0, 0.8, None), inner, Line(values or {})))


@pytest.mark.parametrize(("f_tilde", "phi"), [(5.0, 0.8), (0.7, 0.7), (math.inf, 0.8)])
def test_every_epoch_stands_and_the_step_size_decays(f_tilde, phi):
    decision = decided(DecayRule(0.2), f_tilde=f_tilde)
    assert decision == Told(Outcome.UNCONTROLLED, 0.5, 0.8, phi=phi, f_next=None)


def test_without_an_objective_there_is_no_value_to_beat():
    assert math.isnan(decided(DecayRule(0.2), f_0=math.inf).phi)


def test_the_decay_of_the_public_code_is_in_proportion_to_the_step_size():
    assert decided(DecayRule(0.5, relative=True), zeta=0.05).lr_factor == 1.0 - 0.5 * 0.05


@pytest.mark.parametrize(
    ("f_0", "values", "decision"),
    [
        # Without an extrapolation, where the search leads is not evaluated.
        (1.0, {1.0: 0.86}, Told(Outcome.SEARCH_SUCCEEDED, 0.5, 1.0, phi=0.8, f_next=None)),
        (1.0, {1.0: 0.75, 2.0: 0.76}, Told(Outcome.SEARCH_SUCCEEDED, 1.0, 2.0, phi=0.75, f_next=0.75)),
        # An estimate above f(w⁰) is refused, also below f(w^k).
        (0.7, {}, Told(Outcome.SEARCH_FAILED_REJECTED, 0.0, 0.5, phi=0.8, f_next=0.9)),
    ],
)
def test_the_search_of_coff(f_0, values, decision):
    rule = CoffRule(theta=0.5, tau=1e-2, gamma=1e-2, delta=0.5, max_extrapolations=2)
    assert decided(rule, f_0=f_0, f_tilde=0.85, values=values) == decision


def test_an_epoch_of_coff_that_is_not_finite_is_undone():
    rule = CoffRule(theta=0.5, tau=1e-2, gamma=1e-2, delta=0.5, max_extrapolations=2)
    decision = decided(rule, f_tilde=math.inf)
    assert (decision.outcome, decision.alpha, decision.lr_factor, decision.phi) == (Outcome.DIVERGED, 0.0, 0.5, 0.8)
