"""A full evaluation: its value, and that nothing of it stays."""

import math
import random
from collections import UserDict
from contextlib import nullcontext

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

from cmalight import Objective, TensorBatches
from tests.helpers import MSE, copied_state, network, same_state, split, table
from tests.training.common import Normalised


def loader_over(x, y, **options):
    return DataLoader(TensorDataset(x, y), **options)


def value_by_hand(model, x, y):
    with torch.no_grad():
        return MSE(model(x), y).item()


FORMS = {
    "pair": lambda x, y: (x, y),
    "tensors": lambda x, y: TensorBatches(x, y, batch_size=7),
    "list": lambda x, y: split(x, y, 10),
    "loader": lambda x, y: loader_over(x, y, batch_size=7, shuffle=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_value_is_the_mean_over_samples_whatever_the_form_and_the_batches(form):
    model, (x, y) = network(), table(100)
    data = FORMS[form](x, y)
    assert Objective(model, MSE, data)() == pytest.approx(value_by_hand(model, x, y), rel=1e-12)
    assert getattr(data, "epoch", 0) == 0  # an evaluation does not count as an epoch


def test_the_same_parts_make_the_same_objective():
    model, (x, y) = network(), table(20)
    assert Objective(model, MSE, (x, y)).is_like(Objective(model, MSE, (x, y)))
    assert not Objective(model, MSE, (x, y)).is_like(Objective(model, MSE, (x, y.clone())))
    assert not Objective(model, MSE, (x, y)).is_like(Objective(model, MSE, (x, y), mode="eval"))


def test_a_batch_dependent_model_is_evaluated_batch_by_batch():
    x, y = table(100)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)).double()
    batches = split(x, y, 10)
    with torch.no_grad():
        expected = sum(MSE(model(a), b).item() for a, b in batches) / 10
    assert Objective(model, MSE, batches)() == pytest.approx(expected, rel=1e-12)


def test_other_batches_by_forward():
    model, (x, y) = network(), table(100)
    batches = [{"x": a, "y": b} for a, b in split(x, y, 30)]
    objective = Objective(model, None, batches, forward=lambda m, b: (MSE(m(b["x"]), b["y"]), len(b["y"])))
    assert objective() == pytest.approx(value_by_hand(model, x, y), rel=1e-12)
    assert objective.samples == 100
    assert Objective(model, None, [1, 2], forward=lambda model, batch: (float(batch), 1))() == 1.5  # plain numbers


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5]])
@pytest.mark.parametrize("ignore", [False, True])
def test_class_weights_and_ignored_targets_change_the_denominator(weights, ignore):
    torch.manual_seed(0)
    x, y = torch.randn(60, 4), torch.randint(0, 3, (60,))
    if ignore:
        y[::7] = y[:7] = -100  # the first batch is ignored altogether
    loss_fn = nn.CrossEntropyLoss(weight=None if weights is None else torch.tensor(weights))
    model = nn.Linear(4, 3)
    with torch.no_grad():
        expected = loss_fn(model(x), y).item()
    assert Objective(model, loss_fn, split(x, y, 7))() == pytest.approx(expected, rel=1e-5)


def test_targets_of_several_tensors_are_counted_by_their_samples():
    x, y = table(30)
    model = network()
    batches = [(x[:20], (y[:20], y[:20])), (x[20:], (y[20:], y[20:]))]
    objective = Objective(model, lambda output, target: MSE(output, target[0]) + MSE(output, target[1]), batches)
    assert objective() == pytest.approx(2 * value_by_hand(model, x, y), rel=1e-12)
    assert objective.samples == 30


class RandomDataset(Dataset):
    """Augments with every global random number generator."""

    def __init__(self):
        self.x, self.y = table(40)

    def __len__(self):
        return 40

    def __getitem__(self, i):
        noise = torch.rand(()) + random.random() + numpy.random.rand()
        return self.x[i] + 0.01 * noise, self.y[i]

    def states(self):
        return (
            torch.get_rng_state().tolist(),
            random.getstate(),
            str(numpy.random.get_state()),
        )


@pytest.mark.parametrize("ask", [Objective.__call__, Objective.probe], ids=["evaluation", "probe"])
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("fails", [False, True])
def test_it_leaves_no_trace_even_if_it_fails(mode, ask, fails):
    dataset = RandomDataset()
    sampler_generator, loader_generator = torch.Generator().manual_seed(2), torch.Generator().manual_seed(3)
    sampler = RandomSampler(dataset, generator=sampler_generator)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, generator=loader_generator)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 1)).double()
    model[1].eval()
    MSE(model(dataset.x), dataset.y).backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    before, states, modes = copied_state(model), dataset.states(), [m.training for m in model.modules()]
    own = sampler_generator.get_state().tolist(), loader_generator.get_state().tolist()
    loss_fn = Normalised()
    buffers = copied_state(loss_fn)
    if fails:
        loss_fn.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError) if fails else nullcontext():
        assert math.isfinite(ask(Objective(model, loss_fn, loader, mode=mode)))
    assert same_state(loss_fn.state_dict(), buffers)
    assert same_state(model.state_dict(), before)
    assert dataset.states() == states
    assert (sampler_generator.get_state().tolist(), loader_generator.get_state().tolist()) == own
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))


def test_it_runs_in_training_mode_by_default_and_respects_frozen_layers():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 1)).double()
    modes = []
    model.register_forward_pre_hook(lambda *_: modes.append([m.training for m in model.modules()]))
    batches = split(*table(20), 20)
    model[1].eval()
    Objective(model, MSE, batches)()
    assert modes.pop() == [True, True, False, True, True]
    model.eval()
    Objective(model, MSE, batches)()
    assert modes.pop() == [True] * 5
    Objective(model, MSE, batches, mode="eval")()
    assert modes.pop() == [False] * 5


def test_a_pass_in_mid_epoch_does_not_disturb_a_loader_with_persistent_workers():
    x, y = table(40)
    loader = loader_over(x, y, batch_size=8, num_workers=1, persistent_workers=True)
    objective = Objective(network(), MSE, loader)
    seen = 0
    for number, (a, _) in enumerate(loader):
        if number == 1:
            objective()
        seen += len(a)
    assert seen == 40


X, Y = table(20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "test"}, "Invalid mode"),
        ({"loss_fn": None}, "needs a loss_fn"),
        ({"loss_fn": nn.MSELoss(reduction="sum")}, "reduction='mean'"),
        ({"model": None}, "torch.nn.Module"),
        ({"data": 3}, "a DataLoader or a list of batches"),
        ({"loss_fn": 3}, "a loss_fn to call"),
        ({"data": iter([(X, Y)])}, "again and again"),
        # From here on what an evaluation meets.
        ({"data": []}, "no sample"),
        ({"data": [(X, Y, Y)]}, "a tuple of 3; pass forward="),
        ({"data": [{"x": X}]}, "a dict; pass forward="),
        ({"data": [(X[:1], torch.tensor(0.0))]}, r"cannot count the samples of a target .* of shape \(\); pass"),
        ({"data": [(X, Y)], "loss_fn": lambda output, target: (output - target) ** 2}, "scalar loss"),
        ({"forward": lambda model, batch: torch.tensor(1.0)}, r"must return \(mean loss, count\).*a tensor"),
        ({"forward": lambda model, batch: (1.0, -1)}, "count -1; expected"),
        ({"forward": lambda model, batch: (1.0, 0)}, "no sample"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_with_advice(arguments, message):
    with pytest.raises(ValueError, match=message):
        Objective(**{"model": network(), "loss_fn": MSE, "data": [(X, Y)], **arguments})()


def test_a_batch_of_its_own_class_is_copied_and_moved_by_its_own_method():
    class Encoding(UserDict):
        def to(self, device):
            self.data = {name: value.to(device) for name, value in self.data.items()}
            self.moved = True
            return self

    x, y = table(20)
    batch, before = Encoding(x=x, y=y), x.clone()
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(x.shape[1], 1)).to(x.dtype)
    Objective(model, None, [batch], forward=lambda model, own: (MSE(model(own["x"]), own["y"]), len(own["y"])))()
    assert torch.equal(x, before)
    assert not hasattr(batch, "moved")


@pytest.mark.parametrize("form", ["list", "loader", "tensors"])
def test_a_layer_that_works_in_place_does_not_reach_the_data(form):
    x, y = table(40)
    kept = x.clone()
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 1)).double()
    forms = {"list": [(x, y)], "loader": DataLoader([(x, y)], batch_size=None), "tensors": (x, y)}
    objective = Objective(model, MSE, forms[form])
    for ask in (objective, objective.probe, objective.probe):
        ask()
    assert torch.equal(x, kept)


def test_every_evaluation_draws_the_same_random_numbers():
    """Dropout, augmentation and order: f is a function of the weights."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)).double()
    objective = Objective(model, MSE, DataLoader(RandomDataset(), batch_size=3, shuffle=True))
    first = objective()
    torch.manual_seed(5)
    assert objective() == first


@pytest.mark.parametrize("form", ["tensors", "loader", "list"])
def test_the_probe_is_a_few_whole_batches_drawn_at_random_and_the_same_every_time(form):
    x = torch.arange(100.0).reshape(-1, 1)
    asked = []

    def forward(_, batch):
        asked.append(batch[0].reshape(-1).tolist())
        return batch[0].mean(), len(batch[0])

    data = {
        "tensors": TensorBatches(x, x, batch_size=10, order="fixed"),
        "loader": loader_over(x, x, batch_size=10, shuffle=True),
        "list": split(x, x, 10),
    }[form]
    objective = Objective(nn.Linear(1, 1), None, data, forward=forward)
    assert objective.probe() == objective.probe()
    assert asked[:4] == asked[4:]
    assert [len(rows) for rows in asked] == [10] * 8
    assert [row for rows in asked[:4] for row in rows] != list(range(40))
    assert objective.evaluations == 0


def test_a_fast_way_takes_over_after_the_first_evaluation_has_counted_the_samples():
    model, (x, y) = network(), table(100)
    objective = Objective(model, MSE, split(x, y, 30))
    objective.fast = lambda: 7.0
    assert objective() == pytest.approx(value_by_hand(model, x, y), rel=1e-12)
    assert objective() == 7.0
    assert (objective.evaluations, objective.evaluated_rows, objective.samples) == (2, 200, 100)
