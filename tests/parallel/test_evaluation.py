"""A full evaluation on ranks: shared out, every sample once, and nobody waits for a broadcast of buffers."""

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, SequentialSampler, TensorDataset

from cmalight import CMALight, Objective
from cmalight.evaluation.rank_parts import own_part
from cmalight.parallel.ranks import Ranks
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


class Rows(torch.utils.data.Dataset):
    """Not a TensorDataset."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        x, y = table(SAMPLES)
        return x[index], y[index]


def _shared_out(rank):
    x, y = table(SAMPLES)
    expected = float(MSE(network()(x), y))
    model = DDP(Watched())
    dataset = TensorDataset(x, y)
    loaders = {
        "sampler": (DataLoader(dataset, batch_size=16, sampler=DistributedSampler(dataset, shuffle=True)), False),
        "rows": (DataLoader(Rows(), batch_size=16, sampler=DistributedSampler(Rows())), False),
        "own list": (split(x[:40], y[:40], 16) if rank == 0 else split(x[40:], y[40:], 16), False),
        "nothing": ([] if rank == 0 else [(x, y)], False),
        "whole list": (split(x, y, 16), True),
        "whole loader": (DataLoader(dataset, batch_size=16, shuffle=True), True),
    }
    found = {}
    for name, (loader, whole) in loaders.items():
        objective = Objective(model, MSE, loader, merge=False, whole=whole)
        model.module.seen = 0
        value = objective()
        found[name] = value - expected, objective.samples, model.module.seen
    average = CMALight(model.parameters())
    average.restart(lambda: 1.0 + rank)
    return found, average.param_groups[0]["f_0"]


def test_every_sample_is_evaluated_once_by_one_of_the_ranks(tmp_path):
    (first, average), (second, _) = on_ranks(_shared_out, tmp_path)
    for name, (difference, samples, seen) in first.items():
        other_difference, _, other_seen = second[name]
        assert abs(difference) < 1e-12, name
        assert other_difference == difference
        assert samples == seen + other_seen == SAMPLES, name
    assert (first["sampler"][2], second["sampler"][2]) == (51, 50)
    assert 40 < first["whole list"][2] < 60
    assert first["nothing"][2] == 0
    assert average == 1.5  # any other callable is averaged


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


def test_the_batches_that_accelerate_repeats_count_once():
    dataset = TensorDataset(torch.arange(7), torch.arange(7))
    seen = []
    for rank in range(2):
        sampler = BatchSampler(SequentialSampler(dataset), 2, drop_last=False)
        loader = DataLoader(dataset, batch_sampler=BatchSamplerShard(sampler, 2, rank))
        part = own_part(loader, Ranks(2, rank, None, torch.device("cpu")), whole=False)
        seen += [int(i) for inputs, _ in part for i in inputs]
    assert sorted(seen) == list(range(7))


def _sampled(rank, lies_outside=None):
    """Each rank has its part of 6,000 rows."""
    x, y = table(6000)
    if lies_outside is not None:
        y[lies_outside] += 1000.0
    part = split(x[rank::2], y[rank::2], 20)
    model = DDP(network())
    objective = Objective(model, MSE, part)
    sample = objective.sample()
    return sample(), sample(), objective()


def test_a_sample_is_the_same_number_on_every_rank(tmp_path):
    first, second = on_ranks(_sampled, tmp_path)
    assert first == second
    value, again, whole = first
    assert value == again
    assert value == pytest.approx(whole, rel=0.15)
    assert value != whole


def test_a_row_that_lies_outside_the_part_of_one_rank_is_in_the_sample_of_all(tmp_path):
    first, second = on_ranks(_sampled, tmp_path, 5)
    assert first == second
    value, again, whole = first
    assert value == again
    assert value == pytest.approx(whole, rel=0.15)
