"""Weights of samples: the function that is trained, batch by batch and as a whole."""

import pytest
import torch
from torch import nn

from cmalight import Objective, TensorBatches
from cmalight.training import SampleWeighted, with_weights
from tests.training.common import data, model


def test_weighted_batches_add_up_to_the_weighted_whole():
    x, y = data(60)
    weight = torch.rand(60, dtype=torch.float64)
    network = model()
    each = (network(x) - y).square().mean(1).detach()
    batches = TensorBatches(x, with_weights(y, weight), batch_size=7)
    found = Objective(network, SampleWeighted(nn.MSELoss()), batches)()
    assert found == pytest.approx(float((weight * each).sum() / weight.sum()), rel=1e-12)


def test_labels_of_classes_may_be_weighted():
    torch.manual_seed(0)
    x, y = torch.randn(60, 4), torch.randint(0, 3, (60,))
    weight, network = torch.tensor([0.5, 1.0, 3.0]), nn.Linear(4, 3)
    found = SampleWeighted(nn.CrossEntropyLoss())(network(x), with_weights(y, weight[y]))
    assert found.item() == pytest.approx(nn.CrossEntropyLoss(weight=weight)(network(x), y).item(), rel=1e-5)


@pytest.mark.parametrize("weight", [[1.0], [-1.0, 1.0], [0.0, 0.0], [float("nan"), 1.0]], ids=str)
def test_weights_that_are_none_are_refused(weight):
    with pytest.raises(ValueError, match="Invalid weights"):
        with_weights([1.0, 2.0], weight)
    with pytest.raises(ValueError, match="has no reduction"):
        SampleWeighted(nn.Linear(1, 1))
