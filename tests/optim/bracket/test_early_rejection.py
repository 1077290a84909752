"""An epoch that cannot succeed ends before its last batch, with the result it would have had."""

import itertools
import logging
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

from cmalight import CMALight, Objective, Outcome
from tests.helpers import MSE, copied_state, network, run_epoch, same_state, small_problem, split, table


class CountingBatches(list):
    """A list of batches that counts how many were drawn."""

    drawn = 0

    def __iter__(self):
        for batch in super().__iter__():
            self.drawn += 1
            yield batch


def train(*, early_rejection, lr, epochs=25, size=4):
    model = network()
    batches = CountingBatches(split(*table(noise=0.1), size))
    optimizer = CMALight(model.parameters(), lr=lr, early_rejection=early_rejection)
    objective = Objective(model, MSE, list(batches))
    batches.drawn = 0
    reports = [run_epoch(optimizer, objective, model, batches, early=True) for _ in range(epochs)]
    return model, optimizer, reports, batches.drawn


@pytest.mark.parametrize("lr", [1.0, 5.0, 50.0, 1e4])
def test_early_rejection_changes_no_weight_no_step_size_and_no_phi(lr):
    model, optimizer, reports, drawn = train(early_rejection=True, lr=lr)
    other, other_optimizer, others, all_batches = train(early_rejection=False, lr=lr)
    assert same_state(model.state_dict(), other.state_dict())
    for report, full in zip(reports, others, strict=True):
        assert (report.next_lr, report.alpha, report.phi) == (full.next_lr, full.alpha, full.phi)
        assert report.f_tilde <= full.f_tilde
    assert optimizer.evaluations == other_optimizer.evaluations
    assert any(r.outcome is Outcome.REJECTED_EARLY for r in reports)
    assert drawn < all_batches


@pytest.mark.parametrize("with_generator", [False, True])
def test_the_next_epochs_order_of_a_shuffled_data_loader_stays_the_same(with_generator):
    def train_on_loader(early_rejection):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(0) if with_generator else None
        loader = DataLoader(TensorDataset(*table(noise=0.1)), batch_size=4, shuffle=True, generator=generator)
        model = network()
        optimizer = CMALight(model.parameters(), lr=50.0, early_rejection=early_rejection)
        objective = Objective(model, MSE, loader)
        reports = [run_epoch(optimizer, objective, model, loader, early=True) for _ in range(25)]
        return model, reports

    model, reports = train_on_loader(True)
    other, others = train_on_loader(False)
    assert any(r.outcome is Outcome.REJECTED_EARLY for r in reports)
    assert [r.phi for r in reports] == [r.phi for r in others]
    assert same_state(model.state_dict(), other.state_dict())


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(*table(noise=0.1), strict=True))


class Endless(Sampler):
    def __iter__(self):
        return itertools.cycle(range(100))

    def __len__(self):
        return 100


@pytest.mark.parametrize("kind", ["iterable", "endless sampler"])
def test_an_early_rejection_ends_with_loaders_whose_sampler_never_does(kind):
    dataset = TensorDataset(*table(noise=0.1))
    loader = (
        DataLoader(Stream(), batch_size=4)
        if kind == "iterable"
        else DataLoader(dataset, batch_size=4, sampler=Endless())
    )
    model = network()
    optimizer = CMALight(model.parameters(), lr=50.0)
    objective = Objective(model, MSE, split(*table(noise=0.1), 4))
    assert run_epoch(optimizer, objective, model, loader, early=True).outcome is Outcome.REJECTED_EARLY


def test_calls_after_an_early_rejection_do_nothing():
    """A loop with gradient accumulation flushes after its last batch; it cannot know that the epoch is over."""
    model, batches, objective = small_problem(size=4)
    optimizer = CMALight(model.parameters(), lr=50.0)
    before = copied_state(model)
    with optimizer.epoch(objective) as epoch:
        for x, y in epoch.batches(batches):
            loss = MSE(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
            optimizer.zero_grad()
        loss = MSE(model(x), y)
        loss.backward()
        epoch.observe(loss, len(y))
        optimizer.step()
    assert epoch.report.outcome is Outcome.REJECTED_EARLY
    assert same_state(model.state_dict(), before)


def test_an_epoch_that_was_rejected_early_may_still_be_abandoned():
    model, batches, objective = small_problem(size=4)
    before = copied_state(model)
    optimizer = CMALight(model.parameters(), lr=50.0)
    with optimizer.epoch(objective) as epoch:
        for x, y in epoch.batches(batches):
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
        epoch.abandon()
    assert epoch.report is None
    assert optimizer.param_groups[0]["lr"] == 50.0
    assert same_state(model.state_dict(), before)


def test_a_rejected_epoch_reports_a_lower_bound_and_no_direction():
    _, _, reports, _ = train(early_rejection=True, lr=50.0, epochs=1)
    assert reports[0].outcome is Outcome.REJECTED_EARLY
    assert reports[0].f_tilde > reports[0].phi
    assert math.isnan(reports[0].direction_norm)
    assert reports[0].alpha == 0.0


def drifting_problem():
    """Accepted epochs first climb above f(w⁰), so that f(w^k) > f(w⁰) and the partial sum may lie between them."""
    model = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(1.0)
    one = torch.ones(1, 1, dtype=torch.float64)
    return model, one


def test_an_epoch_that_may_still_succeed_continues_bit_for_bit_after_the_check():
    """f(w^k) = 2.156 > f(w⁰) = 1.1 (in sums); the partial sum passes f(w⁰) but not f(w^k)."""
    model, one = drifting_problem()
    curvature = [0.2, 2.0, 1e-9, 1e-9]

    def loss_fn(output, target):
        return (target * (output - 2) ** 2).mean() / 2

    batches = [(one, c * one) for c in curvature]
    optimizer = CMALight(model.parameters(), lr=1.5)
    objective = Objective(model, loss_fn, batches, merge=False)
    first = run_epoch(optimizer, objective, model, batches, loss_fn=loss_fn, early=True)
    assert first.outcome is Outcome.ACCEPTED
    second = run_epoch(optimizer, objective, model, batches, loss_fn=loss_fn, early=True)
    assert second.outcome is Outcome.SEARCH_REJECTED  # as in the full epoch, not REJECTED_EARLY
    assert second.evaluations == 3  # f(w^k) in mid-epoch, once; one trial; the tentative point

    plain, _ = drifting_problem()
    twin = CMALight(plain.parameters(), lr=1.5, early_rejection=False)
    twin_objective = Objective(plain, loss_fn, batches, merge=False)
    others = [run_epoch(twin, twin_objective, plain, batches, loss_fn=loss_fn, early=True) for _ in range(2)]
    assert others == [first, second]
    assert same_state(model.state_dict(), plain.state_dict())


def test_a_partial_sum_that_is_not_finite_ends_the_epoch_at_once_as_diverged():
    model, batches, objective = small_problem(size=5)
    before = copied_state(model)
    optimizer = CMALight(model.parameters(), lr=0.1)
    seen = 0
    with optimizer.epoch(objective) as epoch:
        for x, y in epoch.batches(batches):
            seen += 1
            optimizer.zero_grad()
            loss = MSE(model(x), y) * (math.nan if seen == 1 else 1.0)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
    assert seen < len(batches)
    assert epoch.report.outcome is Outcome.DIVERGED
    assert same_state(model.state_dict(), before)


def test_the_certified_search_never_rejects_early():
    model, batches, objective = small_problem(size=4)
    optimizer = CMALight(model.parameters(), lr=50.0, line_search="certified")
    report = run_epoch(optimizer, objective, model, batches, early=True)
    assert report.outcome is not Outcome.REJECTED_EARLY
    assert math.isfinite(report.direction_norm)


def test_a_negative_loss_switches_it_off_and_says_so_once(caplog):
    model, batches, _ = small_problem(size=4)

    def loss_fn(output, target):
        return MSE(output, target) - 10.0

    optimizer = CMALight(model.parameters(), lr=50.0)
    objective = Objective(model, loss_fn, batches)
    with caplog.at_level(logging.WARNING, logger="cmalight"):
        reports = [run_epoch(optimizer, objective, model, batches, loss_fn=loss_fn, early=True) for _ in range(5)]
    assert all(r.outcome is not Outcome.REJECTED_EARLY for r in reports)
    assert len([r for r in caplog.records if "negative" in r.message]) == 1


def test_an_epoch_longer_than_the_objective_is_checked_no_more_past_its_samples():
    """The loader goes round twice, the objective once: the sum over N would be no bound any more."""
    model, batches, objective = small_problem(size=40)
    optimizer = CMALight(model.parameters(), lr=1e-6)
    reports = [run_epoch(optimizer, objective, model, batches * 3, early=True) for _ in range(3)]
    assert all(r.outcome is not Outcome.REJECTED_EARLY for r in reports)


def test_counts_in_other_units_than_the_objective_do_not_reject_by_mistake():
    """A user counts tokens, three a sequence, where the objective counts sequences; the first batch is the worst."""
    model = network()
    x, y = table()
    y[:10] += 3
    batches = split(x, y, 10)
    objective = Objective(model, MSE, batches)
    optimizer = CMALight(model.parameters(), lr=1e-4)
    for _ in range(3):
        with optimizer.epoch(objective) as epoch:
            for x, y in epoch.batches(batches):
                optimizer.zero_grad()
                loss = MSE(model(x), y)
                loss.backward()
                epoch.observe(loss, 3 * len(y))
                optimizer.step()
        assert epoch.report.outcome is Outcome.ACCEPTED


def test_a_plain_loop_over_the_loader_sees_every_batch():
    model, batches, objective = small_problem(size=4)
    optimizer = CMALight(model.parameters(), lr=50.0)
    report = run_epoch(optimizer, objective, model, batches)
    assert report.outcome is Outcome.SEARCH_FAILED_REJECTED
    assert math.isfinite(report.direction_norm)


def test_an_evaluation_that_fails_in_mid_epoch_leaves_the_weights_where_the_steps_left_them():
    model, batches, _ = small_problem(size=4)
    calls = []

    def objective():
        calls.append(flat(model))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return 0.2

    optimizer = CMALight(model.parameters(), lr=50.0)
    optimizer.restart(objective)
    optimizer.param_groups[0].update(f_current=math.inf, samples=100, epochs=1)
    weights = []
    with pytest.raises(KeyboardInterrupt), optimizer.epoch(objective) as epoch:
        for x, y in epoch.batches(batches):
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
            weights.append(flat(model))
    assert torch.equal(flat(model), weights[-1])
    assert torch.equal(calls[1], calls[0])  # it was evaluated at w^k


def flat(model):
    return torch.cat([p.detach().reshape(-1).clone() for p in model.parameters()])
