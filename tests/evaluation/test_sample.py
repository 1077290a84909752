"""A fixed sample of the data: which rows, the same value every time, and no trace of having been evaluated."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from cmalight import Controlled, Objective, TensorBatches
from cmalight.evaluation.sample import WHOLE, chosen_batches, outlying_rows
from tests.helpers import MSE, copied_state, network, run_epoch, same_state, split, table


def rows(count: int):
    """Each row says its number."""
    numbers = torch.arange(count, dtype=torch.float64).reshape(-1, 1)
    return numbers, numbers.clone()


def chosen(loader, *, may_merge=True):
    drawn = chosen_batches(loader, may_merge=may_merge)
    return torch.cat([x for x, _ in drawn.batches]).flatten().tolist(), drawn.is_whole


LOADERS = {
    "tensors": lambda pair, size: TensorBatches(*pair, batch_size=size),
    "loader": lambda pair, size: DataLoader(TensorDataset(*pair), batch_size=size, shuffle=True),
    "list": lambda pair, size: split(*pair, size),
}
each_loader = pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS.keys())


@each_loader
def test_of_few_rows_all_are_the_sample(make):
    numbers, is_whole = chosen(make(rows(300), 16))
    assert sorted(numbers) == list(range(300))
    assert is_whole


@each_loader
def test_of_many_rows_a_small_part_is_drawn_from_everywhere(make):
    numbers, is_whole = chosen(make(rows(20_000), 10))
    assert not is_whole
    assert 256 <= len(numbers) <= 1_400
    assert len(set(numbers)) == len(numbers)
    assert np.mean(numbers) == pytest.approx(10_000, rel=0.25)
    assert min(numbers) < 4_000
    assert max(numbers) > 16_000


@each_loader
def test_the_same_rows_are_drawn_every_time_whatever_the_random_numbers(make):
    torch.manual_seed(1)
    first = chosen(make(rows(20_000), 10))
    torch.manual_seed(2)
    random.seed(3)
    assert chosen(make(rows(20_000), 10)) == first


def test_it_is_never_more_than_a_few_thousand_rows():
    numbers, _ = chosen(TensorBatches(*rows(200_000), batch_size=128))
    assert len(numbers) == 512 < WHOLE


def test_batches_that_cannot_be_merged_keep_their_size():
    """As BatchNorm needs it; from two to four of them."""
    for count, expected in ((100, 2), (1_000, 3), (20_000, 4)):
        drawn = chosen_batches(TensorBatches(*rows(count), batch_size=20), may_merge=False)
        assert not drawn.is_whole
        assert [len(x) for x, _ in drawn.batches] == [20] * expected


def test_of_a_stream_the_first_batches_are_taken():
    class Stream(IterableDataset):
        def __iter__(self):
            number = 0.0
            while True:
                yield torch.tensor([number]), torch.tensor([number])
                number += 1.0

    numbers, is_whole = chosen(DataLoader(Stream(), batch_size=4))
    assert numbers == [float(n) for n in range(16)]
    assert not is_whole


def objective_of(model, samples=5_000, size=20, loader=None, **options):
    batches = split(*table(samples=samples), size)
    return Objective(model, MSE, batches if loader is None else loader, **options)


def test_its_value_is_near_that_of_all_the_data():
    objective = objective_of(network())
    assert objective.sample()() == pytest.approx(objective(), rel=0.1)


def test_of_few_rows_it_is_the_objective():
    objective = objective_of(network(), samples=300)
    sample = objective.sample()
    assert sample.is_whole
    assert sample() == pytest.approx(objective(), rel=1e-12)


def normed() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Sigmoid(), nn.Dropout(0.5), nn.Linear(6, 1)).double()


def test_batch_norm_sees_batches_of_the_usual_size():
    model = normed()
    sizes = []
    model[1].register_forward_pre_hook(lambda _module, inputs: sizes.append(len(inputs[0])))
    objective = objective_of(model, samples=300)
    sample = objective.sample()
    sizes.clear()
    sample()
    assert set(sizes) == {20} | {sizes[-1]}


def test_dropout_draws_the_same_masks_every_time():
    sample = objective_of(normed()).sample()
    first = sample()
    torch.rand(7)
    assert sample() == first


def states():
    return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())


def test_making_and_evaluating_it_leaves_no_trace():
    """Neither in weights, buffers, gradients and modes, nor in any random numbers."""
    model = normed()
    batches = split(*table(samples=5_000), 20)
    loss = MSE(model(batches[0][0]), batches[0][1])
    loss.backward()
    before = copied_state(model), [p.grad.clone() for p in model.parameters()], states()
    modes = [module.training for module in model.modules()]
    sample = Objective(model, MSE, batches).sample()
    sample()
    assert same_state(copied_state(model), before[0])
    assert all(map(torch.equal, (p.grad for p in model.parameters()), before[1]))
    assert states() == before[2]
    assert [module.training for module in model.modules()] == modes


class Augmented(Dataset):
    """Every look at a row adds another noise, from each of the usual generators."""

    def __init__(self, samples: int) -> None:
        self.x, self.y = table(samples=samples)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, number: int):
        noise = torch.randn(4, dtype=torch.float64) + random.gauss(0.0, 1.0) + np.random.randn()
        return self.x[number] + noise, self.y[number]


@pytest.mark.parametrize("samples", [100, 5_000])
def test_augmentation_is_drawn_once_and_disturbs_nobody(samples):
    loader = DataLoader(Augmented(samples), batch_size=10, shuffle=True)
    objective, other = objective_of(network(), loader=loader), objective_of(network(), loader=loader)
    before = states()
    sample = objective.sample()
    first = sample()
    assert states() == before
    assert sample() == first
    random.seed(5)
    torch.manual_seed(5)
    assert other.sample()() == first


@pytest.mark.parametrize("seed", [0, 1])
def test_an_epoch_with_a_sample_draws_the_numbers_of_one_without(seed):
    """So that dropout and shuffling are those of the base alone."""
    torch.manual_seed(seed)
    model = normed()
    batches = split(*table(samples=3_000), 100)
    torch.manual_seed(seed)
    run_epoch(Controlled(torch.optim.Adam(model.parameters(), lr=1e-3)), Objective(model, MSE, batches), model, batches)
    after = torch.get_rng_state()
    torch.manual_seed(seed)
    for x, _ in batches:
        model(x)
    assert torch.equal(torch.get_rng_state(), after)


def test_an_objective_that_is_a_plain_function_is_evaluated_itself():
    model = network()
    batches = split(*table(), 20)
    calls = []

    def objective() -> float:
        calls.append(1)
        with torch.no_grad():
            return MSE(model(batches[0][0]), batches[0][1]).item()

    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=1e-3))
    run_epoch(optimizer, objective, model, batches)
    assert optimizer.evaluations == len(calls) == 2


def test_of_a_large_model_a_few_batches_have_to_do():
    x, y = table(1600)
    drawn = chosen_batches(TensorBatches(x, y, batch_size=16), may_merge=True, weights=10_000_000)
    assert not drawn.is_whole
    assert sum(len(part) for part, _ in drawn.batches) == 4 * 16


def with_outlying(kind: str):
    """5,000 rows; what lies outside is in rows 7 and 4,000 of them."""
    x, y = table(5_000)
    if kind == "large inputs":
        x[[7, 4_000]] *= 300.0
    elif kind == "a large target":
        y[[7, 4_000]] += 300.0
    elif kind == "a rare feature":
        x[:, 2] = 0.0
        x[[7, 4_000], 2] = 100.0
    return x, y


def outlying(*tensors, most=64):
    return outlying_rows(tensors, most=most)


@each_loader
@pytest.mark.parametrize("kind", ["large inputs", "a large target", "a rare feature"])
def test_rows_that_lie_far_outside_are_in_it_and_count_as_what_they_are(make, kind):
    x, y = with_outlying(kind)
    drawn = chosen_batches(make((x, y), 20), may_merge=True, count=len)
    far = torch.cat([some for some, _ in drawn.outlying])
    assert {7, 4_000} <= {int((x == row).all(1).nonzero()[0]) for row in far}
    assert all(len(some) <= 20 for some, _ in drawn.outlying)
    assert (drawn.count, drawn.rows) == (len(far), 5_000)
    assert len(far) <= 512 / 8
    others = torch.cat([some for some, _ in drawn.batches])
    assert len(others) == 512
    assert not any(torch.equal(row, other) for row in far for other in others)
    torch.manual_seed(0)
    objective = Objective(nn.Linear(4, 1).double(), MSE, make((x, y), 20))
    assert objective.sample()() == pytest.approx(objective(), rel=0.1)


def test_of_a_table_without_such_rows_nothing_is_apart():
    assert outlying(*table(5_000)) == []
    assert chosen_batches(TensorBatches(*table(5_000)), may_merge=True, count=len).count == 0


def test_what_has_no_variance_or_is_no_number_lies_nowhere():
    x = torch.ones(3_000, 3)
    assert outlying(x, torch.arange(3_000)) == []
    assert outlying(torch.zeros(3_000, 0), x) == []
    x[5, 0], x[6, 1] = torch.inf, torch.nan
    assert outlying(x) == []
    assert outlying() == []
    x[7, 2] = 1e30  # whose square is beyond single precision
    assert 7 in outlying(x)
    half = torch.zeros(3_000, 1, dtype=torch.float16)
    half[9] = 6e4
    assert 9 in outlying(half)
    assert outlying(half.to_sparse()) == []


def test_of_many_that_lie_outside_the_farthest_are_taken_from_each_column():
    x = torch.zeros(5_000, 120)
    x[range(100), range(100)] = 1.0  # a category of one row
    x[200:230, 110] = 50.0  # a feature that thirty rows have
    x[300, 111], x[301, 111] = 1e6, 1e3  # the one hides the other from the variance
    found = outlying(x)
    assert len(found) == 64
    assert found == sorted(found)
    assert {300, 301} <= set(found)
    assert sum(200 <= row < 230 for row in found) == 4
    assert outlying(x, most=2) == [300, 301]


@pytest.mark.parametrize("samples", [300, 2_000])
def test_of_few_rows_none_is_looked_for(samples):
    """Of few rows and many columns all could lie outside one; a large model makes the sample a part of them."""
    x = torch.randn(samples, 2_000, generator=torch.Generator().manual_seed(0))
    x[3] *= 1000.0
    drawn = chosen_batches(TensorBatches(x, x[:, :1], batch_size=8), may_merge=True, weights=10_000_000, count=len)
    assert drawn.count == 0
    assert not drawn.is_whole


@pytest.mark.parametrize("options", [{"ignore_index": 2}, {"weight": torch.tensor([1.0, 5.0, 0.0])}])
def test_where_rows_count_differently_none_is_taken_apart(options):
    """Their share of the data would not be their share of the mean."""
    x = torch.randn(5_000, 3, generator=torch.Generator().manual_seed(0))
    y = torch.arange(5_000) % 3
    x[2] *= 1000.0  # which does not count
    torch.manual_seed(0)
    model, loss_fn = nn.Linear(3, 3), nn.CrossEntropyLoss(**options)
    objective = Objective(model, loss_fn, TensorBatches(x, y, batch_size=50), merge=True)
    assert objective.sample()() == pytest.approx(objective(), rel=0.1)
