"""What fit takes as data: it works first time, or says why not."""

import numpy
import pandas
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from cmalight import Status, TensorBatches, fit
from tests.training.common import MSE, data, model, train


def test_numpys_double_precision_is_brought_to_the_models_precision():
    x, y = (t.numpy() for t in data())
    network = nn.Linear(4, 1)
    result = fit(network, MSE, (x, y), max_epochs=2, progress=False)
    assert result.epochs == 2
    assert network.weight.dtype == torch.float32


def test_targets_without_a_second_dimension_get_the_outputs_shape():
    x, y = data()
    _, flat = train(pair=(x, y[:, 0]))
    _, column = train(pair=(x, y))
    assert flat.history[-1].f_tilde == column.history[-1].f_tilde


def test_integer_targets_of_a_regression_are_a_column_of_numbers():
    x, _ = data()
    y = x[:, 0].mul(10).long()
    _, result = train(pair=(x, y))
    _, expected = train(pair=(x, y.unsqueeze(1).double()))
    assert result.history[-1].f_tilde == expected.history[-1].f_tilde


@pytest.mark.parametrize("optimizer", ["cmalight", "adam"])
def test_a_loader_whose_targets_would_be_broadcast_is_refused_with_advice(optimizer):
    x, y = data()
    with pytest.raises(ValueError, match=r"outputs \(10, 1\) for targets \(10,\).*unsqueeze"):
        train(pair=DataLoader(TensorDataset(x, y[:, 0]), batch_size=10), optimizer=optimizer)


def test_an_optimizer_of_another_model_is_refused():
    with pytest.raises(ValueError, match="holds no parameter of the model"):
        train(model(), optimizer=torch.optim.Adam(model().parameters()))


def test_layers_frozen_in_eval_mode_stay_so():
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)).double()
    network[1].eval()
    before = network[1].running_mean.clone()
    train(network, max_epochs=2)
    assert torch.equal(network[1].running_mean, before)
    assert not network[1].training


def test_a_callback_without_its_method_is_refused():
    with pytest.raises(ValueError, match="has no on_epoch_end"):
        train(callbacks=[print])


def test_pandas_columns_are_data():
    x, y = data()
    frame = pandas.DataFrame(x.numpy(), index=range(100, 160))
    _, result = train(pair=(frame, pandas.Series(y[:, 0].numpy(), index=frame.index)), max_epochs=2)
    assert result.epochs == 2


def test_inputs_may_be_dicts_also_for_validation():
    class FromDict(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs["x"])

    x, y = data()
    batches = [({"x": a}, b) for a, b in zip(x.split(10), y.split(10), strict=True)]
    _, result = train(FromDict(4, 1).double(), pair=batches, validation=batches, metrics=("mse",), max_epochs=2)
    assert result.history[-1].metrics["mse"] == pytest.approx(result.history[-1].validation_loss)


def test_integer_class_labels_stay_integers():
    torch.manual_seed(0)
    x = torch.randn(60, 4)
    y = (x[:, 0] > 0).long()
    network = nn.Linear(4, 2)
    options = {"metrics": ("accuracy",), "validation": (x, y), "optimizer_options": {"lr": 0.1}}
    result = fit(network, nn.CrossEntropyLoss(), (x, y), batch_size=10, max_epochs=60, progress=False, **options)
    assert result.history[-1].metrics["accuracy"] > 0.9


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("as_loader", [False, True])
def test_class_weights_and_ignored_targets_count_as_the_loss_counts_them(weighted, as_loader):
    """With lr so small that nothing moves, f̃ is the loss over all samples."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 4), torch.randint(0, 3, (60,))
    y[::7] = -100
    loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]) if weighted else None)
    network = nn.Linear(4, 3)
    expected = loss_fn(network(x), y).item()
    pair = DataLoader(TensorDataset(x, y), batch_size=7) if as_loader else (x, y)
    result = fit(
        network,
        loss_fn,
        pair,
        batch_size=7,
        max_epochs=1,
        optimizer="cmalight",
        optimizer_options={"lr": 1e-9},
        progress=False,
    )
    assert result.history[0].f_tilde == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((torch.ones(3, 4), torch.ones(4, 1)), r"inputs \(3, 4\) and targets \(4, 1\) do not match"),
        ((torch.ones(0, 4), torch.ones(0, 1)), "no samples"),
        (
            (torch.tensor([[1.0] * 4, [float("nan")] * 4]), torch.ones(2, 1)),
            "inputs are not finite in 1 of 2 samples, first in sample 1",
        ),
        ((torch.ones(2, 4), torch.tensor([[float("inf")], [1.0]])), "targets are not finite.*sample 0"),
        (5, "expected a pair of tensors or arrays, TensorBatches or a DataLoader, but got int"),
        (iter([]), "is an iterator"),
        ([], "no batch"),
    ],
)
def test_bad_data_is_refused(pair, message):
    with pytest.raises(ValueError, match=message):
        train(pair=pair)


def test_bad_validation_data_is_refused():
    x, y = data()
    with pytest.raises(ValueError, match="validation inputs are not finite"):
        train(validation=(x * float("nan"), y))


def test_batches_of_another_shape_are_refused_with_advice():
    x, y = data()
    with pytest.raises(ValueError, match="a tuple of 3"):
        train(pair=[(x, y, y)], optimizer="adam")


def test_tensor_batches_are_used_as_they_are():
    x, y = data()
    batches = TensorBatches(x, y, batch_size=30, order="fixed")
    _, result = train(pair=batches, max_epochs=3)
    assert batches.epoch == 3
    assert result.epochs == 3


class Augmented(Dataset):
    """Noise on every input, drawn anew at each visit."""

    def __init__(self):
        self.x, self.y = data()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 0.01 * torch.randn(4, dtype=torch.float64), self.y[i]


def test_random_augmentation_works_and_is_reproducible_from_the_seed():
    """The objective is then random itself: each evaluation sees another draw, but the run repeats."""
    loader = DataLoader(Augmented(), batch_size=10, shuffle=True)
    first, result = train(pair=loader, max_epochs=20, seed=1)
    second, _ = train(pair=loader, max_epochs=20, seed=1)
    assert result.status is Status.MAX_EPOCHS
    assert result.history[-1].f_tilde < result.history[0].f_tilde
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_arrays_may_be_lists_of_numbers():
    x = numpy.random.default_rng(0).random((20, 4))
    network, result = train(pair=(x, x.sum(1)), max_epochs=2)
    assert result.epochs == 2
    assert next(network.parameters()).dtype == torch.float64


def test_weight_decay_is_the_papers_regularisation():
    """With lr so small that nothing moves, f̃ is the loss and the term: (wd/2) ‖w‖² = λ ‖w‖²."""
    network, (x, y) = model(), data()
    expected = MSE(network(x), y).item() + 0.05 * sum(p.square().sum().item() for p in network.parameters())
    _, result = train(network, max_epochs=1, optimizer_options={"lr": 1e-12, "weight_decay": 0.1})
    assert result.history[0].f_tilde == pytest.approx(expected, rel=1e-9)


def test_a_network_in_eval_mode_is_trained_in_training_mode():
    network = model(dropout=0.5).eval()
    modes = []
    network.register_forward_hook(lambda module, *_: modes.append((torch.is_grad_enabled(), module.training)))
    train(network, max_epochs=1)
    assert {training for with_gradient, training in modes if with_gradient} == {True}
