"""Windows, budgets and samples inside compiled epochs give what eager ones give."""

import pytest
import torch

from cmalight import Controlled, fit
from tests.training.common import MSE, data, model, needs_compiler

from .test_compiled import assert_same_run, run

pytestmark = [needs_compiler, pytest.mark.slow]

# 64 samples are seven batches: windows of three, three and one.
SETTINGS = {
    "windows": {"window": 3},
    "a budget in batches": {"max_batches": 50},
    "windows and a budget": {"window": 3, "max_batches": 70},
    "one window": {"window": 1000},
}


def wild(network, **settings):
    """A step size at which windows are undone."""
    return Controlled(torch.optim.SGD(network.parameters(), lr=3.0, momentum=0.9), **settings)


def tame(network, **settings):
    return Controlled(torch.optim.Adam(network.parameters(), lr=1e-2, weight_decay=1e-2), **settings)


@pytest.mark.parametrize("make", [wild, tame], ids=lambda make: make.__name__)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_ten_epochs_are_the_eager_ones(make, settings):
    def optimizer(network):
        return make(network, **settings)

    eager, compiled = (run(optimizer, engine=engine, measure_train_loss=True) for engine in ("eager", "compiled"))
    assert_same_run(eager, compiled, tolerance=1e-10)
    if make is wild:
        assert {"refused", "kept"} & {record.outcome for record in compiled[1].history}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_several_starts_are_the_runs_they_would_be_alone(settings):
    """The first start has the model's own weights."""

    def trained(**more):
        network = model()
        optimizer = tame(network, **settings)
        options = {"max_epochs": 6, "batch_size": 10, "progress": False, **more}
        return network, fit(network, MSE, data(64), optimizer=optimizer, **options)

    _, alone = trained(engine="eager")
    _, several = trained(starts=2)
    for mine, other in zip(several.starts[0].history, alone.history, strict=True):
        assert mine.outcome == other.outcome
        assert mine.f_tilde == pytest.approx(other.f_tilde, rel=1e-10)
        assert mine.lr == pytest.approx(other.lr, rel=1e-10)
