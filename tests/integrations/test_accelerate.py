"""Accelerate: what `prepare` returns trains as the plain loop does."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, TensorDataset

from cmalight import Controlled, Objective
from tests.helpers import same_state

pytest.importorskip("accelerate")
from accelerate import Accelerator
from accelerate.state import AcceleratorState

MSE = nn.MSELoss()
X = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True).sin()


@pytest.fixture(autouse=True)
def _fresh_state():
    """Accelerate keeps its settings for the whole process."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def made(*, scheduler=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    loader = DataLoader(TensorDataset(X, Y), batch_size=8)
    base = torch.optim.Adam(model.parameters(), lr=1e-2)
    steps = None if scheduler else 200
    optimizer = Controlled(base, model, objective=Objective(model, MSE, loader), total_steps=steps)
    return model, optimizer, loader, *([LinearLR(optimizer, total_iters=40)] if scheduler else [])


def train(accelerator, model, optimizer, loader, scheduler=None, *, epochs=4):
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = MSE(model(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step(loss)
                if scheduler is not None:
                    scheduler.step()
                optimizer.zero_grad()


def by_hand(model, optimizer, loader, scheduler=None, *, parts=1):
    for _ in range(4):
        for number, (x, y) in enumerate(loader):
            loss = MSE(model(x), y)
            (loss / parts).backward()
            if number % parts == parts - 1:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step(loss)
                if scheduler is not None:
                    scheduler.step()
                optimizer.zero_grad()


@pytest.mark.parametrize("scheduler", [False, True])
@pytest.mark.parametrize("parts", [1, 3])
def test_prepared_and_plain_do_the_same(parts, scheduler):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=parts)
    plain = made(scheduler=scheduler)
    by_hand(*plain, parts=parts)
    ours = made(scheduler=scheduler)
    controlled = ours[1]
    prepared = accelerator.prepare(*ours)
    assert prepared[1].optimizer is controlled
    train(accelerator, *prepared)
    assert controlled.steps == 4 * 12 // parts
    assert controlled.report == plain[1].report
    assert same_state(accelerator.unwrap_model(prepared[0]).state_dict(), plain[0].state_dict())


@pytest.mark.parametrize("scheduler", [False, True])
def test_a_saved_state_resumes_inside_a_window_as_if_it_had_not_stopped(tmp_path, scheduler):
    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(*made(scheduler=scheduler))
    train(accelerator, *prepared, epochs=2)
    accelerator.save_state(tmp_path)
    train(accelerator, *prepared, epochs=2)
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True)
    resumed = accelerator.prepare(*made(scheduler=scheduler))
    accelerator.load_state(tmp_path)
    train(accelerator, *resumed, epochs=2)
    assert same_state(resumed[0].state_dict(), prepared[0].state_dict())


def test_an_evaluation_in_mid_epoch_is_not_noticed_by_accelerates_loader():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, _, loader = made()
    model, loader = accelerator.prepare(model, loader)
    objective, seen = Objective(model, MSE, loader), 0
    for _ in loader:
        seen += 1
        before = loader.end_of_dataloader, loader.iteration, accelerator.gradient_state.active_dataloader
        objective()
        assert (loader.end_of_dataloader, loader.iteration, accelerator.gradient_state.active_dataloader) == before
    assert seen == 12
