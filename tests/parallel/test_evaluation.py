"""A full evaluation on ranks: shared out, every sample once, and nobody waits for a broadcast of buffers."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from cmalight import Objective
from tests.helpers import MSE, copied_state, network, same_state, split, table

from .processes import on_ranks

SAMPLES = 101  # so that a DistributedSampler repeats one


class Watched(nn.Module):
    """Counts the samples that it sees."""

    def __init__(self):
        super().__init__()
        self.network = network()
        self.seen = 0

    def forward(self, x):
        self.seen += len(x)
        return self.network(x)


class Rows(Dataset):
    """Not a TensorDataset."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        x, y = table(SAMPLES)
        return x[index], y[index]


def _shared_out(rank):
    x, y = table(SAMPLES)
    expected = MSE(network()(x), y).item()
    model = DDP(Watched())
    dataset = TensorDataset(x, y)
    loaders = {
        "sampler": DataLoader(dataset, batch_size=16, sampler=DistributedSampler(dataset, shuffle=True)),
        "rows": DataLoader(Rows(), batch_size=16, sampler=DistributedSampler(Rows())),
        "own list": split(x[:40], y[:40], 16) if rank == 0 else split(x[40:], y[40:], 16),
        "nothing": [] if rank == 0 else [(x, y)],
    }
    found = {}
    for name, loader in loaders.items():
        objective = Objective(model, MSE, loader)
        model.module.seen = 0
        value = objective()
        found[name] = value - expected, objective.samples, model.module.seen
    return found


def test_every_sample_is_evaluated_once_by_one_of_the_ranks(tmp_path):
    first, second = on_ranks(_shared_out, tmp_path)
    for name, (difference, samples, seen) in first.items():
        other_difference, _, other_seen = second[name]
        assert abs(difference) < 1e-12, name
        assert other_difference == difference
        assert samples == seen + other_seen == SAMPLES, name
    assert (first["sampler"][2], second["sampler"][2]) == (51, 50)
    assert first["nothing"][2] == 0


def _with_buffers(rank):
    x, y = table(100)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double())
    MSE(model(x), y).backward()
    model.module[1].running_mean += rank  # what a broadcast would overwrite
    before = copied_state(model)
    batches = split(x, y, 20)[: 1 + 3 * rank]  # so that a broadcast with each forward pass would hang
    Objective(model, MSE, batches)()
    return same_state(copied_state(model), before)


def test_evaluating_broadcasts_no_buffers(tmp_path):
    assert on_ranks(_with_buffers, tmp_path) == [True, True]


def _probed(rank):
    """Each rank has its part of 6,000 rows."""
    x, y = table(6000)
    objective = Objective(DDP(network()), MSE, split(x[rank::2], y[rank::2], 100))
    return objective.probe(), objective.probe(), objective()


def test_the_probe_is_the_same_number_on_every_rank(tmp_path):
    first, second = on_ranks(_probed, tmp_path)
    assert first == second
    value, again, whole = first
    assert value == again
    assert value == pytest.approx(whole, rel=0.3)
    assert value != whole


def _sharded_unequally(rank):
    """A forward pass of sharded weights talks to the others, so unequal passes would hang."""
    from .test_fsdp2 import sharded

    x, y = table(100)
    model = sharded(network())
    with pytest.raises(ValueError, match=r"their data have \[2, 4\] batches") as caught:
        Objective(model, MSE, split(x, y, 20)[: 2 + 2 * rank])()
    return str(caught.value)


def test_unequal_passes_through_sharded_weights_are_refused_on_all_ranks(tmp_path):
    first, second = on_ranks(_sharded_unequally, tmp_path)
    assert first == second
