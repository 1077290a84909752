"""Metrics of all outputs and targets agree with scikit-learn's."""

import math

import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import TensorBatches
from cmalight.training.measuring import validate
from cmalight.training.metrics import METRICS, evaluate_metrics, make_metrics
from tests.training.common import MSE, data, model, train


def value(name, output, target):
    return float(METRICS[name](output, target))


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("outputs", [1, 3])
def test_figures_of_numbers_agree_with_scikit_learn(outputs, offset):
    torch.manual_seed(0)
    target = torch.randn(50, outputs, dtype=torch.float64) + offset
    output = target + 0.3 * torch.randn(50, outputs, dtype=torch.float64)
    assert value("r2", output, target) == pytest.approx(sklearn_metrics.r2_score(target, output), rel=1e-6)
    expected = sklearn_metrics.mean_squared_error(target, output)
    assert value("mse", output, target) == pytest.approx(expected, rel=1e-9)
    assert value("rmse", output, target) == pytest.approx(math.sqrt(expected), rel=1e-9)
    expected = sklearn_metrics.mean_absolute_error(target, output)
    assert value("mae", output, target) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_figures_of_classes_agree_with_scikit_learn(classes, ties):
    torch.manual_seed(0)
    output, target = torch.randn(50, classes, dtype=torch.float64), torch.randint(0, classes, (50,))
    output = output.round() if ties else output
    chances = torch.softmax(output, 1)
    expected = {
        "accuracy": sklearn_metrics.accuracy_score(target, output.argmax(1)),
        "f1": sklearn_metrics.f1_score(target, output.argmax(1), average="macro"),
        "auc": sklearn_metrics.roc_auc_score(target, chances[:, 1] if classes == 2 else chances, multi_class="ovr"),
        "log_loss": sklearn_metrics.log_loss(target, chances),
    }
    for name, wanted in expected.items():
        assert value(name, output, target) == pytest.approx(wanted, rel=1e-9), name


def test_figures_of_one_output_are_those_of_two():
    torch.manual_seed(0)
    output, target = torch.randn(50, 1, dtype=torch.float64), torch.randint(0, 2, (50,))
    both = torch.cat((torch.zeros_like(output), output), dim=1)
    for name in ("accuracy", "f1", "auc", "log_loss"):
        single = value(name, output, target[:, None].double())
        assert single == pytest.approx(value(name, both, target), rel=1e-9), name


def test_one_hot_targets_are_classes():
    output, target = torch.eye(4)[[0, 1, 2, 3]], torch.tensor([0, 1, 3, 2])
    assert value("accuracy", output, nn.functional.one_hot(target, 4)) == 0.5


def test_the_area_of_an_absent_class_is_not_a_number():
    assert math.isnan(value("auc", torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])))


def test_a_column_against_a_row_is_not_broadcast():
    output, target = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1.0, 2.0, 5.0])
    assert value("mse", output, target) == pytest.approx(4 / 3)


def largest_error(outputs, targets):
    return (outputs - targets).abs().max()


def test_a_function_is_a_metric_whose_largest_value_is_the_best():
    x, y = data()
    network, result = train(validation=(x, y), metrics=("mae", largest_error), monitor="largest_error")
    values = [record.metrics["largest_error"] for record in result.history]
    assert list(result.history[-1].metrics) == ["mae", "largest_error"]
    assert largest_error(network.eval()(x), y).item() == pytest.approx(max(values))


def test_errors_are_best_when_small():
    _, result = train(validation=data(), metrics=("rmse",), monitor="rmse")
    values = [record.metrics["rmse"] for record in result.history]
    assert values.index(min(values)) == result.best_epoch


def test_names_that_cannot_be_used_are_refused():
    with pytest.raises(ValueError, match="called 'r2'"):
        make_metrics(["r2", "r2"])
    with pytest.raises(ValueError, match="did you mean 'accuracy'"):
        make_metrics(["acuracy"])
    assert evaluate_metrics({}, [], []) == {}


def test_validation_is_in_eval_mode_and_the_same_for_batches_and_loaders():
    x, y = data(50)
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 1)).double()
    metrics = make_metrics(["r2"])
    in_memory = validate(network, MSE, TensorBatches(x, y, order="fixed"), metrics)
    by_loader = validate(network, MSE, DataLoader(TensorDataset(x, y), batch_size=7), metrics)
    assert network.training
    assert in_memory[0] == pytest.approx(by_loader[0], rel=1e-12)
    assert in_memory[1]["r2"] == pytest.approx(by_loader[1]["r2"], rel=1e-9)
    assert in_memory[0] == pytest.approx(MSE(network.eval()(x), y).item(), rel=1e-12)


def test_empty_validation_data_is_refused():
    with pytest.raises(ValueError, match="validation data gave no batch"):
        validate(model(), MSE, [], {})
