"""The state of a run: copied, put back, tested for finite values."""

import copy
import math

import pytest
import torch
from torch import nn

from cmalight.evaluation.state import ModuleState, RunState, modules_kept


def trained(norm=True):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4) if norm else nn.Identity(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    step(model, optimizer)
    return model, optimizer


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(8, 3)).square().mean().backward()
    optimizer.step()


def everything(model, optimizer):
    return copy.deepcopy((model.state_dict(), optimizer.state_dict()["state"]))


def same(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return torch.equal(left, right)


@pytest.mark.parametrize("again", [False, True])
def test_everything_comes_back_bit_for_bit_in_the_same_tensors(again):
    model, optimizer = trained()
    state = RunState(optimizer, [model])
    snapshot = state.snapshot()
    if again:
        step(model, optimizer)
        snapshot = state.refresh(snapshot)
    before = everything(model, optimizer)
    tensors = [id(t) for t in model.state_dict().values()] + [id(p) for p in model.parameters()]
    step(model, optimizer)
    step(model, optimizer)
    state.restore(snapshot)
    assert same(everything(model, optimizer)[0], before[0])
    assert same(everything(model, optimizer)[1], before[1])
    assert tensors[-4:] == [id(p) for p in model.parameters()][-4:]


def test_refreshing_copies_into_the_memory_that_is_there():
    model, optimizer = trained()
    state = RunState(optimizer, [model])
    snapshot = state.snapshot()
    places = [t.data_ptr() for t in snapshot.weights]
    step(model, optimizer)
    assert [t.data_ptr() for t in state.refresh(snapshot).weights] == places


def test_state_that_was_made_since_is_removed():
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    state = RunState(optimizer, [model])
    snapshot = state.snapshot()
    step(model, optimizer)
    state.restore(snapshot)
    assert not optimizer.state


def test_a_snapshot_goes_through_plain_tensors():
    model, optimizer = trained()
    state = RunState(optimizer, [model])
    packed = copy.deepcopy(state.pack(state.snapshot()))
    before = everything(model, optimizer)
    step(model, optimizer)
    state.restore(state.unpack(packed))
    assert same(everything(model, optimizer)[0], before[0])
    assert same(everything(model, optimizer)[1], before[1])


@pytest.mark.parametrize("where", ["weight", "buffer", "state"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_any_more_is_found(where, value):
    model, optimizer = trained()
    state = RunState(optimizer, [model])
    snapshot = state.snapshot()
    assert state.is_finite(snapshot)
    parameter = model[0].weight
    places = {"weight": parameter.data, "buffer": model[1].running_var, "state": optimizer.state[parameter]["exp_avg"]}
    places[where].view(-1)[0] = value
    assert not state.is_finite(snapshot)


def test_a_buffer_that_a_forward_pass_replaced_is_looked_at_too():
    model, optimizer = trained()
    run_state = RunState(optimizer, [model])
    snapshot = run_state.snapshot()
    model[1].running_mean = torch.full((4,), math.nan)
    assert not run_state.is_finite(snapshot)


def test_what_never_was_finite_does_not_count():
    model, optimizer = trained()
    model.register_buffer("mask", torch.full((2,), -math.inf))
    state = RunState(optimizer, [model])
    assert state.is_finite(state.snapshot())


def test_modules_come_back_with_their_modes_and_replaced_or_new_buffers():
    class Restless(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x):
            self.seen = self.seen + 1
            if not hasattr(self, "late"):
                self.register_buffer("late", torch.ones(1))
            return x

    model = nn.Sequential(Restless(), nn.Dropout()).train()
    seen = model[0].seen
    with modules_kept(model):
        model(torch.ones(1))
        model.eval()
    assert model[0].seen is seen
    assert float(seen) == 0.0
    assert not hasattr(model[0], "late")
    assert model.training


def test_extra_state_is_copied():
    class Counting(nn.Module):
        counts: list[int]

        def get_extra_state(self):
            return self.counts

        def set_extra_state(self, state):
            self.counts = state

    module = Counting()
    module.counts = [1]
    state = ModuleState(module)
    module.counts.append(2)
    state.restore()
    module.counts.append(3)
    state.restore()
    assert module.counts == [1]
