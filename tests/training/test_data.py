"""What fit takes as data: it works the first time, or the message says why not."""

from typing import NamedTuple

import numpy
import pandas
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from cmalight import Objective, Status, TensorBatches, fit
from cmalight.training import SampleWeighted, with_weights
from tests.training.common import MSE, data, model, train

X, Y = data()
FRAME = pandas.DataFrame(X.numpy(), index=range(100, 160))


@pytest.mark.parametrize(
    ("pair", "network", "loss_fn"),
    [
        ((X.numpy(), Y.numpy()), nn.Linear(4, 1), MSE),  # NumPy's double precision for a float32 model
        ((FRAME, pandas.Series(Y[:, 0].numpy(), index=FRAME.index)), model(), MSE),
        ((numpy.asfortranarray(X), Y), model(), MSE),
        ((X.tolist(), Y.tolist()), model(), MSE),
        ((X, torch.arange(60, dtype=torch.int32) % 3), nn.Linear(4, 3).double(), nn.CrossEntropyLoss()),
        (TensorBatches(X, Y, batch_size=30, order="fixed"), model(), MSE),
    ],
    ids=["numpy", "pandas", "by columns", "lists", "int32 labels", "tensor batches"],
)
def test_what_can_be_tensors_is_data_and_is_compiled(pair, network, loss_fn):
    dtype = network.state_dict().popitem()[1].dtype
    _, result = train(network, pair=pair, loss_fn=loss_fn, validation=pair, engine="auto", max_epochs=2)
    assert (result.epochs, result.history[0].validation_loss is not None) == (2, True)
    assert (result.engine, result.engine_reason) == (train(engine="auto", max_epochs=1)[1].engine, "")
    assert network.state_dict().popitem()[1].dtype == dtype


class HalfBody(nn.Module):
    """A half precision body with a float32 head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 8).to(torch.bfloat16), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)).float())


def bfloat16_output():
    return nn.Linear(4, 1).to(torch.bfloat16)


@pytest.mark.parametrize(("make", "as_array"), [(HalfBody, False), (HalfBody, True), (bfloat16_output, False)])
def test_targets_are_never_rounded_to_the_precision_of_the_first_parameter(make, as_array):
    """In bfloat16 targets around 1,000 would all be one value."""
    seen = []

    def loss_fn(output, target):
        seen.append(target.detach().clone())
        return MSE(output.float(), target)

    y = 1000 + torch.arange(60, dtype=torch.float64 if as_array else torch.float32) / 100
    train(make(), pair=(data()[0], y.numpy() if as_array else y), loss_fn=loss_fn, max_epochs=1)
    assert {target.dtype for target in seen} == {torch.float32}
    assert len(torch.cat(seen).unique()) == 60


@pytest.mark.parametrize("order", ["fixed", "reshuffle"])
@pytest.mark.parametrize("kind", ["pair", "tensor batches", "list of batches", "loader"])
@pytest.mark.parametrize("optimizer", ["auto", "cmalight"])
def test_a_first_layer_that_works_in_place_leaves_the_callers_data_alone(optimizer, kind, order):
    x, y = data()
    kept = x.clone(), y.clone()
    pair = {
        "pair": (x, y),
        "tensor batches": TensorBatches(x, y, batch_size=10, order=order),
        "list of batches": list(zip(x.split(10), y.split(10), strict=True)),
        "loader": DataLoader(
            TensorDataset(x, y), batch_size=None, sampler=[range(k, k + 10) for k in range(0, 60, 10)]
        ),
    }[kind]
    network = nn.Sequential(nn.ReLU(inplace=True), *model())
    train(network, pair=pair, order=order, optimizer=optimizer, validation=pair, measure_train_loss=True, max_epochs=2)
    assert torch.equal(x, kept[0])
    assert torch.equal(y, kept[1])


@pytest.mark.parametrize("convert", [torch.Tensor.long, torch.Tensor.double])
def test_targets_of_a_regression_without_a_second_dimension_are_a_column_of_numbers(convert):
    x, _ = data()
    y = convert(x[:, 0].mul(10))
    _, result = train(pair=(x, y))
    _, expected = train(pair=(x, y.unsqueeze(1).double()))
    assert result.history[-1].batch_loss == expected.history[-1].batch_loss


@pytest.mark.parametrize("optimizer", ["cmalight", "adam"])
def test_a_loader_whose_targets_would_be_broadcast_is_refused_with_advice(optimizer):
    x, y = data()
    with pytest.raises(ValueError, match=r"outputs \(10, 1\) for targets \(10,\).*unsqueeze"):
        train(pair=DataLoader(TensorDataset(x, y[:, 0]), batch_size=10), optimizer=optimizer)


def test_looking_at_the_models_output_leaves_no_trace():
    class Counting(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    network = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(), Counting(4, 1)).double()
    network[0].eval()
    before = network[0].running_mean.clone()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    train(network, max_epochs=0)
    assert network[2].calls == 1
    assert torch.equal(network[0].running_mean, before)
    assert [part.training for part in network] == [False, True, True]
    assert torch.equal(torch.rand(1), expected)


def test_layers_frozen_in_eval_mode_stay_so_and_a_model_in_eval_mode_is_trained():
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)).double()
    network[1].eval()
    before = network[1].running_mean.clone()
    train(network, max_epochs=2)
    assert torch.equal(network[1].running_mean, before)
    assert not network[1].training
    assert train(network.eval(), max_epochs=1)[0][1].training


class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


def test_inputs_may_be_dicts_and_named_tuples_also_for_validation():
    class FromDict(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs["point"].x + inputs["point"].y)

    x, y = data()
    batches = [({"point": Point(a, a)}, b) for a, b in zip(x.split(10), y.split(10), strict=True)]
    _, result = train(FromDict(4, 1).double(), pair=batches, validation=batches, metrics=(MSE,), max_epochs=2)
    assert result.history[-1].metrics["MSELoss"] == pytest.approx(result.history[-1].validation_loss)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("as_loader", [False, True])
def test_class_weights_and_ignored_targets_count_as_the_loss_counts_them(weighted, as_loader):
    """With lr so small that nothing moves, the mean over batches is the loss over all samples."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 4), torch.randint(0, 3, (60,))
    y[::7] = -100
    loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]) if weighted else None)
    network = nn.Linear(4, 3)
    expected = loss_fn(network(x), y).item()
    pair = DataLoader(TensorDataset(x, y), batch_size=7) if as_loader else (x, y)
    options = {"optimizer": "sgd", "optimizer_options": {"lr": 1e-9}, "batch_size": 7, "max_epochs": 1}
    _, result = train(network, pair=pair, loss_fn=loss_fn, **options)
    assert result.history[0].batch_loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((torch.ones(3, 4), torch.ones(4, 1)), r"inputs \(3, 4\) and targets \(4, 1\) do not match"),
        ((torch.ones(0, 4), torch.ones(0, 1)), "no samples"),
        (
            (torch.tensor([[1.0] * 4, [float("nan")] * 4]), torch.ones(2, 1)),
            "inputs have NaN or infinity in 1 of 2 samples, first in sample 1",
        ),
        ((torch.ones(2, 4), torch.tensor([[float("inf")], [1.0]])), "targets have NaN or infinity.*sample 0"),
        (5, "expected a pair of tensors or arrays, TensorBatches or a DataLoader, but got int"),
        (iter([]), "is an iterator"),
        ([], "no batch"),
        ([(*data(), data()[1])], "a tuple of 3"),
    ],
)
def test_bad_data_is_refused(pair, message):
    with pytest.raises(ValueError, match=message):
        train(pair=pair)
    if "not finite" in message:
        with pytest.raises(ValueError, match=f"validation {message}"):
            train(validation=pair)


class Stream(IterableDataset):
    def __init__(self, endless):
        self.endless = endless

    def __iter__(self):
        x, y = data(20)
        yield from zip(x, y, strict=True)
        while self.endless:
            yield from zip(x, y, strict=True)


def test_a_stream_needs_a_time_limit_and_cannot_be_an_epoch_of_cmalight():
    loader = DataLoader(Stream(endless=True), batch_size=5)
    with pytest.raises(ValueError, match="set a time_limit"):
        train(pair=loader)
    with pytest.raises(ValueError, match="compares epochs with a fixed sum"):
        train(pair=loader, optimizer="cmalight", time_limit=1.0)
    _, result = train(pair=loader, time_limit=0.2, max_epochs=None)
    assert (result.status, result.epochs) == (Status.TIME_LIMIT, 0)


@pytest.mark.parametrize("optimizer", ["auto", "adam", "adam-cosine", "ig"])
def test_a_stream_that_ends_is_an_epoch(optimizer):
    options = {"optimizer_options": {"lr": 0.1}} if optimizer == "ig" else {}
    loader = DataLoader(Stream(endless=False), batch_size=5)
    _, result = train(pair=loader, optimizer=optimizer, time_limit=100, max_epochs=3, **options)
    assert (result.status, result.epochs) == (Status.MAX_EPOCHS, 3)


def test_an_optimizer_of_another_model_is_refused():
    with pytest.raises(ValueError, match="holds no parameter of the model"):
        train(model(), optimizer=torch.optim.Adam(model().parameters()))
    with pytest.raises(ValueError, match="a ready optimizer has its options already"):
        fit(m := model(), MSE, data(), optimizer=torch.optim.Adam(m.parameters()), optimizer_options={"lr": 1.0})


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
