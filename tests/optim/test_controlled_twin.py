"""Controlled takes the same windows, step sizes and decisions as its naive twin, around every kind of base."""

import inspect
import math

import pytest
import torch

from cmalight import Controlled, Objective
from cmalight.rules import tolerant
from tests import reference_controlled
from tests.helpers import MSE, network, run_epoch, split, table
from tests.optim.test_controlled import BASES
from tests.reference_controlled import Twin

TOLERANCE = inspect.signature(Controlled).parameters["tolerance"].default
SETTINGS = {
    "anytime": {},
    "a budget": {"max_epochs": 8},
    "windows": {"window": 3},
    "windows and a budget": {"window": 3, "max_epochs": 8, "tolerance": 0.01},
}


def assert_twins(make, settings, *, epochs, lr=None, size=16):
    batches = split(*table(noise=0.1 if size == 16 else 0.0), size)
    model, other = network(), network()
    optimizer = Controlled(make(list(model.parameters())), lr=lr, **settings)
    settings = {"tolerance": TOLERANCE, **settings, "usual": optimizer.param_groups[0]["usual"]}

    def base(params):
        made = make(params)
        for group in made.param_groups if lr is not None else ():
            group["lr"] = lr
        return made

    twin = Twin(other, base, batches, MSE, **settings)
    objective = Objective(model, MSE, batches)
    for _ in range(epochs):
        run_epoch(optimizer, objective, model, batches, early=True)
        twin.epoch()
        assert optimizer.control.state.height == pytest.approx(twin.zeta, rel=1e-9)
        for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    assert math.isfinite(twin.low)
    return twin.seen


@pytest.mark.filterwarnings("ignore:20 steps of:RuntimeWarning")  # the twin's
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("make", BASES.values(), ids=BASES.keys())
def test_every_epoch_is_the_twins(make, settings):
    assert_twins(make, settings, epochs=8)


def test_together_they_reach_every_line():
    """Otherwise agreeing would say little."""
    seen = set()
    for name, lr in (("momentum", 1e-3), ("momentum", 3.0), ("adam", 1e-5), ("adam", 1e-2)):
        for settings in ({}, {"usual": 0.5, "window": 3}):
            seen |= assert_twins(BASES[name], settings, epochs=8, lr=lr)
    seen |= assert_twins(BASES["adam"], {}, epochs=10, lr=1e-2, size=4)
    seen |= assert_twins(BASES["adam"], {"usual": 0.05, "window": 3, "max_epochs": 60}, epochs=60, lr=0.05)
    assert seen == {"start", "refused early", "refused", "grown", "stagnated", "stagnated above"}


def test_growth_after_a_stagnation_is_the_twins(monkeypatch):
    """With less patience, so that a short run has both; the twin notes where line 38's cap is what bounds line 37."""
    for module in (tolerant, reference_controlled):
        monkeypatch.setattr(module, "PATIENCE_ABOVE", 3)
    seen = assert_twins(BASES["adam"], {"usual": 0.02, "window": 3, "max_epochs": 30}, epochs=30, lr=0.02)
    assert {"stagnated above", "grown", "capped"} <= seen
