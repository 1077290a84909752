"""Schedules over the share of a run that is done, and the optimizers that follow them."""

import copy

import pytest
import torch
from torch import nn

from cmalight import fit
from cmalight.bench.spec.solvers import make_optimizer
from cmalight.bench.spec.study import Solver
from cmalight.training.solvers.optimizers import SOLVERS
from cmalight.training.solvers.run_budget import RunBudget
from cmalight.training.solvers.schedules import Scheduled, onecycle, warmup_cosine, warmup_linear, with_options, wsd

SCHEDULED = [name for name in SOLVERS if name.endswith(("-cosine", "-linear", "-wsd", "onecycle"))]
BATCHES = 8


def problem():
    torch.manual_seed(0)
    x = torch.randn(8 * BATCHES, 5)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, (x, (x @ torch.randn(5, 1)).tanh())


def fitted(optimizer, *, options=None, max_epochs=10, **more):
    model, data = problem()
    rest = {"batch_size": 8, "progress": False, "optimizer_options": options, "max_epochs": max_epochs, **more}
    return model, fit(model, nn.MSELoss(), data, optimizer=optimizer, **rest)


class Noting(torch.optim.SGD):
    """Notes the share before every step."""

    def __init__(self, params):
        super().__init__(params, lr=0.01)
        self.budget = None
        self.shares = []

    def step(self, closure=None):
        self.shares.append(self.budget())
        return super().step(closure)


def test_schedules_at_points_that_one_can_compute_by_hand():
    assert [warmup_linear(s) for s in (0, 0.025, 0.05, 0.525, 1)] == pytest.approx([0, 0.5, 1, 0.5, 0])
    assert [warmup_cosine(s) for s in (0, 0.025, 0.05, 0.525, 1)] == pytest.approx([0, 0.5, 1, 0.5, 0])
    assert [wsd(s) for s in (0, 0.025, 0.05, 0.6, 0.8, 1)] == pytest.approx([0, 0.5, 1, 1, 0.5, 0])
    assert [wsd(s, warmup=0.0, decay=0.0) for s in (0, 0.5, 1)] == [1, 1, 1]
    assert [warmup_cosine(s, warmup=1.0) for s in (0, 0.5, 1)] == [0, 0.5, 0]


def test_one_cycle_is_that_of_torch():
    steps = 10_000
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=steps, cycle_momentum=False)
    for step in range(steps - 1):
        assert onecycle(step / steps) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-3)
        optimizer.step()
        theirs.step()


def test_the_share_is_that_of_the_end_which_comes_first():
    now = [0.0]
    budget = RunBudget(max_epochs=10, time_limit=100.0, seconds=lambda: now[0])
    budget.epochs = 2.5
    assert budget() == 0.25
    now[0] = 60.0
    assert budget() == 0.6
    now[0] = 1000.0
    assert budget() == 1.0
    assert RunBudget(max_epochs=0, seconds=lambda: 0.0)() == 1.0


def test_fit_tells_the_share_batch_by_batch():
    model, data = problem()
    optimizer = Noting(model.parameters())
    fit(model, nn.MSELoss(), data, optimizer=optimizer, batch_size=8, max_epochs=3, progress=False)
    assert optimizer.shares == pytest.approx([step / (3 * BATCHES) for step in range(3 * BATCHES)])
    assert optimizer.budget() == 1.0


def test_fit_tells_the_share_by_the_clock(monkeypatch):
    from cmalight.training.records.clock import TrainingClock

    seconds = iter(range(10_000))
    monkeypatch.setattr(TrainingClock, "seconds", lambda _: next(seconds) / 10)
    model, data = problem()
    optimizer = Noting(model.parameters())
    limits = {"max_epochs": None, "time_limit": 10.0}
    fit(model, nn.MSELoss(), data, optimizer=optimizer, batch_size=8, progress=False, **limits)
    assert len(optimizer.shares) > BATCHES
    assert optimizer.shares == sorted(optimizer.shares)
    assert optimizer.shares[0] < 0.1 < 0.9 < optimizer.shares[-1] <= 1.0


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_run_ends_at_a_step_size_near_zero(name):
    _, result = fitted(name)
    peak = result.optimizer.param_groups[0]["initial_lr"]
    lrs = [record.lr for record in result.history]
    assert max(lrs) > 0.9 * peak
    assert result.optimizer.param_groups[0]["lr"] < 0.05 * peak
    assert result.history[-1].f_tilde < result.history[0].f_tilde


def test_options_go_to_the_optimizer_and_to_the_schedule():
    _, result = fitted("adam-wsd", options={"lr": 0.02, "decay": 0.5, "eps": 1e-6})
    group = result.optimizer.param_groups[0]
    assert (group["initial_lr"], group["eps"]) == (0.02, 1e-6)
    assert group["schedule"] == "wsd(decay=0.5)"
    with pytest.raises(ValueError, match=r"Invalid decay value: 2; expected a number from 0 to 1"):
        fitted("adam-wsd", options={"decay": 2})
    with pytest.raises(ValueError, match="Invalid optimizer_options for 'adam-wsd'"):
        fitted("adam-wsd", options={"no_such": 2})


def test_an_own_loop_without_a_budget_is_told_what_to_do():
    model, (x, y) = problem()
    optimizer = SOLVERS["adam-cosine"](model.parameters())
    nn.MSELoss()(model(x), y).backward()
    with pytest.raises(RuntimeError, match=r"set optimizer\.budget"):
        optimizer.step()
    optimizer.budget = lambda: 0.5
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-3 * warmup_cosine(0.5))


@pytest.mark.parametrize("name", ["adam-cosine", "muon-cosine", "prodigy-cosine", "sls"])
def test_a_run_that_is_resumed_is_the_run_that_was_not_stopped(name, tmp_path):
    whole, _ = fitted(name)
    path = tmp_path / "run.pt"

    class StopAfter:
        def on_epoch_end(self, record):
            return record.epoch == 3

    fitted(name, checkpoint=path, callbacks=[StopAfter()])
    resumed, result = fitted(name, checkpoint=path)
    assert result.epochs == 10
    for mine, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_checkpoint_of_another_schedule_is_refused(tmp_path):
    path = tmp_path / "run.pt"
    fitted("adam-cosine", checkpoint=path, max_epochs=2)
    with pytest.raises(ValueError, match="another run"):
        fitted("adam-cosine", checkpoint=path, options={"warmup": 0.5})


def test_a_copy_has_groups_and_state_of_its_own():
    model, (x, y) = problem()
    optimizer = Scheduled(torch.optim.Adam(model.parameters()), schedule=wsd, budget=lambda: 0.5)
    nn.MSELoss()(model(x), y).backward()
    optimizer.step()
    copied = copy.deepcopy(optimizer)
    copied.parts[0].param_groups[0]["lr"] = 7.0
    assert copied.param_groups[0]["lr"] == 7.0
    assert optimizer.param_groups[0]["lr"] == 1e-3
    assert copied.state is copied.parts[0].state
    assert len(copied.state) == len(list(model.parameters()))
    assert copied.schedule is wsd


def test_a_loaded_state_is_that_of_the_parts():
    model, (x, y) = problem()
    optimizers = [Scheduled(torch.optim.Adam(model.parameters()), schedule=wsd, budget=lambda: 0.5) for _ in range(2)]
    nn.MSELoss()(model(x), y).backward()
    optimizers[0].step()
    optimizers[1].load_state_dict(optimizers[0].state_dict())
    inner = optimizers[1].parts[0]
    assert inner.state[inner.param_groups[0]["params"][0]]["step"] == 1
    assert inner.param_groups[0] is optimizers[1].param_groups[0]


@pytest.mark.parametrize("name", ["adam-cosine", "adamw-cosine", "sgd-momentum-cosine"])
def test_compiled_epochs_follow_the_schedule_batch_by_batch(name):
    eager, slow = fitted(name, engine="eager", options={"lr": 0.05})
    native, quick = fitted(name, engine="compiled", options={"lr": 0.05})
    assert quick.engine == "compiled"
    assert [one.lr for one in quick.history] == [one.lr for one in slow.history]
    assert [one.f_tilde for one in quick.history] == pytest.approx([one.f_tilde for one in slow.history], rel=1e-3)
    for mine, theirs in zip(native.parameters(), eager.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4)
    assert quick.optimizer.param_groups[0]["lr"] == slow.optimizer.param_groups[0]["lr"]


def test_several_starts_follow_the_schedule():
    _, alone = fitted("adam-wsd", engine="compiled")
    _, result = fitted("adam-wsd", starts=2)
    first = result.starts[0].history
    assert [one.lr for one in first] == [one.lr for one in alone.history]
    assert [one.f_tilde for one in first] == pytest.approx([one.f_tilde for one in alone.history], rel=1e-3)


def test_optimizers_side_by_side_are_not_compiled_and_the_reason_is_said():
    with pytest.raises(ValueError, match="several optimizers side by side"):
        fitted("muon-cosine", engine="compiled", max_epochs=2)


def test_muon_is_for_matrices_and_adamw_for_the_rest():
    model, _ = problem()
    optimizer = SOLVERS["muon"](model.parameters())
    assert [type(part).__name__ for part in optimizer.parts] == ["Muon", "AdamW"]
    assert [p.dim() for p in optimizer.param_groups[0]["params"]] == [2, 2]
    assert [p.dim() for p in optimizer.param_groups[1]["params"]] == [1, 1]


def test_options_of_a_schedule_are_shares():
    with pytest.raises(ValueError, match="Invalid warmup value: 'x'"):
        with_options(warmup_cosine, {"warmup": "x"})


@pytest.mark.parametrize("name", [*SCHEDULED, "sls", "muon", "lbfgs-wolfe"])
def test_baselines_are_solvers_of_the_test_bed(name):
    model, _ = problem()
    assert isinstance(make_optimizer(Solver(name, name), model.parameters()), torch.optim.Optimizer)


def test_the_line_search_takes_the_first_step_size_that_lowers_the_loss_enough():
    w = nn.Parameter(torch.tensor([2.0]))
    optimizer = SOLVERS["sls"]([w], lr=4.0, beta=0.5)  # f = w²/2: lowered enough by steps of up to 2 (1 − c) = 1.8

    def closure():
        optimizer.zero_grad()
        loss = (w.square() / 2).sum()
        if torch.is_grad_enabled():
            loss.backward()
        return loss

    assert float(optimizer.step(closure).detach()) == 2.0
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1.0, rel=0.01)  # 4 is too long, and 2, and 1 is not
    assert abs(w.item()) < 0.01


def test_the_first_step_size_of_a_search_grows_by_gamma_over_an_epoch():
    w = nn.Parameter(torch.tensor([1.0]))
    optimizer = SOLVERS["sls"]([w], lr=0.01, gamma=2.0)
    optimizer.budget = RunBudget(max_epochs=10, seconds=lambda: 0.0)

    def closure():
        optimizer.zero_grad()
        loss = w.sum() * 1e-3  # a line: every step is good
        if torch.is_grad_enabled():
            loss.backward()
        return loss

    for batch in range(5):
        optimizer.budget.epochs = batch / 4
        optimizer.step(closure)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.02)


def test_a_search_that_is_broken_off_ends_where_it_began():
    w = nn.Parameter(torch.tensor([2.0]))
    optimizer = SOLVERS["sls"]([w], lr=4.0)
    calls = []

    def closure():
        optimizer.zero_grad()
        calls.append(w.item())
        if len(calls) == 3:
            raise KeyboardInterrupt
        loss = (w.square() / 2).sum()
        if torch.is_grad_enabled():
            loss.backward()
        return loss

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert w.item() == 2.0
