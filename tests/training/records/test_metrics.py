"""Metrics over batches equal metrics over everything."""

import math

import pytest
import torch
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    log_loss,
    mean_absolute_error,
    mean_squared_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from torch import nn

from cmalight import TensorBatches
from cmalight.training.records.metrics import make_metrics, measure
from tests.training.common import data, model, train


def over_batches(name, output, target, size=7):
    metric = make_metrics([name])[name]
    for o, t in zip(output.split(size), target.split(size), strict=True):
        metric.update(o, t)
    return metric.value()


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("outputs", [1, 3])
def test_figures_of_numbers_agree_with_scikit_learn(outputs, offset):
    torch.manual_seed(0)
    target = torch.randn(50, outputs, dtype=torch.float64) + offset
    output = target + 0.3 * torch.randn(50, outputs, dtype=torch.float64)
    assert over_batches("r2", output, target) == pytest.approx(r2_score(target, output), rel=1e-6)
    assert over_batches("mse", output, target) == pytest.approx(mean_squared_error(target, output), rel=1e-9)
    assert over_batches("mae", output, target) == pytest.approx(mean_absolute_error(target, output), rel=1e-9)
    if outputs == 1:  # of several scikit-learn takes the mean of the roots
        expected = root_mean_squared_error(target, output)
        assert over_batches("rmse", output, target) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("classes", [2, 4])
def test_figures_of_classes_agree_with_scikit_learn(classes):
    torch.manual_seed(0)
    output, target = torch.randn(50, classes, dtype=torch.float64), torch.randint(0, classes, (50,))
    chances = torch.softmax(output, 1)
    expected = {
        "f1": f1_score(target, output.argmax(1), average="macro"),
        "auc": roc_auc_score(target, chances[:, 1] if classes == 2 else chances, multi_class="ovr"),
        "log_loss": log_loss(target, chances),
    }
    for name, value in expected.items():
        assert over_batches(name, output, target) == pytest.approx(value, rel=1e-9), name


def test_figures_of_one_output_are_those_of_two():
    torch.manual_seed(0)
    output, target = torch.randn(50, 1, dtype=torch.float64), torch.randint(0, 2, (50,))
    both = torch.cat((torch.zeros_like(output), output), dim=1)
    for name in ("accuracy", "f1", "auc", "log_loss"):
        single = over_batches(name, output, target[:, None].double())
        assert single == pytest.approx(over_batches(name, both, target), rel=1e-9), name


def test_the_area_of_a_class_that_is_absent_is_not_a_number():
    assert math.isnan(over_batches("auc", torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])))


def largest_error(outputs, targets):
    return (outputs - targets).abs().max()


def test_a_function_is_a_metric_and_can_be_monitored():
    x, y = data()
    options = {"validation": (x, y), "metrics": ("mae", largest_error), "monitor": "largest_error"}
    network, result = train(**options, restore_best=True)
    network.eval()
    last = result.history[-1].metrics
    assert list(last) == ["mae", "largest_error"]
    assert last["largest_error"] >= last["mae"] > 0
    best = max(record.metrics["largest_error"] for record in result.history)
    assert largest_error(network(x), y).item() == pytest.approx(best)


@pytest.mark.parametrize("name", ["rmse", "mae"])
def test_errors_are_best_when_small(name):
    x, y = data()
    _, result = train(validation=(x, y), metrics=(name,), monitor=name, restore_best=True)
    values = [record.metrics[name] for record in result.history]
    assert values.index(min(values)) == result.best_epoch


def test_two_metrics_of_one_name_are_refused():
    with pytest.raises(ValueError, match="called 'r2'"):
        make_metrics(["r2", "r2"])


def test_accuracy_of_classes_of_one_hot_targets_and_of_a_single_output():
    torch.manual_seed(0)
    output, target = torch.randn(50, 4), torch.randint(0, 4, (50,))
    expected = accuracy_score(target, output.argmax(1))
    assert over_batches("accuracy", output, target) == pytest.approx(expected)
    assert over_batches("accuracy", output, nn.functional.one_hot(target, 4)) == pytest.approx(expected)
    single, label = torch.randn(50, 1), torch.randint(0, 2, (50, 1)).float()
    assert over_batches("accuracy", single, label) == pytest.approx(accuracy_score(label > 0.5, single > 0))


def test_measuring_is_in_eval_mode_and_the_same_for_batches_and_loaders():
    x, y = data(50)
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 1)).double()
    device = torch.device("cpu")
    in_memory = measure(network, nn.MSELoss(), TensorBatches(x, y, order="fixed"), ("r2",), device)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=7)
    by_loader = measure(network, nn.MSELoss(), loader, ("r2",), device)
    assert in_memory[0] == pytest.approx(by_loader[0], rel=1e-12)
    assert in_memory[1]["r2"] == pytest.approx(by_loader[1]["r2"], rel=1e-9)
    network.eval()
    assert in_memory[0] == pytest.approx(nn.MSELoss()(network(x), y).item(), rel=1e-12)


def test_mse_of_a_column_against_a_row_is_not_broadcast():
    output, target = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1.0, 2.0, 5.0])
    assert over_batches("mse", output, target) == pytest.approx(4 / 3)


def test_empty_validation_data_is_refused():
    with pytest.raises(ValueError, match="validation data gave no batch"):
        measure(model(), nn.MSELoss(), [], (), torch.device("cpu"))
