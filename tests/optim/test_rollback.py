"""Back to w^k means everything: parameters, buffers, counters, extra state, bit for bit."""

import pytest
import torch
from torch import nn

from cmalight import CMA, IG, CMALight, Objective, Outcome
from tests.helpers import MSE, copied_state, each_of_the_paper, force_line_search, run_epoch, same_state, split, table


class ReplacedBuffer(nn.Module):
    """Replaces its buffers instead of writing into them, and makes some on the way."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))
        self.register_buffer("later", None)

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            self.later = x.detach()[0].clone()
            self.register_buffer("new", x.detach()[1].clone())
        return x - self.mean


class ExtraState(nn.Module):
    """Counts its calls in Python, outside the buffers."""

    def __init__(self):
        super().__init__()
        self.calls = [0]

    def forward(self, x):
        self.calls[0] += 1
        return x

    def get_extra_state(self):
        return torch.tensor(self.calls)

    def set_extra_state(self, state):
        self.calls = state.tolist()


class LazyBuffer(nn.Module):
    """Has no buffer at all until it is first called."""

    def forward(self, x):
        if not hasattr(self, "calls"):
            self.register_buffer("calls", torch.zeros(()), persistent=True)
        self.calls += 1
        return x


class ExpandedBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("ones", torch.ones(1, dtype=torch.float64).expand(4))

    def forward(self, x):
        return x * self.ones


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(
        ReplacedBuffer(),
        LazyBuffer(),
        ExpandedBuffer(),
        nn.Linear(4, 6),
        nn.BatchNorm1d(6),
        nn.Dropout(0.2),
        ExtraState(),
        nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6)),
        nn.Sigmoid(),
        nn.Linear(6, 1),
    ).double()


@pytest.fixture
def problem():
    model = make_model()
    batches = split(*table(), 20)
    return model, batches, Objective(model, MSE, batches)


@each_of_the_paper
def test_a_rejected_epoch_leaves_the_state_dict_as_it_was(problem, make):
    model, batches, objective = problem
    before = copied_state(model)
    buffers = dict(model.named_buffers())
    report = run_epoch(make(model.parameters(), lr=1e4), objective, model, batches)
    assert report.alpha == 0.0
    assert same_state(model.state_dict(), before)
    assert dict(model.named_buffers()) == buffers  # the very same tensors


def epoch_with_its_end(optimizer, objective, model, batches):
    """The report, and the state in which the last step left the model."""
    ends = []
    report = run_epoch(optimizer, objective, model, batches, at_end=lambda: ends.append(copied_state(model)))
    return report, ends[0]


def test_an_accepted_epoch_keeps_the_tentative_point_and_its_buffers_bit_for_bit(problem):
    model, batches, objective = problem
    report, tentative = epoch_with_its_end(CMALight(model.parameters(), lr=0.01), objective, model, batches)
    assert report.outcome is Outcome.ACCEPTED
    assert same_state(model.state_dict(), tentative)


@pytest.mark.parametrize("max_extrapolations", [0, 1])
def test_after_a_search_the_tentative_point_comes_back_bit_for_bit(problem, max_extrapolations):
    model, batches, objective = problem
    optimizer = CMALight(model.parameters(), lr=0.01, max_extrapolations=max_extrapolations, gamma=1e-6)
    force_line_search(optimizer, objective)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    report, tentative = epoch_with_its_end(optimizer, objective, model, batches)
    assert report.evaluations == 2  # f(w⁰), and the tentative point or the one trial
    if max_extrapolations == 0:
        assert report.alpha == report.lr
        assert same_state(model.state_dict(), tentative)
        return
    assert report.alpha == report.lr / 0.9
    for name, p in model.named_parameters():
        expected = start[name] + (tentative[name] - start[name]) / 0.9
        torch.testing.assert_close(p.detach(), expected, rtol=1e-12, atol=1e-14)
    for name, buffer in model.named_buffers():
        if name in tentative:
            assert torch.equal(buffer, tentative[name])  # those the epoch ended with


@pytest.mark.parametrize("optimizer_class", [CMALight, CMA, IG])
def test_abandon_goes_back_and_runs_no_control(problem, optimizer_class):
    model, batches, objective = problem
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    before, lr = copied_state(model), optimizer.param_groups[0]["lr"]
    with optimizer.epoch(objective) as epoch:
        for x, y in epoch.batches(batches):
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
            if x is batches[2][0]:
                epoch.abandon()
    assert same_state(model.state_dict(), before)
    assert epoch.report is None
    assert optimizer.param_groups[0]["lr"] == lr


def test_an_interrupted_line_search_goes_back_to_the_start_of_the_epoch(problem):
    model, batches, objective = problem
    optimizer = CMALight(model.parameters(), lr=0.01)
    force_line_search(optimizer, objective)
    before = copied_state(model)

    def interrupted():
        raise KeyboardInterrupt

    objective.before_batch = interrupted
    with pytest.raises(KeyboardInterrupt):
        run_epoch(optimizer, objective, model, batches)
    assert same_state(model.state_dict(), before)
    assert optimizer.param_groups[0]["lr"] == 0.01
    objective.before_batch = None
    assert run_epoch(optimizer, objective, model, batches).lr == 0.01
