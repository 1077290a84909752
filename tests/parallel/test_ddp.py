"""Ranks under DDP are one process: the same steps, the same decisions, the same weights."""

import itertools
import weakref

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from cmalight import CMA, SOAP, CMALight, Objective, Outcome
from cmalight.evaluation.ranks import ranks_of
from tests.helpers import MSE, network, run_epoch, same_state

from .problems import controlled, global_batches, rank_part, states, train_epochs, train_watched
from .processes import on_ranks

# lr is far too large in the first epochs, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:The observed losses are about")
RUNS = {
    "light": {"lr": 1.0},
    "certified": {"lr": 1.0, "line_search": "certified"},
    "CMA": {"lr": 1.0, "make": CMA},
    "weight decay": {"lr": 1.0, "weight_decay": 0.01},
}


def assert_equal_runs(run, expected):
    (reports, weights), (expected_reports, expected_weights) = run, expected
    assert [r.outcome for r in reports] == [r.outcome for r in expected_reports]
    for report, other in zip(reports, expected_reports, strict=True):
        for name in ("lr", "next_lr", "alpha", "f_tilde", "phi", "direction_norm"):
            assert getattr(report, name) == pytest.approx(getattr(other, name), rel=1e-10, nan_ok=True), name
        assert report.evaluations == other.evaluations
    for name, value in expected_weights.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-10)


def _epochs(rank):
    batches = rank_part(global_batches(), rank)
    return {name: train_epochs(DDP(network()), batches, **run) for name, run in RUNS.items()}


def test_two_ranks_with_batches_of_64_are_one_process_with_batches_of_128(tmp_path):
    first, second = on_ranks(_epochs, tmp_path)
    for name, run in RUNS.items():
        assert_equal_runs(first[name], train_epochs(network(), global_batches(), **run))
        assert first[name][0] == second[name][0]
        assert same_state(first[name][1], second[name][1])
    kept = {report.outcome.keeps for run in first.values() for report in run[0]}
    assert kept == {True, False}


def _watched(rank):
    batches = rank_part(global_batches(), rank)
    results = []
    for base in (None, lambda model: SOAP(model.parameters(), lr=0.01)):
        model = DDP(network())
        optimizer = controlled(model, batches, base=None if base is None else base(model))
        before = []
        optimizer.base.register_step_pre_hook(lambda *_, model=model, before=before: before.append(states(model)))
        reports = train_watched(optimizer, model, batches, leaps=(12,))
        # The window of the leap ends with step 15 and began with step 10; the confirmed point is that of step 5.
        is_undone = any(same_state(before[number], before[15]) for number in (5, 10))
        results.append((reports, states(model), is_undone, optimizer.scale))
    return results


def test_under_control_ranks_decide_alike_and_undo_bit_for_bit(tmp_path):
    """The third of seven windows leaps away, on all ranks; windows end where those of one process end."""
    model, batches = network(), global_batches()
    alone = train_watched(controlled(model, batches), model, batches, leaps=(12,))
    for first, second in zip(*on_ranks(_watched, tmp_path), strict=True):
        reports, weights, is_undone, scale = first
        assert reports == second[0]
        assert same_state(weights, second[1])
        assert [report.outcome.keeps for report in reports] == [True, True, False, True, True, True, True]
        assert [report.steps for report in reports] == [report.steps for report in alone]
        assert is_undone
        assert scale <= 1.0


def _nan_on_one_rank(rank):
    """A loss that is not finite on rank 1 reaches the weights of both by the mean of the gradients."""
    batches = rank_part(global_batches(), rank)
    model = DDP(network())
    optimizer = controlled(model, batches)
    train_watched(optimizer, model, batches[:5], epochs=1)
    before = states(model)  # the next window confirms it
    train_watched(optimizer, model, batches[:5], epochs=1)
    x, y = batches[0]
    spoiled = [(x, y * (float("nan") if rank else 1.0))] * 5
    reports = train_watched(optimizer, model, spoiled, epochs=1)
    return reports, same_state(states(model), before)


def test_what_is_not_finite_on_one_rank_is_undone_on_all(tmp_path):
    for reports, is_undone in on_ranks(_nan_on_one_rank, tmp_path):
        assert [report.outcome for report in reports] == [Outcome.DIVERGED]
        assert is_undone


def _unequal(rank):
    """Five batches on rank 0, seven on rank 1: every rank gets the same message, before the first step."""
    batches = rank_part(global_batches(), rank)[: 5 + 2 * rank]
    messages = []
    for use in (
        lambda model: train_watched(controlled(model, batches), model, batches),
        lambda model: run_epoch(CMALight(model.parameters(), lr=0.1), Objective(model, MSE, batches), model, batches),
    ):
        model = DDP(network())
        before = states(model)
        with pytest.raises(RuntimeError) as caught:
            use(model)
        assert same_state(states(model), before)
        messages.append(str(caught.value))
    return messages


def test_ranks_with_unequal_numbers_of_batches_are_told_before_they_wait_for_each_other(tmp_path):
    first, second = on_ranks(_unequal, tmp_path)
    assert first == second
    for message in first:
        assert "The ranks have [5, 7] batches" in message
        assert "drop_last=True" in message


def _own_models(rank):
    """process_group=False: each rank trains a model of its own, and nobody waits."""
    batches = rank_part(global_batches(), rank)[: 5 + rank]
    model = network(seed=rank)
    objective = Objective(model, MSE, batches, process_group=False)
    return run_epoch(CMALight(model.parameters(), lr=0.1), objective, model, batches).f_tilde


def test_ranks_may_train_models_of_their_own(tmp_path):
    first, second = on_ranks(_own_models, tmp_path)
    assert first != second


def _clocks(rank):
    batches = rank_part(global_batches(), rank)
    model, asked, rates = DDP(network()), itertools.count(), []
    optimizer = controlled(
        model, batches, total_steps=None, progress=lambda: min(1.0, next(asked) * (0.05 if rank else 0.1))
    )
    optimizer.base.register_step_pre_hook(lambda base, *_: rates.append(base.param_groups[0]["lr"]))
    train_watched(optimizer, model, batches)
    return rates, states(model)


def test_ranks_whose_clocks_disagree_take_the_same_steps(tmp_path):
    (rates, weights), (other_rates, other_weights) = on_ranks(_clocks, tmp_path)
    assert rates == other_rates
    assert same_state(weights, other_weights)


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
