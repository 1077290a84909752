"""Windows, budgets and samples inside compiled epochs give what eager ones give."""

import math

import pytest
import torch

from cmalight import Controlled, Objective, TensorBatches, fit
from cmalight.compiled.engine.epochs import CompiledEngine, unwatched
from cmalight.compiled.order import order_of_epoch
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


def engine_for(network, optimizer, feed):
    engine = CompiledEngine(network, MSE, optimizer, feed, before_block=lambda _: None, seconds_left=lambda: math.inf)
    engine.prepare()
    return engine


def engine_of(network, optimizer, samples):
    feed = TensorBatches(*data(samples), batch_size=10)
    return engine_for(network, optimizer, feed), feed


@pytest.mark.parametrize(("samples", "is_whole"), [(64, True), (3000, False)])
def test_a_sample_is_evaluated_without_calling_the_model(samples, is_whole):
    network = model()
    engine, feed = engine_of(network, tame(network), samples)
    expected, sample = Objective(network, MSE, feed).sample(), engine.objective().sample()
    assert sample.is_whole is is_whole
    value = expected()
    called = []
    network.register_forward_pre_hook(lambda *_: called.append(True))
    assert sample() == pytest.approx(value, rel=1e-13)
    assert not called


def test_a_sample_with_rows_that_lie_outside_is_that_of_eager_steps():
    network = model()
    x, y = data(3000)
    y[17] += 1000.0
    feed = TensorBatches(x, y, batch_size=10)
    engine = engine_for(network, tame(network), feed)
    value = Objective(network, MSE, feed).sample()()
    assert engine.objective().sample()() == pytest.approx(value, rel=1e-13)
    assert value > 100 * Objective(network, MSE, TensorBatches(x[18:], y[18:])).sample()()


def test_a_sample_of_a_model_that_draws_has_the_same_numbers_every_time():
    network = model(dropout=0.5)
    engine, feed = engine_of(network, tame(network), 64)
    expected, sample = Objective(network, MSE, feed).sample(), engine.objective().sample()
    assert sample() == sample() == expected()


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_a_state_that_is_not_finite_makes_the_way_infinite(wrong):
    network = model()
    optimizer = tame(network)
    engine, feed = engine_of(network, optimizer, 64)
    begun, order = engine._begun(), order_of_epoch(feed, 0)
    ones, watch = torch.ones(order.batches), unwatched(order, begun.weights.clone())
    _, moved = engine._run(begun, watch, order, ones, stop=3)
    assert 0 < float(moved) < math.inf
    begun.state[2][-1] = wrong
    _, moved = engine._run(begun, watch, order, ones, stop=3)
    assert float(moved) == math.inf
