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

from cmalight import CMALight, Controlled, Objective, Outcome
from cmalight.parallel.shards import local
from tests.helpers import MSE, network, run_epoch, split, table

from .problems import global_batches, rank_part, train, uneven_part
from .processes import on_ranks
from .test_ddp import assert_equal_runs

RUNS = {"light": {"lr": 1.0}, "weight decay": {"lr": 1.0, "weight_decay": 0.01}}


def sharded(model):
    for layer in model.children():
        if any(True for _ in layer.parameters()):
            fully_shard(layer)
    return fully_shard(model)


def _trained(rank):
    batches = global_batches()
    parts = {"light": rank_part(batches, rank, 2), "weight decay": uneven_part(batches, rank)}
    runs = {}
    for name, run in RUNS.items():
        reports, weights, _ = train(network(), parts[name], epochs=10, wrap=sharded, **run)
        runs[name] = reports, {key: value.full_tensor() for key, value in weights.items()}, None
    return runs


@pytest.mark.slow
def test_two_ranks_of_shards_are_one_process(tmp_path):
    first, second = on_ranks(_trained, tmp_path)
    for name, run in RUNS.items():
        assert_equal_runs(first[name], train(network(), global_batches(), epochs=10, **run))
        assert [repr(report) for report in first[name][0]] == [repr(report) for report in second[name][0]]


def shards(model):
    return [local(p).clone() for p in model.parameters()]


def _rejected(rank):
    """Epochs that are undone, early and at their end; in the second one the weights are whole when it ends."""
    batches = rank_part(global_batches(), rank, 2)
    model = sharded(network())
    same = []
    for early in (True, False):
        optimizer = CMALight(model.parameters(), lr=1.0)
        objective = Objective(model, MSE, batches)
        before, expected = shards(model), objective()
        with optimizer.epoch(objective) as epoch:
            for x, y in epoch.batches(batches) if early else batches:
                optimizer.zero_grad()
                loss = MSE(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
            with torch.no_grad():
                model(batches[0][0])
        assert epoch.report.outcome in (Outcome.REJECTED_EARLY, Outcome.SEARCH_FAILED_REJECTED)
        same.append(all(torch.equal(a, b) for a, b in zip(before, shards(model), strict=True)))
        same.append(objective() == expected)
    return same


def test_an_epoch_is_undone_bit_for_bit_on_every_rank(tmp_path):
    assert on_ranks(_rejected, tmp_path) == [[True] * 4] * 2


class BreaksOff(list):
    """A loader that fails after its batches."""

    def __iter__(self):
        yield from super().__iter__()
        raise OSError("the disk is gone")


def _failing(rank):
    """The loss of rank 1 fails in its second batch, then its loader; what both ranks say, and that they can go on."""
    batches = rank_part(global_batches(), rank, 2)
    model = sharded(network())
    calls = []

    def loss_fn(output, target):
        calls.append(1)
        return MSE(output, target) if rank == 0 or len(calls) != 2 else 1 / 0

    said = []
    for objective in (
        Objective(model, loss_fn, batches),
        Objective(model, MSE, BreaksOff(batches[:2]) if rank else batches),
    ):
        with pytest.raises((RuntimeError, ZeroDivisionError, OSError)) as caught:
            objective()
        said.append(str(caught.value))
    return said, Objective(model, MSE, batches)()


def test_an_evaluation_that_fails_on_one_rank_outside_the_model_raises_on_all(tmp_path):
    (told, value), (raised, other_value) = on_ranks(_failing, tmp_path)
    assert told == ["The evaluation failed on rank 1: see the error there"] * 2
    assert raised == ["division by zero", "the disk is gone"]
    assert value == other_value


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


def settled(at_most: int) -> int:
    """The same, once the threads that communicate have let go of the buffers they filled last."""
    for _ in range(1000):
        if (number := whole_weights()) <= at_most:
            break
        time.sleep(0.03)
    return number


def _watched(_):
    """A run with rejections and searches, and how many layers were whole at its moments."""

    def refuse(*_, **__):
        raise AssertionError("somebody asked for a full tensor")

    gc.freeze()  # so that only tensors made from now on are looked at
    batches = split(*table(16, WIDTH, noise=0.3), 4)
    model = sharded(deep_model())
    within: list[int] = []
    between: list[int] = []
    for layer in model:
        layer.register_forward_hook(lambda *_: within.append(settled(2)))
    DTensor.full_tensor = DTensor.redistribute = refuse
    optimizer = CMALight(model.parameters(), lr=2.0)
    objective = Objective(model, MSE, batches)
    outcomes = set()
    for _ in range(6):
        outcomes.add(run_epoch(optimizer, objective, model, batches, early=True).outcome)
        between.append(settled(0))
        objective()
        between.append(settled(0))
    local_sizes = [local(p).numel() for p in model.parameters()]
    return outcomes, max(within), set(between), max(local_sizes)


def test_no_rank_ever_holds_all_the_weights(tmp_path):
    for outcomes, within, between, largest_shard in on_ranks(_watched, tmp_path):
        assert outcomes & {Outcome.REJECTED_EARLY, Outcome.SEARCH_FAILED_REJECTED}
        assert any(outcome.name.startswith("SEARCH") for outcome in outcomes)
        assert 1 <= within <= 2  # the layer that is computed, and at most a neighbour
        assert between == {0}
        assert largest_shard <= (WIDTH + 1) // 2 * WIDTH


def _saved(rank, folder):
    batches = rank_part(global_batches(), rank, 2)
    model = sharded(network())
    optimizer = CMALight(model.parameters(), lr=1.0)
    objective = Objective(model, MSE, batches)
    for _ in range(5):
        run_epoch(optimizer, objective, model, batches, early=True)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized:UserWarning")
def test_a_checkpoint_of_two_ranks_goes_on_in_one_process(tmp_path):
    on_ranks(_saved, tmp_path, tmp_path / "checkpoint")
    model = network(seed=1)
    optimizer = CMALight(model.parameters(), lr=0.123)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=tmp_path / "checkpoint")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    batches = global_batches()
    objective = Objective(model, MSE, batches)
    reports = [run_epoch(optimizer, objective, model, batches, early=True) for _ in range(5)]
    whole, weights, _ = train(network(), batches, epochs=10, lr=1.0)
    assert_equal_runs((reports, model.state_dict(), None), (whole[5:], weights, None))


# The step size follows the budget alone, so that it does not matter that a sample of two ranks has other rows.
WINDOWS = {"usual": 0.01, "growth": 1.0, "window": 2, "max_epochs": 6, "tolerance": 0.5}


def _adam(params, **options):
    return Controlled(torch.optim.Adam(params, lr=0.01, eps=1e-15), **options)


def _in_windows(rank):
    """Epochs judged in parts, by a sample, with a budget; one of them by weights that leap away."""
    batches = rank_part(global_batches(), rank, 2)
    model = sharded(network())
    optimizer = _adam(model.parameters(), **WINDOWS)
    objective = Objective(model, MSE, batches)
    reports = [run_epoch(optimizer, objective, model, batches, early=True) for _ in range(5)]
    before = shards(model)
    optimizer.base.register_step_post_hook(lambda *_: [local(p).detach().add_(100.0) for p in model.parameters()])
    reports.append(run_epoch(optimizer, objective, model, batches, early=True))
    undone = all(torch.equal(a, b) for a, b in zip(before, shards(model), strict=True))
    return [repr(report) for report in reports], undone, [report.f_tilde for report in reports]


def test_windows_samples_and_a_budget_on_shards(tmp_path):
    (first, undone, losses), (second, also_undone, _) = on_ranks(_in_windows, tmp_path)
    assert first == second
    assert undone
    assert also_undone
    alone = train(network(), global_batches(), epochs=5, make=_adam, **WINDOWS)[0]
    assert losses[:5] == pytest.approx([report.f_tilde for report in alone], rel=1e-4)
    assert "REFUSED" in first[-1]
