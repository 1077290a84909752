"""The schedule of the learning rate."""

import pytest

from cmalight.rules import schedule


@pytest.mark.parametrize(
    ("progress", "factor"),
    [(0.0, 1e-3), (0.025, 0.5), (0.05, 1.0), (0.6, 1.0), (0.8, 0.5), (1.0, 1e-3), (2.0, 1e-3)],
)
def test_it_warms_up_stays_and_decays(progress, factor):
    assert schedule.factor(progress) == pytest.approx(factor)
