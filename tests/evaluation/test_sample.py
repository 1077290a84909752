"""Which rows a sample has, and what evaluating it leaves behind."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from cmalight import Objective, TensorBatches
from cmalight.evaluation.sample import sample_parts

MSE = nn.MSELoss()


def sample_batches(data, **options):
    return next(sample_parts(data, **options))


def rows_of(batches):
    return torch.cat([batch[0].reshape(-1) for batch in batches]).tolist()


def numbered(rows=1000):
    x = torch.arange(float(rows)).unsqueeze(1)
    return x, x.clone()


@pytest.mark.parametrize(("batch_size", "rows"), [(100, 100), (8, 16), (2000, 512)])
def test_one_batch_where_rows_are_dear(batch_size, rows):
    batches = sample_batches(TensorBatches(*numbered(3000), batch_size=batch_size), products=math.inf)
    assert [len(x) for x, _ in batches] == [rows]


def test_many_rows_where_they_cost_nothing():
    batches = sample_batches(TensorBatches(*numbered(), batch_size=32), products=10)
    assert [len(x) for x, _ in batches] == [512]


def test_rows_are_cheap_in_a_small_network_of_linear_layers_alone():
    x = torch.randn(600, 3)
    for layers, rows in (([], 512), ([nn.Dropout()], 512), ([nn.LayerNorm(1)], 20)):
        objective = Objective(nn.Sequential(nn.Linear(3, 1), *layers), MSE, TensorBatches(x, x[:, :1], batch_size=20))
        objective.sample()()
        assert objective.evaluated_rows == rows


def test_rows_come_from_all_of_sorted_data_and_are_the_same_every_time():
    data = TensorBatches(*numbered(), batch_size=32)
    rows = rows_of(sample_batches(data, products=10**9))
    assert min(rows) < 200
    assert max(rows) > 800
    assert rows == rows_of(sample_batches(data, products=10**9))


def test_rows_of_the_users_own_choice():
    data = TensorBatches(*numbered(), batch_size=2)
    assert rows_of(sample_batches(data, products=1, rows=[5, 999, 7])) == [5.0, 999.0, 7.0]
    loader = DataLoader(TensorDataset(*numbered()), batch_size=2)
    assert rows_of(sample_batches(loader, products=1, rows=[5, 999, 7])) == [5.0, 999.0, 7.0]
    with pytest.raises(ValueError, match="sample_rows"):
        sample_batches([(torch.ones(1), torch.ones(1))], products=1, rows=[0])


def test_a_sampler_of_a_part_of_the_data_gives_rows_of_that_part():
    loader = DataLoader(TensorDataset(*numbered()), batch_size=16, sampler=SubsetRandomSampler(range(100)))
    assert max(rows_of(sample_batches(loader, products=10**9))) < 100


@pytest.mark.parametrize("num_samples", [32, 1024])
def test_a_sampler_with_replacement_gives_rows_of_all_the_data(num_samples):
    dataset = TensorDataset(*numbered())
    sampler = RandomSampler(dataset, replacement=True, num_samples=num_samples)
    rows = rows_of(sample_batches(DataLoader(dataset, batch_size=16, sampler=sampler), products=10))
    assert min(rows) < 250
    assert max(rows) > 750


def test_batches_that_a_sampler_of_the_users_own_cuts():
    class Pairs(BatchSampler):
        def __iter__(self):
            yield from ([2 * i, 2 * i + 1] for i in range(10))

    loader = DataLoader(TensorDataset(*numbered()), batch_sampler=Pairs(range(1000), 2, drop_last=False))
    batches = sample_batches(loader, products=10**9)
    assert [len(x) for x, _ in batches] == [2]
    assert all(x[1] == x[0] + 1 for x, _ in batches)


def test_only_the_rows_of_the_sample_are_read():
    class Counting(Dataset):
        read = 0

        def __len__(self):
            return 10_000

        def __getitem__(self, number):
            self.read += 1
            return torch.full((1,), float(number)), torch.zeros(1)

    dataset = Counting()
    sample_batches(DataLoader(dataset, batch_size=8), products=10**9)
    assert dataset.read == 16


def test_the_mean_is_that_of_its_rows_and_repeats_bit_for_bit_with_dropout():
    torch.manual_seed(0)
    x = torch.randn(600, 3)
    data = TensorBatches(x, x[:, :1], batch_size=20)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    sample = Objective(model, MSE, data).sample()
    first = sample()
    torch.manual_seed(5)
    assert sample() == first
    plain = Objective(model, MSE, data, mode="eval", sample_rows=[0, 1, 2]).sample()()
    with torch.no_grad():
        assert plain == pytest.approx(float(MSE(model.eval()(x[:3]), x[:3, :1])), rel=1e-6)


def test_looks_are_counted_by_their_rows_and_not_as_evaluations():
    x = torch.randn(600, 3)
    objective = Objective(nn.Linear(3, 1), MSE, TensorBatches(x, x[:, :1], batch_size=20))
    sample = objective.sample()
    sample()
    assert (objective.evaluations, objective.evaluated_rows) == (0, 512)
    objective()
    assert (objective.evaluations, objective.evaluated_rows) == (1, 1112)


def constant_model():
    model = nn.Linear(1, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def test_the_error_is_about_the_standard_error_of_the_rows():
    torch.manual_seed(0)
    for rows in (512, 5000):  # all of them are the sample; others are beside it
        y = torch.randn(rows, 1)
        error = Objective(constant_model(), MSE, (torch.ones(rows, 1), y)).sample().error()
        expected = float(y.square().std()) / 512**0.5
        assert 0.5 * expected < error < 2.0 * expected


def test_the_error_shows_what_a_sample_without_the_rare_large_rows_misses():
    y = torch.zeros(5000, 1)
    others = torch.ones(5000, dtype=torch.bool)
    objective = Objective(constant_model(), MSE, (torch.ones(5000, 1), y))
    drawn = next(sample_parts(TensorBatches(torch.arange(5000.0), y), products=2))[0][0].long()
    others[drawn] = False
    y[others.nonzero()[::100]] = 100.0
    assert objective.sample()() == 0.0
    assert 0.5 * objective() < objective.sample().error() < 2.0 * objective()


def test_a_row_outside_the_sample_that_is_not_finite_does_not_hide_the_error():
    torch.manual_seed(0)
    y = torch.randn(5000, 1)
    objective = Objective(constant_model(), MSE, (torch.ones(5000, 1), y))
    drawn = [part[0][0].long() for part in sample_parts(TensorBatches(torch.arange(5000.0), y), products=2)]
    y[drawn[1][0]] = math.nan
    assert math.isfinite(objective.sample()())
    assert 0.02 < objective.sample().error() < 0.2  # sqrt(2 / 512) is 0.06


def test_a_batch_sampler_of_torch_has_the_size_of_the_batches():
    dataset = TensorDataset(*numbered())
    loader = DataLoader(dataset, batch_sampler=BatchSampler(RandomSampler(dataset), 100, drop_last=False))
    assert len(rows_of(sample_batches(loader, products=math.inf))) == 100


def test_parts_have_no_row_in_common_and_are_equally_large():
    parts = list(sample_parts(TensorBatches(*numbered(), batch_size=300), products=10**9))
    rows = [row for part in parts for row in rows_of(part)]
    assert [len(rows_of(part)) for part in parts] == [300, 300, 300]
    assert len(set(rows)) == 900


def test_a_stream_gives_one_batch_as_the_sample_and_the_next_ones_as_other_parts():
    class Stream(IterableDataset):
        def __iter__(self):
            yield from (torch.full((1,), float(i)) for i in range(100))

    parts = list(sample_parts(DataLoader(Stream(), batch_size=4), products=1))
    assert parts[0][0].flatten().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert len(parts) == 8


def test_the_error_of_dict_batches_and_of_what_cannot_be_cut():
    model = nn.Linear(2, 1)
    batch = {"x": torch.randn(40, 2), "name": "train"}
    objective = Objective(model, None, [batch], forward=lambda m, b: (m(b["x"]).square().mean(), len(b["x"])))
    assert objective.sample().error() > 0
    single = Objective(model, None, [1.0], forward=lambda m, b: (m.weight.sum() * b, 1))
    assert single.sample().error() == 0.0


def test_an_empty_loader_is_refused():
    loader = DataLoader(TensorDataset(torch.zeros(0, 3), torch.zeros(0, 1)), batch_size=4)
    with pytest.raises(ValueError, match="the data are empty"):
        Objective(nn.Linear(3, 1), nn.MSELoss(), loader).sample()()
