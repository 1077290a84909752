"""Ranks under DDP are one process: the same steps, the same decisions, the same weights."""

import itertools
import weakref
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from cmalight import CMA, CMALight, Controlled, Objective, Outcome, fit
from cmalight.parallel.ranks import ranks_of
from tests.helpers import MSE, network, run_epoch, same_state, table

from .problems import global_batches, rank_part, states, train, uneven_part
from .processes import on_ranks

RUNS = {
    "light": {"lr": 1.0},
    "not early": {"lr": 1.0, "early_rejection": False},
    "certified": {"lr": 1.0, "line_search": "certified"},
    "CMA": {"lr": 1.0, "make": CMA},
    "weight decay": {"lr": 1.0, "weight_decay": 0.01},
}


def assert_equal_runs(run, expected, *, checked_alike=True):
    (reports, weights, _), (expected_reports, expected_weights, _) = run, expected
    assert [r.outcome for r in reports] == [r.outcome for r in expected_reports]
    for report, other in zip(reports, expected_reports, strict=True):
        for name in ("lr", "next_lr", "alpha", "f_tilde", "phi", "direction_norm"):
            if name == "f_tilde" and report.outcome is Outcome.REJECTED_EARLY and not checked_alike:
                continue  # a lower bound that depends on the moment of the check
            assert getattr(report, name) == pytest.approx(getattr(other, name), rel=1e-10, nan_ok=True), name
        assert report.evaluations == other.evaluations
    for name, value in expected_weights.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-10)


def _trained(rank, part):
    batches = part(global_batches(), rank)
    return {name: (*train(network(), batches, epochs=10, wrap=DDP, **run)[:2], None) for name, run in RUNS.items()}


def _even(batches, rank):
    return rank_part(batches, rank, 2)


@pytest.mark.parametrize("part", [_even, uneven_part])
def test_two_ranks_with_batches_of_64_are_one_process_with_batches_of_128(tmp_path, part):
    first, second = on_ranks(_trained, tmp_path, part)
    for name, run in RUNS.items():
        alone = train(network(), global_batches(), epochs=10, **run)
        assert_equal_runs(first[name], alone)
        assert same_state(first[name][1], second[name][1])
    outcomes = {report.outcome for run in first.values() for report in run[0]}
    assert Outcome.REJECTED_EARLY in outcomes
    assert Outcome.SEARCH_FAILED_REJECTED in outcomes
    assert Outcome.SEARCH_SUCCEEDED in outcomes


def _joined(rank):
    """Five batches on rank 0, eight on rank 1, the last of them short."""
    batches = _even(global_batches(), rank)[: 5 if rank == 0 else 8]
    model = DDP(network())
    optimizer = CMALight(model.parameters(), lr=1.0)
    objective = Objective(model, MSE, batches)
    reports = []
    for _ in range(10):
        with optimizer.epoch(objective) as epoch, Join([model]):
            for x, y in epoch.batches(batches):
                optimizer.zero_grad()
                loss = MSE(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
        reports.append(epoch.report)
    return reports, states(model), None


def test_ranks_that_run_out_of_batches_join_and_every_sample_counts_once(tmp_path):
    first, second = on_ranks(_joined, tmp_path)
    batches = global_batches()
    alone = train(network(), batches[:5] + rank_part(batches[5:], 1, 2), epochs=10, lr=1.0)
    assert_equal_runs(first, alone, checked_alike=False)
    assert same_state(first[1], second[1])
    assert Outcome.REJECTED_EARLY in {report.outcome for report in first[0]}
    assert Outcome.SEARCH_FAILED_KEPT in {report.outcome for report in first[0]}


def _plain_loop(rank):
    """The sizes of the batches are not announced: without epoch.batches, and then observed before backward."""
    batches = uneven_part(global_batches(), rank)[1:] + _even(global_batches(), rank)[:1]
    batches.reverse()  # the first global batch is shared out evenly, so that both ranks know what is usual
    model = DDP(network())
    before = states(model)
    optimizer = CMALight(model.parameters(), lr=0.3)
    objective = Objective(model, MSE, batches)
    with pytest.raises(RuntimeError, match=r"before loss\.backward"):
        run_epoch(optimizer, objective, model, batches)
    undone = same_state(states(model), before)
    reports = []
    for _ in range(4):
        with optimizer.epoch(objective) as epoch:
            for x, y in batches:
                optimizer.zero_grad()
                loss = MSE(model(x), y)
                epoch.observe(loss, len(y))
                loss.backward()
                optimizer.step()
        reports.append(epoch.report)
    return undone, (reports, states(model), None)


def test_uneven_batches_that_nobody_announced_are_refused_unless_observed_before_backward(tmp_path):
    (undone, first), (_, second) = on_ranks(_plain_loop, tmp_path)
    assert undone
    batches = global_batches()
    batches = [batches[0], *batches[:0:-1]]
    alone = train(network(), batches, epochs=4, early=False, lr=0.3)
    assert_equal_runs(first, alone)
    assert same_state(first[1], second[1])


def accumulate(model, batches, quietly):
    """Two batches are one; `quietly()` is the context of the first."""
    optimizer = CMALight(model.parameters(), lr=1.0, weight_decay=0.01)
    objective = Objective(model, MSE, batches)
    reports = []
    for _ in range(6):
        with optimizer.epoch(objective) as epoch:
            for number, (x, y) in enumerate(epoch.batches(batches)):
                if number % 2 == 0:
                    optimizer.zero_grad()
                with quietly() if number % 2 == 0 else nullcontext():
                    loss = MSE(model(x), y)
                    (loss / 2).backward()
                epoch.observe(loss, len(y))
                if number % 2:
                    optimizer.step()
        reports.append(epoch.report)
    return reports, states(model), None


def _accumulated(rank):
    model = DDP(network())
    return accumulate(model, uneven_part(global_batches(), rank), model.no_sync)


def test_accumulated_gradients_of_uneven_ranks_are_those_of_one_process(tmp_path):
    first, second = on_ranks(_accumulated, tmp_path)
    assert_equal_runs(first, accumulate(network(), global_batches(), nullcontext))
    assert same_state(first[1], second[1])


def _class_weights(rank):
    """One step; returns where it led to."""
    torch.manual_seed(0)
    loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0], dtype=torch.float64))
    x = torch.randn(10, 2, dtype=torch.float64)
    y = torch.tensor([0, 0, 0, 1, 0, 1, 1, 1, 1, 0])
    model = nn.Linear(2, 2).double()
    both = loss_fn(model(x), y)
    gradient = torch.autograd.grad(both, model.weight)[0]
    expected = model.weight.detach() - 0.5 * float(loss_fn.weight[y].sum()) / len(y) * gradient
    x, y = x.split(5)[rank], y.split(5)[rank]
    model = DDP(model)
    optimizer = CMALight(model.parameters(), lr=0.5)
    with optimizer.epoch(lambda: 100.0, model=model) as epoch:
        for inputs, target in epoch.batches([(x, y)]):
            loss = loss_fn(model(inputs), target)
            epoch.observe(loss, float(loss_fn.weight[target].sum()))
            loss.backward()
            optimizer.step()
    return model.module.weight.detach(), expected


def test_counts_that_are_not_batch_sizes_weigh_exactly_when_observed_before_backward(tmp_path):
    (first, expected), (second, _) = on_ranks(_class_weights, tmp_path)
    torch.testing.assert_close(first, expected, rtol=1e-12, atol=0)
    assert torch.equal(first, second)


def _misused(rank):
    """Each of these would hang or go wrong quietly; every rank gets the same error."""
    batches = _even(global_batches(), rank)
    messages = []

    def tried(action):
        with pytest.raises(RuntimeError) as caught:
            action()
        messages.append(str(caught.value))

    model = DDP(network())
    objective = Objective(model, MSE, batches)
    tried(lambda: run_epoch(CMALight(model.parameters(), lr=0.1 + rank), objective, model, batches))
    bare = network(seed=rank)
    tried(lambda: run_epoch(CMALight(bare.parameters(), lr=0.1), Objective(bare, MSE, batches), bare, batches))
    with Join([model]):
        tried(lambda: run_epoch(CMALight(model.parameters(), lr=0.1), objective, model, batches))
    broken = Objective(model, None, batches, forward=lambda model, batch: (torch.tensor(1.0), 1 / (1 - rank)))
    with pytest.raises(RuntimeError if rank == 0 else ZeroDivisionError) as caught:
        CMALight(model.parameters(), lr=0.1).restart(broken)
    messages.append(str(caught.value))
    alone = Objective(bare, MSE, batches, process_group=False)
    report = run_epoch(CMALight(bare.parameters(), lr=0.1), alone, bare, batches, early=True)
    return messages, report.f_tilde, objective.samples


def test_what_would_part_the_ranks_is_refused_on_all_of_them(tmp_path):
    (messages, f_tilde, _), (others, other_f_tilde, _) = on_ranks(_misused, tmp_path)
    assert messages[:3] == others[:3]
    for message, expected in zip(
        messages, ("disagree on lr", "different weights", "put Join inside the epoch", "failed on rank 1"), strict=True
    ):
        assert expected in message
    assert f_tilde != other_f_tilde  # process_group=False: each trained on its own


def _fitted(rank):
    """fit trains a plain model on each rank by itself, and refuses one that is shared."""
    x, y = table(100, noise=0.1, seed=rank)
    options = {"max_epochs": 3, "batch_size": 10 + rank, "progress": False}
    with pytest.raises(ValueError, match="fit trains in one process"):
        fit(DDP(network()), MSE, (x, y), **options)
    model = network()
    return [fit(model, MSE, (x, y), optimizer=name, **options).history[-1].f_tilde for name in ("cmalight", "ig")]


def test_fit_trains_alone_or_says_that_it_does(tmp_path):
    first, second = on_ranks(_fitted, tmp_path)
    assert first != second


def tensors_left_behind(rank):
    tensors, all_reduce = [], dist.all_reduce

    def noted(tensor, **options):
        tensors.append(weakref.ref(tensor))
        return all_reduce(tensor, **options)

    dist.all_reduce = noted
    ranks = ranks_of(None)
    held = 0
    for number in range(500):
        assert ranks.gather(float(number + rank)) == [(float(number),), (number + 1.0,)]
        held += tensors[-1]() is not None
    return held, len(tensors)


@pytest.mark.slow
def test_gloo_has_let_go_of_an_exchange_when_it_returns(tmp_path):
    """Else a script that ends right after it may abort: a thread needs the interpreter that is being taken down."""
    assert on_ranks(tensors_left_behind, tmp_path) == [(0, 500)] * 2


def _uneven_numbers(rank):
    batches = _even(global_batches(), rank)[: 5 if rank == 0 else 8]
    model = DDP(network())
    optimizer = CMALight(model.parameters(), lr=0.1)
    before = states(model)
    with pytest.raises(RuntimeError, match=r"different numbers of batches, \[5, 8\].*Join"):
        run_epoch(optimizer, Objective(model, MSE, batches), model, batches, early=True)
    assert same_state(states(model), before)
    even = batches[:5]
    return run_epoch(optimizer, Objective(model, MSE, even), model, even, early=True)


def test_ranks_with_different_numbers_of_batches_and_no_join_are_told(tmp_path):
    """Instead of waiting for each other until the process group gives up."""
    first, second = on_ranks(_uneven_numbers, tmp_path)
    assert first == second


def _controlled(rank, settings):
    """Windows of three batches, and a budget."""
    batches = _even(global_batches(), rank)
    model = DDP(network())
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=0.02), **settings)
    objective = Objective(model, MSE, batches)
    reports = [run_epoch(optimizer, objective, model, batches, early=True) for _ in range(5)]
    return reports, states(model)


@pytest.mark.parametrize("settings", [{"window": 3}, {"max_epochs": 5}, {"window": 3, "max_batches": 40}], ids=str)
def test_ranks_are_controlled_as_one_process_inside_epochs_and_within_a_budget(tmp_path, settings):
    first, second = on_ranks(_controlled, tmp_path, settings)
    model, batches = network(), global_batches()
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=0.02), **settings)
    objective = Objective(model, MSE, batches)
    alone = [run_epoch(optimizer, objective, model, batches, early=True) for _ in range(5)]
    assert first[0] == second[0]
    assert same_state(first[1], second[1])
    assert_equal_runs((*first, None), (alone, states(model), None))


def _settled(rank, held):
    """Three epochs that are left open, then judged; `held` names the ranks whose window is still there."""
    batches = _even(global_batches(), rank)
    model = DDP(network())
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=7e-3), max_epochs=40)
    objective = Objective(model, MSE, batches)
    outcomes = [run_epoch(optimizer, objective, model, batches).outcome for _ in range(3)]
    if rank not in held:
        optimizer.held_window = None
    report = optimizer.settle(objective)
    judged = optimizer.control.memory(optimizer.rule()).batches_judged
    return outcomes, report, judged, states(model)


@pytest.mark.parametrize("held", [(0, 1), (0,), ()])
def test_short_epochs_are_settled_on_all_ranks_or_on_none(tmp_path, held):
    first, second = on_ranks(_settled, tmp_path, held)
    assert first[:3] == second[:3]
    assert same_state(first[3], second[3])
    assert first[0] == [Outcome.OPEN] * 3
    model, batches = network(), global_batches()
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=7e-3), max_epochs=40)
    objective = Objective(model, MSE, batches)
    for _ in range(3):
        run_epoch(optimizer, objective, model, batches)
    report = optimizer.settle(objective)
    memory = optimizer.control.memory(optimizer.rule())
    assert first[2] == (memory.batches_judged if held == (0, 1) else 0.0)
    assert (first[1] and first[1].outcome) == (report.outcome if held == (0, 1) else None)


def _with_clocks_that_disagree(rank):
    batches = rank_part(global_batches(), rank, 2)
    asked = itertools.count()

    def make(parameters):
        optimizer = Controlled(torch.optim.Adam(parameters, lr=7e-3))
        optimizer.report_share(lambda: min(1.0, next(asked) * (0.1 if rank else 0.2)))
        return optimizer

    reports, weights, _ = train(network(), batches, epochs=4, wrap=DDP, make=make)
    return [report.next_lr for report in reports], weights


def test_ranks_whose_clocks_disagree_take_the_same_steps(tmp_path):
    (lrs, weights), (other_lrs, other_weights) = on_ranks(_with_clocks_that_disagree, tmp_path)
    assert lrs == other_lrs
    assert lrs[-1] < 0.5 * max(lrs)
    assert same_state(weights, other_weights)
