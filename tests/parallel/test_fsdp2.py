"""Parameters sharded by FSDP2: the run of one process, and no rank ever holds all the weights."""

import gc
import time

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from cmalight import SOAP, CMALight, Objective
from cmalight.evaluation.ranks import local_parts
from tests.helpers import MSE, network, run_epoch, split, table

from .problems import controlled, global_batches, rank_part, train_epochs, train_watched
from .processes import needs_shards_on_the_cpu, on_ranks
from .test_ddp import assert_equal_runs

pytestmark = [needs_shards_on_the_cpu, pytest.mark.filterwarnings("ignore:The observed losses are about")]
RUNS = {"light": {"lr": 1.0}, "weight decay": {"lr": 1.0, "weight_decay": 0.01}}


def sharded(model):
    for layer in model.children():
        if any(True for _ in layer.parameters()):
            fully_shard(layer)
    return fully_shard(model)


def shards(model):
    return [part.detach().clone() for part in local_parts(list(model.parameters()))]


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def _epochs(rank):
    batches, runs = rank_part(global_batches(), rank), {}
    for name, run in RUNS.items():
        reports, weights = train_epochs(sharded(network()), batches, **run)
        runs[name] = reports, {key: value.full_tensor() for key, value in weights.items()}
    return runs


@pytest.mark.slow
def test_two_ranks_of_shards_are_one_process(tmp_path):
    first, second = on_ranks(_epochs, tmp_path)
    for name, run in RUNS.items():
        assert_equal_runs(first[name], train_epochs(network(), global_batches(), **run))
        assert first[name][0] == second[name][0]
    assert {report.outcome.keeps for report in first["light"][0]} == {True, False}


def _watched(rank):
    """The third of seven windows leaps away; then somebody gathers the weights before the next step."""
    batches, results = rank_part(global_batches(), rank), []
    for base in (None, SOAP):
        model = sharded(network())
        optimizer = controlled(model, batches, base=base and base(model.parameters(), lr=0.01))
        train_watched(optimizer, model, batches[:5], epochs=1)
        points = [shards(model)]  # the next window confirms it
        train_watched(optimizer, model, batches[:5], epochs=1)
        points.append(shards(model))
        reports = train_watched(optimizer, model, batches[:5], epochs=1, leaps=(2,))
        undone = any(same(point, shards(model)) for point in points)
        with torch.no_grad():
            model(batches[0][0])
        reports += train_watched(optimizer, model, (batches * 3)[:20], epochs=1)
        results.append((reports, undone))
    return results


def test_windows_on_shards_are_decided_alike_and_undone_bit_for_bit(tmp_path):
    for first, second in zip(*on_ranks(_watched, tmp_path), strict=True):
        assert first[0] == second[0]
        assert first[1]
        assert second[1]
        assert [report.outcome.keeps for report in first[0]] == [False, True, True, True, True]


WIDTH, LAYERS = 41, 6


def deep_model():
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh()) for _ in range(LAYERS)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 1)).double()


def whole_weights():
    """How many tensors of the size of a layer are in memory."""
    gc.collect()  # a cycle that nobody holds any more is not a weight that somebody holds
    return len(
        {
            tensor.untyped_storage().data_ptr()
            for tensor in gc.get_objects()
            if type(tensor) in (torch.Tensor, nn.Parameter) and tensor.untyped_storage().size() >= 8 * WIDTH * WIDTH
        }
    )


def settled(at_most):
    """The same, once the threads that communicate have let go of the buffers they filled last."""
    for _ in range(1000):
        if (number := whole_weights()) <= at_most:
            break
        time.sleep(0.03)
    return number


def _held(_):
    """How many layers are whole at the moments of two runs, one of them under the paper's rule."""

    def refuse(*_, **__):
        raise AssertionError("somebody asked for a full tensor")

    gc.freeze()  # so that only tensors made from now on are looked at
    batches = split(*table(16, WIDTH, noise=0.3), 4)
    model = sharded(deep_model())
    within, between = [], []
    for layer in model:
        layer.register_forward_hook(lambda *_: within.append(settled(2)))
    DTensor.full_tensor = DTensor.redistribute = refuse
    optimizer, objective = CMALight(model.parameters(), lr=2.0), Objective(model, MSE, batches)
    kept = set()
    for _ in range(4):
        kept.add(run_epoch(optimizer, objective, model, batches).outcome.keeps)
        between.append(settled(0))
    watched = controlled(model, batches)
    for _ in range(2):
        train_watched(watched, model, batches, epochs=2)
        between.append(settled(0))
    return kept, max(within), set(between)


def test_no_rank_ever_holds_all_the_weights(tmp_path):
    for kept, within, between in on_ranks(_held, tmp_path):
        assert False in kept
        assert 1 <= within <= 2  # the layer that is computed, and at most a neighbour
        assert between == {0}


def _saved(rank, folder):
    batches = rank_part(global_batches(), rank)
    paper, watched = sharded(network()), sharded(network())
    optimizer, objective = CMALight(paper.parameters(), lr=1.0), Objective(paper, MSE, batches)
    for _ in range(5):
        run_epoch(optimizer, objective, paper, batches)
    other = controlled(watched, batches)
    train_watched(other, watched, batches[:5], epochs=2)
    for name, model, one in (("paper", paper, optimizer), ("watched", watched, other)):
        weights, state = get_state_dict(model, one)
        dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder / name)
    return train_watched(other, watched, batches[:5], epochs=2)


def _load(model, optimizer, folder):
    weights, state = get_state_dict(model, optimizer)
    loaded = {"model": weights, "optimizer": state}
    dcp.load(loaded, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])


@pytest.mark.filterwarnings("ignore:torch.distributed is (disabled, )?unavailable or uninitialized:UserWarning")
def test_a_checkpoint_of_two_ranks_goes_on_in_one_process(tmp_path):
    expected, _ = on_ranks(_saved, tmp_path, tmp_path / "checkpoint")
    model, batches = network(seed=1), global_batches()
    optimizer = CMALight(model.parameters(), lr=0.123)
    _load(model, optimizer, tmp_path / "checkpoint" / "paper")
    objective = Objective(model, MSE, batches)
    reports = [run_epoch(optimizer, objective, model, batches) for _ in range(5)]
    whole, weights = train_epochs(network(), batches, lr=1.0)
    assert_equal_runs((reports, model.state_dict()), (whole[5:], weights))
    model = network(seed=1)
    watched = controlled(model, batches)
    _load(model, watched, tmp_path / "checkpoint" / "watched")
    assert watched.steps == 10
    reports = train_watched(watched, model, batches[:5], epochs=2)
    assert [r.outcome for r in reports] == [r.outcome for r in expected]
    assert [r.bound for r in reports] == pytest.approx([r.bound for r in expected], rel=0.5)
