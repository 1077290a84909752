"""Compiled epochs never train another thing than eager ones: what cannot be followed is refused, or noticed."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from cmalight import fit
from cmalight.compiled import select
from cmalight.evaluation import larger_batches
from tests.helpers import same_state
from tests.training.common import MSE, data, needs_compiler

pytestmark = needs_compiler


def words(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 7, (64, 4), generator=generator), torch.randint(0, 3, (64,), generator=generator)


@pytest.mark.parametrize("wrong", ["row", "far row", "class"])
def test_an_index_out_of_range_is_an_error_as_in_eager_epochs(wrong, monkeypatch):
    monkeypatch.setattr(larger_batches, "_SAMPLES", 20)  # or the last row would be among those that are recorded
    x, y = words()
    if wrong == "class":
        y[-1] = 7
    else:
        x[-1, 1] = 9 if wrong == "row" else 10**9
    for engine in ("eager", "compiled"):
        network = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(12, 3))
        with pytest.raises(IndexError, match="out of"):
            fit(network, nn.CrossEntropyLoss(), (x, y), optimizer="adam", batch_size=10, max_epochs=1,
                progress=False, engine=engine)  # fmt: skip


class Own(nn.Module):
    """Two layers, and a forward pass of its own."""

    def __init__(self, forward):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.own = nn.Linear(4, 6), nn.Linear(6, 1), forward
        self.register_buffer("seen", torch.zeros(6))
        self.average = torch.zeros(6).double()
        self.double()

    def forward(self, x):
        return self.own(self, x, torch.tanh(self.first(x)))


def by_numpy(network, x, hidden):
    return network.last(hidden) + torch.from_numpy(np.sin(x.numpy()[:, :1]))


def by_list(network, x, hidden):
    return network.last(hidden) * sum(x[:, 0].tolist())


def by_equal(network, x, hidden):
    return network.last(hidden) * (2 if torch.equal(x[0] > 0, x[1] > 0) else 1)


def by_allclose(network, x, hidden):
    return network.last(hidden) * (2 if torch.allclose(x[0], x[1], atol=1.0) else 1)


def clamping(network, x, hidden):
    with torch.no_grad():
        network.last.weight.clamp_(-0.5, 0.5)  # which it is within, to begin with
    return network.last(hidden)


def shrinking(network, x, hidden):
    network.last.weight.data = network.last.weight.data * 0.9
    return network.last(hidden)


def averaging(network, x, hidden):
    network.average.mul_(0.9).add_(hidden.detach().mean(0), alpha=0.1)  # no buffer
    return network.last(hidden + network.average)


REFUSED = {
    by_numpy: "looks at the values",
    by_list: "looks at the values",
    by_equal: "looks at the values",
    by_allclose: "looks at the values",
    clamping: "changes a parameter",
    shrinking: "changes the parameter last.weight",
    averaging: "none of its buffers",
}


@pytest.fixture
def always_tried(monkeypatch):
    """ "auto" compiles whatever it can."""
    monkeypatch.setattr(select, "pays", lambda *_: True)


def trained(network, engine, loss=MSE, **options):
    options = {"optimizer": "sgd", "batch_size": 10, "max_epochs": 3, "progress": False, **options}
    return fit(network, loss, data(64), engine=engine, **options)


@pytest.mark.parametrize("forward", REFUSED)
def test_what_a_record_would_not_follow_is_refused_and_trained_eagerly(forward, always_tried):
    with pytest.raises(ValueError, match=REFUSED[forward]):
        trained(Own(forward), "compiled")
    if forward is averaging:
        return  # what is no buffer cannot be put back after a trial
    eager, chosen = Own(forward), Own(forward)
    trained(eager, "eager")
    assert trained(chosen, "auto").engine == "eager"
    assert same_state(chosen.state_dict(), eager.state_dict())


def test_parameters_and_constants_that_are_only_read_may_be_detached():
    def reading(network, x, hidden):
        return network.last(hidden) * network.last.weight.detach().abs().mean() + torch.tensor(0.5) + network.average[0]

    eager = Own(reading)
    compiled = copy.deepcopy(eager)
    trained(eager, "eager")
    assert trained(compiled, "compiled").engine == "compiled"
    torch.testing.assert_close(compiled.last.weight, eager.last.weight, rtol=1e-12, atol=1e-12)
