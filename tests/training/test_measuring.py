"""Measuring: in eval mode, without a trace, and by functions of all outputs and targets."""

import pytest
import torch
from sklearn.metrics import accuracy_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import TensorBatches
from cmalight.compiled import CannotCompile
from cmalight.training import Measured, accuracy, measure
from tests.helpers import copied_state, same_state
from tests.training.common import MSE, Normalised, batch_norm_model, data, mae, model, train


@pytest.mark.parametrize("classes", [2, 4])
def test_accuracy_agrees_with_scikit_learn_for_labels_one_hot_rows_and_one_output(classes):
    torch.manual_seed(0)
    output, target = torch.randn(50, classes), torch.randint(0, classes, (50,))
    expected = accuracy_score(target, output.argmax(1))
    assert accuracy(output, target) == pytest.approx(expected)
    assert accuracy(output, nn.functional.one_hot(target, classes)) == pytest.approx(expected)
    if classes == 2:
        assert accuracy(output[:, 1:] - output[:, :1], target[:, None].double()) == pytest.approx(expected)


def test_it_is_in_eval_mode_and_the_same_for_batches_and_loaders():
    x, y = data(50)
    network = batch_norm_model()
    in_memory = measure(network, MSE, TensorBatches(x, y), {"mae": mae})
    by_loader = measure(network, MSE, DataLoader(TensorDataset(x, y), batch_size=7, shuffle=True), {"mae": mae})
    assert in_memory.loss == pytest.approx(by_loader.loss, rel=1e-12)
    assert in_memory.metrics["mae"] == pytest.approx(by_loader.metrics["mae"], rel=1e-9)
    assert network.training
    assert in_memory.loss == pytest.approx(MSE(network.eval()(x), y).item(), rel=1e-12)


@pytest.mark.parametrize("metrics", [{}, {"mae": mae}])
def test_it_leaves_no_trace(metrics):
    network, loss_fn, batches = batch_norm_model(), Normalised(), TensorBatches(*data())
    network[1].eval()
    before, buffers = copied_state(network), copied_state(loss_fn)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    measure(network, loss_fn, batches, metrics)
    assert torch.equal(torch.rand(1), expected)
    assert same_state(before, network.state_dict())
    assert same_state(buffers, loss_fn.state_dict())
    assert [part.training for part in network[:3]] == [True, False, True]
    assert batches.epoch == 0
    assert all(p.grad is None for p in network.parameters())


@pytest.mark.parametrize("metrics", [{}, {"accuracy": accuracy}])
def test_class_weights_and_ignored_targets_count_as_the_loss_counts_them(metrics):
    torch.manual_seed(0)
    x, y = torch.randn(60, 4), torch.randint(0, 3, (60,))
    y[::7] = -100
    loss_fn, network = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5])), nn.Linear(4, 3)
    measured = measure(network, loss_fn, TensorBatches(x, y, batch_size=7), metrics)
    assert measured.loss == pytest.approx(loss_fn(network(x), y).item(), rel=1e-6)


class Evaluator:
    """An engine that gives fixed numbers, as long as it can."""

    can = True

    def refresh(self):
        if not self.can:
            raise CannotCompile("a hook")

    def loss(self):
        return 2.5

    def measure(self):
        return 2.5, data()[1] + 3


def test_an_evaluator_takes_over_as_long_as_it_can_and_its_metrics_do_not_change_the_data():
    (x, y), evaluator = data(), Evaluator()
    batches, before = TensorBatches(x, y), y.clone()
    assert measure(model(), MSE, batches, evaluator=evaluator) == Measured(2.5)
    measured = measure(model(), MSE, batches, {"mae": mae}, evaluator=evaluator)
    assert (measured.loss, measured.metrics["mae"]) == (2.5, pytest.approx(3.0))
    measure(model(), MSE, batches, {"zeroed": lambda _, target: target.zero_().sum()}, evaluator=evaluator)
    assert torch.equal(y, before)
    evaluator.can = False
    assert measure(model(), MSE, batches, evaluator=evaluator) == measure(model(), MSE, batches)


def test_empty_data_are_refused():
    with pytest.raises(ValueError, match="the data are empty"):
        measure(model(), MSE, [])


def test_a_metric_that_draws_random_numbers_does_not_change_the_training():
    def noise(*_):
        return torch.rand(())

    network, _ = train(model(dropout=0.5), validation=data(), restore_best=False)
    with_noise, _ = train(model(dropout=0.5), validation=data(), restore_best=False, metrics=(noise,))
    assert same_state(with_noise.state_dict(), network.state_dict())


@pytest.mark.parametrize("metric", [lambda output: 1.0, lambda output, target: None, lambda output, target: output])
def test_a_metric_that_is_no_metric_is_named(metric):
    with pytest.raises(ValueError, match="The metric odd did not make a number of"):
        measure(nn.Linear(4, 1), MSE, TensorBatches(torch.ones(6, 4), torch.ones(6, 1), batch_size=3), {"odd": metric})
