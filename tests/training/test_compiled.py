"""Compiled epochs give what eager ones give, and are used only where they can."""

import logging
import math

import pytest
import torch
from torch import nn
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler
from torch.utils.data import DataLoader, TensorDataset

from cmalight import CMA, IG, CMALight, TensorBatches, fit
from cmalight.training.engine import choosing
from cmalight.training.engine.checks import check
from cmalight.training.engine.flat import CannotCompile
from tests.helpers import copied_state, same_state
from tests.training.common import MSE, data, model, train, without_times


def has_compiler():
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
pytestmark = [
    # torch's own, while it compiles
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def run(optimizer, *, engine, network=None, pair=None, **options):
    """64 samples are six batches of 10 and one of 4."""
    network = model() if network is None else network
    pair = data(64) if pair is None else pair
    options = {"max_epochs": 10, "batch_size": 10, "progress": False, **options}
    result = fit(network, MSE, pair, optimizer=optimizer(network), engine=engine, **options)
    assert result.engine == engine
    return network, result


def both(optimizer, **options):
    return run(optimizer, engine="eager", **options), run(optimizer, engine="compiled", **options)


def assert_same_run(eager, compiled, tolerance=1e-12):
    (eager_model, eager_result), (compiled_model, compiled_result) = eager, compiled
    for mine, other in zip(compiled_model.parameters(), eager_model.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
    assert len(compiled_result.history) == len(eager_result.history)
    for mine, other in zip(compiled_result.history, eager_result.history, strict=True):
        assert (mine.outcome, mine.lr, mine.evaluations) == (other.outcome, other.lr, other.evaluations)
        assert mine.f_tilde == pytest.approx(other.f_tilde, rel=tolerance)


def two_groups(network):
    return CMALight(
        [
            {"params": network[0].parameters(), "lr": 0.5, "weight_decay": 1e-2},
            {"params": network[3].parameters()},
        ],
        lr=1.0,
        line_search="certified",
    )


def adam(network):
    return torch.optim.Adam(network.parameters(), lr=1e-2, weight_decay=1e-2, amsgrad=True)


def momentum(network):
    return torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2)


OPTIMIZERS = {
    "light": lambda network: CMALight(network.parameters(), lr=1.0),
    "certified, two groups": two_groups,
    "cma": lambda network: CMA(network.parameters(), lr=1.0),
    "ig": lambda network: IG(network.parameters(), lr=0.5, weight_decay=1e-2),
    "momentum": momentum,
    "adam": adam,
}


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_epochs_in_double_precision_are_the_eager_ones(name):
    eager, compiled = both(OPTIMIZERS[name])
    assert_same_run(eager, compiled)
    outcomes = {record.outcome for record in compiled[1].history}
    if name == "light":
        assert outcomes >= {"rejected_early", "search_failed_rejected", "search_failed_kept", "accepted"}
    if name in ("cma", "certified, two groups"):
        assert len(outcomes) > 2
    assert compiled[1].compile_seconds > 0
    assert compiled[1].seconds >= compiled[1].compile_seconds
