"""The loop of docs/guides/loop.md on what `accelerator.prepare` returns, against the same loop without it."""

import subprocess
import sys

import pytest
import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.state import AcceleratorState, GradientState
from torch.utils.data import DataLoader, TensorDataset

from cmalight import CMALight, Controlled, Objective, Outcome
from cmalight.optim.control.budget import Budget
from tests.helpers import MSE, copied_state, network, run_epoch, same_state, table
from tests.optim.steady import line, steady_adam


@pytest.fixture(autouse=True)
def _fresh_state():
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def loader(**options):
    return DataLoader(TensorDataset(*table(96, noise=0.3)), batch_size=8, **options)


def train(model, optimizer, batches, *, accelerator=None, parts=1, epochs=15):
    """With an accelerator its `accumulate` decides when to step; without, every so many batches."""
    objective = Objective(model, MSE, batches)
    reports = []
    for _ in range(epochs):
        with optimizer.epoch(objective) as epoch:
            for number, (x, y) in enumerate(epoch.batches(batches)):
                if accelerator is None:
                    loss = MSE(model(x), y)
                    (loss / parts).backward()
                    epoch.observe(loss, len(y))
                    if (number + 1) % parts == 0:
                        optimizer.step()
                        optimizer.zero_grad()
                    continue
                with accelerator.accumulate(model):
                    loss = MSE(model(x), y)
                    accelerator.backward(loss)
                    epoch.observe(loss, len(y))
                    optimizer.step()
                    optimizer.zero_grad()
        reports.append(epoch.report)
    return reports


def prepared(parts=1, **options):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=parts)
    model = network()
    return accelerator, *accelerator.prepare(model, CMALight(model.parameters(), **options), loader())


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("early", [False, True])
def test_prepared_and_plain_do_the_same(parts, early):
    accelerator, model, optimizer, batches = prepared(parts, lr=2.0, early_rejection=early)
    reports = train(model, optimizer, batches, accelerator=accelerator)
    plain = network()
    expected = train(plain, CMALight(plain.parameters(), lr=2.0, early_rejection=early), loader(), parts=parts)
    assert [str(r) for r in reports] == [str(r) for r in expected]
    assert same_state(copied_state(accelerator.unwrap_model(model)), copied_state(plain))
    rejected = Outcome.REJECTED_EARLY if early else Outcome.SEARCH_FAILED_REJECTED
    assert {rejected, Outcome.ACCEPTED} <= {r.outcome for r in reports}


@pytest.mark.parametrize("parts", [2, 3])
def test_an_early_rejection_leaves_no_part_of_a_gradient_behind(parts):
    models = []
    for early in (False, True):
        _, model, optimizer, batches = prepared(parts, lr=2.0, early_rejection=early)
        train(model, optimizer, batches, accelerator=Accelerator(gradient_accumulation_steps=parts))
        models.append(copied_state(model))
    assert same_state(*models)


def test_an_evaluation_in_mid_epoch_is_not_noticed_by_the_loader():
    accelerator, model, _, batches = prepared(2, lr=0.1)
    objective = Objective(model, MSE, batches)
    seen = 0
    for _ in batches:
        seen += 1
        before = batches.end_of_dataloader, batches.iteration, accelerator.gradient_state.active_dataloader
        objective()
        assert (batches.end_of_dataloader, batches.iteration, accelerator.gradient_state.active_dataloader) == before
    assert seen == 12
    assert accelerator.gradient_state.active_dataloader is None


def test_a_saved_state_goes_on_as_if_it_had_not_stopped(tmp_path):
    accelerator, model, optimizer, batches = prepared(lr=1.0)
    train(model, optimizer, batches, accelerator=accelerator, epochs=4)
    accelerator.save_state(tmp_path)
    expected = train(model, optimizer, batches, accelerator=accelerator, epochs=4)
    weights = copied_state(model)
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator, model, optimizer, batches = prepared(lr=1.0)
    accelerator.load_state(tmp_path)
    assert train(model, optimizer, batches, accelerator=accelerator, epochs=4) == expected
    assert same_state(copied_state(model), weights)
    assert optimizer.evaluations == sum(r.evaluations for r in expected) + 1


def test_a_step_that_the_scaler_skips_is_no_step():
    Accelerator(cpu=True)
    model = network().float()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimizer = AcceleratedOptimizer(CMALight(model.parameters(), lr=0.1), scaler=scaler)
    data = [(x.float(), y.float()) for x, y in loader()]
    with optimizer.epoch(Objective(model, MSE, data)) as epoch:
        for number, (x, y) in enumerate(data):
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            scaler.scale(loss).backward()
            if number == 2:
                model[0].weight.grad[0, 0] = torch.inf
            epoch.observe(loss, len(y))
            optimizer.step()
            assert optimizer.step_was_skipped == (number == 2)
    assert epoch.report.outcome is Outcome.ACCEPTED
    assert scaler.get_scale() == 2.0**9


def test_the_wrapper_of_another_optimizer_stays_as_it_was():
    accelerator = Accelerator(cpu=True)
    adam = accelerator.prepare(torch.optim.Adam(network().parameters()))
    assert not hasattr(adam, "epoch")
    assert not hasattr(adam, "evaluations")
    assert not hasattr(adam, "budget")
    with pytest.raises(AttributeError, match="'Adam' object has no attribute 'restart'"):
        _ = adam.restart


def test_accelerate_may_be_imported_after_the_optimizer_was_made():
    code = """
import torch
from cmalight import CMALight
optimizer = CMALight([torch.nn.Parameter(torch.ones(1))])
from accelerate import Accelerator
prepared = Accelerator(cpu=True).prepare(optimizer)
with prepared.epoch(lambda: 1.0) as epoch:
    epoch.abandon()
prepared.restart(lambda: 2.0, lr=0.25)
print(prepared.evaluations, prepared.param_groups[0]["lr"])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert run.stdout.split() == ["2", "0.25"]


@pytest.mark.parametrize("parts", [1, 3])
def test_a_budget_in_epochs_goes_to_zero_step_by_step_in_a_plain_loop(parts):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=parts)
    model, rates = network(), []
    adam = torch.optim.Adam(model.parameters(), lr=7e-3, eps=1e-15)
    adam.register_step_pre_hook(lambda base, *_: rates.append(base.param_groups[0]["lr"]))
    model, optimizer, batches = accelerator.prepare(model, Controlled(adam, max_epochs=4, growth=1.0), loader())
    objective = Objective(model, MSE, batches)
    for _ in range(4):
        with optimizer.epoch(objective) as epoch:
            for x, y in batches:
                with accelerator.accumulate(model):
                    loss = MSE(model(x), y)
                    accelerator.backward(loss)
                    epoch.observe(loss, len(y))
                    optimizer.step()
                    optimizer.zero_grad()
    steps = 4 * 12 // parts
    line = [7e-3 * min(1.0, (steps - step - 0.5) / (0.4 * steps)) for step in range(steps)]
    assert rates[steps // 2 :] == pytest.approx(line[steps // 2 :])


def steadily_prepared():
    """Also the list of its steps' lr, and a function that trains for one epoch of 12 batches."""
    model, rates = network(), []
    steady = steady_adam(model)
    steady.base.register_step_pre_hook(lambda base, *_: rates.append(base.param_groups[0]["lr"]))
    model, optimizer, batches = Accelerator(cpu=True).prepare(model, steady, loader())
    objective = Objective(model, MSE, batches)
    return optimizer, rates, lambda: run_epoch(optimizer, objective, model, batches, early=True)


def test_what_prepare_returns_is_told_the_share_that_is_done():
    optimizer, rates, train_epoch = steadily_prepared()
    optimizer.report_share(lambda: len(rates) / 12)
    train_epoch()
    assert rates == pytest.approx([0.01 * min(1.0, (12 - step) / 6) for step in range(12)])


@pytest.mark.parametrize("told", ["a limit", "a budget"])
def test_what_prepare_returns_is_told_its_budget(told):
    optimizer, rates, train_epoch = steadily_prepared()
    if told == "a limit":
        optimizer.budget.max_epochs = 2
    else:
        optimizer.budget = Budget(max_epochs=2)
    train_epoch()
    train_epoch()
    assert rates == pytest.approx(line(24, begins=12))
