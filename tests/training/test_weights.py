"""Weights of samples: the function that is trained, batch by batch and as a whole."""

import pytest
import torch
from torch import nn

from cmalight import Objective, TensorBatches
from cmalight.training import SampleWeighted, with_weights
from tests.training.common import data, model, train


def test_weighted_batches_add_up_to_the_weighted_whole():
    x, y = data(60)
    weight = torch.rand(60, dtype=torch.float64)
    network = model()
    each = (network(x) - y).square().mean(1).detach()
    batches = TensorBatches(x, with_weights(y, weight), batch_size=7)
    found = Objective(network, SampleWeighted(nn.MSELoss()), batches)()
    assert found == pytest.approx(float((weight * each).sum() / weight.sum()), rel=1e-12)


def test_weights_of_samples_are_repetitions():
    x, y = data(60)
    weight = torch.randint(0, 4, (60,), generator=torch.Generator().manual_seed(0))
    network = model()
    repeated = nn.MSELoss()(network(x.repeat_interleave(weight, 0)), y.repeat_interleave(weight, 0))
    weighted = SampleWeighted(nn.MSELoss())(network(x), with_weights(y, weight))
    assert weighted.item() == pytest.approx(repeated.item(), rel=1e-12)


def test_labels_of_classes_may_be_weighted():
    torch.manual_seed(0)
    x, y = torch.randn(60, 4), torch.randint(0, 3, (60,))
    weight, network = torch.tensor([0.5, 1.0, 3.0]), nn.Linear(4, 3)
    found = SampleWeighted(nn.CrossEntropyLoss())(network(x), with_weights(y, weight[y]))
    assert found.item() == pytest.approx(nn.CrossEntropyLoss(weight=weight)(network(x), y).item(), rel=1e-5)


def test_fit_goes_where_the_weight_is():
    x = torch.ones(40, 1, dtype=torch.float64)
    y = torch.cat((torch.zeros(20, 1), torch.ones(20, 1))).double()
    weight = torch.cat((torch.full((20,), 1.0), torch.full((20,), 3.0)))
    options = {"loss_fn": SampleWeighted(nn.MSELoss()), "optimizer": "cmalight", "max_epochs": 100}
    network, _ = train(nn.Linear(1, 1).double(), pair=(x, with_weights(y, weight)), **options)
    assert network(x[:1]).item() == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("weight", [[1.0], [-1.0, 1.0], [0.0, 0.0], [float("nan"), 1.0]], ids=str)
def test_weights_that_are_none_are_refused(weight):
    with pytest.raises(ValueError, match="Invalid weights"):
        with_weights([1.0, 2.0], weight)
    with pytest.raises(ValueError, match="has no reduction"):
        SampleWeighted(nn.Linear(1, 1))
