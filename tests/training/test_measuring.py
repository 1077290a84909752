"""Measuring: in eval mode, without a trace, and by functions of all outputs and targets."""

import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import TensorBatches
from cmalight.compiled import CannotCompile
from cmalight.training import Measured, measure
from cmalight.training.measuring import METRICS, accuracy, make_metrics
from tests.helpers import copied_state, same_state
from tests.training.common import MSE, batch_norm_model, data, model, train
from tests.training.test_checkpoint import Normalised


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("outputs", [1, 3])
def test_errors_agree_with_scikit_learn(outputs, offset):
    torch.manual_seed(0)
    target = torch.randn(50, outputs, dtype=torch.float64) + offset
    output = target + 0.3 * torch.randn(50, outputs, dtype=torch.float64)
    for name, theirs in {"mse": "mean_squared_error", "mae": "mean_absolute_error"}.items():
        expected = getattr(sklearn_metrics, theirs)(target, output)
        assert float(METRICS[name](output, target)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("classes", [2, 4])
def test_accuracy_agrees_with_scikit_learn_for_labels_one_hot_rows_and_one_output(classes):
    torch.manual_seed(0)
    output, target = torch.randn(50, classes), torch.randint(0, classes, (50,))
    expected = sklearn_metrics.accuracy_score(target, output.argmax(1))
    assert accuracy(output, target) == pytest.approx(expected)
    assert accuracy(output, nn.functional.one_hot(target, classes)) == pytest.approx(expected)
    if classes == 2:
        assert accuracy(output[:, 1:] - output[:, :1], target[:, None].double()) == pytest.approx(expected)


def test_a_column_against_a_row_is_not_broadcast():
    output, target = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1.0, 2.0, 5.0])
    assert METRICS["mse"](output, target) == pytest.approx(4 / 3)


def largest_error(outputs, targets):
    return (outputs - targets).abs().max()


def test_a_function_is_a_metric_whose_largest_value_is_the_best():
    x, y = data()
    network, result = train(validation=(x, y), metrics=("mae", largest_error), monitor="largest_error")
    values = [record.metrics["largest_error"] for record in result.history]
    assert list(result.history[-1].metrics) == ["mae", "largest_error"]
    assert largest_error(network.eval()(x), y).item() == pytest.approx(max(values))


def test_errors_are_best_when_small():
    _, result = train(validation=data(), metrics=("mae",), monitor="mae")
    values = [record.metrics["mae"] for record in result.history]
    assert values.index(min(values)) == result.best_epoch


def test_names_that_cannot_be_used_are_refused():
    with pytest.raises(ValueError, match="called 'mae'"):
        make_metrics(["mae", "mae"])
    with pytest.raises(ValueError, match=r"did you mean 'accuracy'.*for others pass a function"):
        make_metrics(["acuracy"])


def test_it_is_in_eval_mode_and_the_same_for_batches_and_loaders():
    x, y = data(50)
    network = batch_norm_model()
    metrics = make_metrics(["mae"])
    in_memory = measure(network, MSE, TensorBatches(x, y), metrics)
    by_loader = measure(network, MSE, DataLoader(TensorDataset(x, y), batch_size=7, shuffle=True), metrics)
    assert in_memory.loss == pytest.approx(by_loader.loss, rel=1e-12)
    assert in_memory.metrics["mae"] == pytest.approx(by_loader.metrics["mae"], rel=1e-9)
    assert network.training
    assert in_memory.loss == pytest.approx(MSE(network.eval()(x), y).item(), rel=1e-12)


@pytest.mark.parametrize("metrics", [{}, {"mae": METRICS["mae"]}])
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


def test_class_weights_and_ignored_targets_count_as_the_loss_counts_them():
    torch.manual_seed(0)
    x, y = torch.randn(60, 4), torch.randint(0, 3, (60,))
    y[::7] = -100
    loss_fn, network = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5])), nn.Linear(4, 3)
    for metrics in ({}, {"accuracy": accuracy}):
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


def test_an_evaluator_takes_over_as_long_as_it_can():
    batches, evaluator, metrics = TensorBatches(*data()), Evaluator(), make_metrics(["mae"])
    assert measure(model(), MSE, batches, evaluator=evaluator) == Measured(2.5)
    measured = measure(model(), MSE, batches, metrics, evaluator=evaluator)
    assert (measured.loss, measured.metrics["mae"]) == (2.5, pytest.approx(3.0))
    evaluator.can = False
    assert measure(model(), MSE, batches, evaluator=evaluator) == measure(model(), MSE, batches)


def test_empty_data_are_refused():
    with pytest.raises(ValueError, match="the data are empty"):
        measure(model(), MSE, [])


def test_a_metric_that_writes_into_its_targets_does_not_change_the_data():
    x, y = data()
    before = y.clone()
    measure(
        model(), MSE, TensorBatches(x, y), {"zeroed": lambda _, target: target.zero_().sum()}, evaluator=Evaluator()
    )
    assert torch.equal(y, before)


def test_a_metric_that_draws_random_numbers_does_not_change_the_training():
    def noise(*_):
        return torch.rand(())

    network, _ = train(model(dropout=0.5), validation=data(), restore_best=False)
    with_noise, _ = train(model(dropout=0.5), validation=data(), restore_best=False, metrics=(noise,))
    assert same_state(with_noise.state_dict(), network.state_dict())


@pytest.mark.parametrize("metric", [lambda output: 1.0, lambda output, target: None, lambda output, target: output])
def test_a_metric_that_is_no_metric_is_named(metric):
    metric.__name__ = "odd"
    with pytest.raises(ValueError, match="The metric odd did not make a number of"):
        measure(nn.Linear(4, 1), MSE, TensorBatches(torch.ones(6, 4), torch.ones(6, 1), batch_size=3), {"odd": metric})
