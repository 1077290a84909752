"""`Controlled` in a plain loop: whose lr it is, what is undone, what is said."""

import contextlib
import copy
import itertools
import math
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from cmalight import SOAP, Auto, Certified, Controlled, Objective, Outcome
from cmalight.evaluation.state import ModuleState
from cmalight.rules import schedule
from tests.helpers import NothingReachesTheHost, same_state

from .plain_loop import MSE, adam, assert_same_bits, bits, controlled, data, network, short_windows, take_steps, watched


def go(optimizer, model, first, last, spoil=None):
    """The steps from one number to another, each with the batch and the fault that it has in a whole run."""
    for step in range(first, last):
        batches = data()
        batches.set_epoch(step // len(batches))
        batch = list(batches)[step % len(batches)]
        take_steps(optimizer, model, [batch], 1, spoil={0: (spoil or {}).get(step, 1.0)})


def test_where_nothing_is_undone_the_weights_are_those_of_the_base_alone():
    model, alone = network(), network()
    go(controlled(model, total_steps=40), model, 0, 40)
    base = adam(alone)
    scheduler = LambdaLR(base, lambda step: schedule.factor((min(step, 39) + 0.5) / 40))
    for step in range(40):
        go(base, alone, step, step + 1)
        scheduler.step()
    assert_same_bits(bits(model), bits(alone))


def test_progress_is_asked_once_per_step_and_takes_the_place_of_total_steps():
    model, twin, asked = network(), network(), []
    go(controlled(model, total_steps=20), model, 0, 20)
    go(controlled(twin, progress=lambda: (len(asked.append(1) or asked) - 0.5) / 20), twin, 0, 20)
    assert len(asked) == 20
    assert_same_bits(bits(model), bits(twin))


def test_an_undo_of_the_first_window_leaves_weights_and_state_as_before_and_statistics_finite():
    """Its forward pass spoils the running statistics before any step is taken."""
    model, optimizer = watched(norm=True, total_steps=100)
    before = [p.detach().clone() for p in model.parameters()]
    x, y = next(iter(data()))
    take_steps(optimizer, model, [(x * math.nan, y)], 4)
    assert optimizer.report.outcome is Outcome.DIVERGED
    assert torch.isfinite(model[1].running_mean).all()
    assert all(map(torch.equal, model.parameters(), before))
    assert not optimizer.base.state


def test_lr_is_the_users_before_and_after_every_step():
    model = network()
    base = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.3}, {"params": model[3].parameters()}], lr=0.1)
    optimizer = controlled(model, base=base, total_steps=20)
    for _ in range(20):
        take_steps(optimizer, model, data(), 1)
        assert [group["lr"] for group in optimizer.param_groups] == [0.3, 0.1]
    factor = schedule.factor(19.5 / 20)
    assert optimizer.last_lr == pytest.approx(0.3 * factor)
    assert [group["scheduled_lr"] for group in optimizer.param_groups] == pytest.approx([0.3 * factor, 0.1 * factor])


def test_a_tensor_lr_stays_the_users_own_tensor():
    model = network()
    lr = torch.tensor(1e-2)
    optimizer = controlled(model, base=adam(model, lr=lr), total_steps=8)
    take_steps(optimizer, model, data(), 8)
    assert optimizer.param_groups[0]["lr"] is lr
    assert float(lr) == pytest.approx(1e-2)


def test_without_total_steps_the_base_gets_the_users_lr_times_scale():
    model = network()
    base = adam(model)
    optimizer = controlled(model, base=base)
    LambdaLR(optimizer, lambda _: 1.0)
    seen = []
    base.register_step_pre_hook(lambda *_: seen.append(base.param_groups[0]["lr"]))
    take_steps(optimizer, model, data(), 4)
    assert seen == [1e-2] * 4
    take_steps(optimizer, model, data(), 8, spoil={3: math.nan, 7: math.nan})
    assert optimizer.scale == 0.5
    take_steps(optimizer, model, data(), 1)
    assert seen[-1] == 0.5e-2


@pytest.mark.parametrize("where", ["buffer", "replaced buffer", "state"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_beside_the_weights_is_undone(where, value):
    model, optimizer = watched(norm=True, total_steps=100)
    take_steps(optimizer, model, data(), 4)

    def spoil(step):
        if step != 2:
            return
        if where == "buffer":
            model[1].running_mean.fill_(value)
        elif where == "replaced buffer":
            model[1].running_mean = torch.full((8,), value)
        else:
            optimizer.base.state[model[3].bias]["max_exp_avg"] = torch.full((1,), value)

    take_steps(optimizer, model, data(), 4, before_step=spoil)
    assert optimizer.report.outcome is Outcome.DIVERGED
    assert torch.isfinite(model[1].running_mean).all()
    assert "max_exp_avg" not in optimizer.base.state[model[3].bias]


def test_a_lazy_model_can_be_watched_before_its_first_pass():
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Linear(8, 1))
    optimizer = controlled(model, base=torch.optim.SGD(model.parameters(), lr=0.1), total_steps=8)
    take_steps(optimizer, model, data(), 8)
    assert optimizer.report.outcome is Outcome.KEPT


def test_a_mask_of_infinities_in_a_buffer_is_not_taken_for_a_divergence():
    model = network()
    model.register_buffer("mask", torch.full((3, 3), -math.inf))
    optimizer = controlled(model, total_steps=100)
    take_steps(optimizer, model, data(), 4)
    assert optimizer.report.outcome is Outcome.KEPT


class CountingLoss(nn.Module):
    """A loss with a buffer and extra state of its own."""

    def __init__(self):
        super().__init__()
        self.register_buffer("largest", torch.zeros(()))
        self.calls = 0

    def forward(self, output, target):
        self.calls += 1
        loss = MSE(output, target)
        self.largest = torch.maximum(self.largest, loss.detach())
        return loss

    def get_extra_state(self):
        return self.calls

    def set_extra_state(self, state):
        self.calls = state


def test_buffers_and_extra_state_of_the_loss_are_undone_and_not_touched_by_evaluations():
    model, loss_fn = network(), CountingLoss()
    optimizer = controlled(model, data(), loss_fn=loss_fn, total_steps=100)
    take_steps(optimizer, model, data(), 4, loss_fn=loss_fn)
    assert loss_fn.calls == 4  # the probe left no trace
    take_steps(optimizer, model, data(), 4, loss_fn=loss_fn, spoil={3: 1e30})
    assert not optimizer.report.outcome.keeps
    assert loss_fn.calls == 1  # as it was before the first step, after one forward pass
    assert float(loss_fn.largest) < 1e3


# How the optimizer is made, which steps are spoilt, so that windows are undone after some of the stops, and the end.
RESUMED = {
    "Controlled": (lambda m: controlled(m, base=SOAP(m.parameters(), lr=0.5), total_steps=24), {6: 1e8}, 24),
    # The first epoch is spoilt, so the second is a plain one, and steps 32 on are the base's again.
    "Certified": (lambda m: Certified(adam(m), Objective(m, MSE, data()), total_steps=100), {3: 1e4}, 70),
}
STOPS = {"Controlled": (1, 4, 6, 7, 8, 11), "Certified": (5, 16, 21, 32, 40)}


@pytest.mark.parametrize(("name", "stop"), [(name, stop) for name, stops in STOPS.items() for stop in stops])
def test_a_run_resumes_bit_for_bit_from_any_step(name, stop):
    make, spoil, end = RESUMED[name]
    models = [network(norm=True) for _ in range(3)]
    whole, first, second = ((make(model), model) for model in models)
    go(*whole, 0, end, spoil)
    go(*first, 0, stop, spoil)
    for part, saved in zip(second, pickle.loads(pickle.dumps([part.state_dict() for part in first])), strict=True):
        part.load_state_dict(saved)
    go(*second, stop, end, spoil)
    assert_same_bits(bits(second[1]), bits(whole[1]))
    assert str(second[0].report) == str(whole[0].report)


def test_total_steps_is_resumed_where_it_is_not_named_again():
    model, twin = network(), network()
    optimizer = controlled(model, total_steps=24)
    take_steps(optimizer, model, data(), 5)
    resumed = controlled(twin)
    resumed.load_state_dict(optimizer.state_dict())
    assert (resumed.total_steps, resumed.steps) == (24, 5)


def test_restart_takes_weights_that_somebody_has_set_and_gives_the_scale_back():
    model, optimizer = watched(total_steps=24)
    take_steps(optimizer, model, data(), 12, spoil={5: math.nan, 9: math.nan})
    assert optimizer.scale == pytest.approx(0.5)
    with torch.no_grad():
        model[3].bias.fill_(0.25)
    optimizer.restart()
    assert (optimizer.scale, optimizer.steps) == (1.0, 12)
    take_steps(optimizer, model, data(), 4, spoil={2: math.nan})
    assert model[3].bias.item() == 0.25


def test_parameters_can_be_added_between_steps():
    model = network()
    optimizer = controlled(model[0], base=adam(model[0]), total_steps=24)
    take_steps(optimizer, model, data(), 6)
    head = bits(model[3])
    optimizer.add_param_group({"params": model[3].parameters()})
    take_steps(optimizer, model, data(), 2, spoil={0: math.nan})
    assert optimizer.report.outcome is Outcome.DIVERGED
    assert_same_bits(bits(model[3]), head)


def test_a_plain_callable_may_return_a_loss_with_its_graph():
    """Warnings are errors here, and torch warns of numbers that are taken from a graph."""
    model, batches = network(), data()
    x, y = batches.tensors
    optimizer = short_windows(Controlled(adam(model), model, objective=lambda: MSE(model(x), y), total_steps=80))
    take_steps(optimizer, model, batches, 12, spoil=dict.fromkeys(range(9, 12), 100.0))
    assert optimizer.report.evaluations == 3


@pytest.mark.parametrize("make", [lambda m: torch.optim.SGD(m.parameters(), lr=0.01), lambda m: SOAP(m.parameters())])
def test_between_the_ends_of_windows_nothing_waits_for_the_device(make):
    model = network(norm=True)
    optimizer = controlled(model, data(), base=make(model), length=8, total_steps=100)
    take_steps(optimizer, model, data(), 9)
    with NothingReachesTheHost():
        take_steps(optimizer, model, data(), 6)


def _interrupt_after(monkeypatch, place):
    """Ctrl-C comes after this many of the calls that write to weights, buffers, state or snapshots."""
    done = 0

    def counted(call):
        def wrapper(*args, **kwargs):
            nonlocal done
            result = call(*args, **kwargs)
            done += 1
            if done == place + 1:
                raise KeyboardInterrupt
            return result

        return wrapper

    monkeypatch.setattr(torch, "_foreach_copy_", counted(torch._foreach_copy_))
    for name in ("restore", "__init__"):
        monkeypatch.setattr(ModuleState, name, counted(getattr(ModuleState, name)))


def test_a_schedule_free_base_trains_on_after_an_objective_that_failed():
    schedulefree = pytest.importorskip("schedulefree")
    model, batches = network(), data()
    base = schedulefree.AdamWScheduleFree(model.parameters())
    optimizer = short_windows(Controlled(base, model, objective=lambda: 1 / 0, total_steps=80))
    optimizer.train()
    with pytest.raises(ZeroDivisionError):
        take_steps(optimizer, model, batches, 12, spoil=dict.fromkeys(range(8, 12), 100.0))
    assert optimizer.param_groups[0]["train_mode"]


def test_steps_past_the_end_are_tiny_and_said_once():
    model, optimizer = watched(total_steps=8)
    with pytest.warns(UserWarning, match="total_steps=8 that you gave are done") as told:
        take_steps(optimizer, model, data(), 12)
    assert len(told) == 1
    assert "cmalight" not in Path(told[0].filename).parts  # the user's line
    assert optimizer.last_lr == pytest.approx(1e-2 * schedule.factor(7.5 / 8))


@pytest.mark.parametrize(("total_steps", "message"), [(None, "has no schedule"), (100, "their factors are multiplied")])
def test_no_schedule_or_two_of_them_are_said_once(total_steps, message):
    model, optimizer = watched(total_steps=total_steps)
    if total_steps:
        LambdaLR(optimizer, lambda _: 1.0)
    with pytest.warns(UserWarning, match=message) as told:
        take_steps(optimizer, model, data(), 12)
    assert len(told) == 1


def test_wrong_arguments_are_refused():
    model = network()
    with pytest.raises(TypeError, match="Controlled needs a torch optimizer"):
        Controlled(model.parameters(), model)
    with pytest.raises(TypeError, match=r"takes the model second.*pass an objective as objective="):
        Controlled(adam(model), Objective(model, MSE, data()))
    with pytest.raises(TypeError, match="Auto needs an Objective"):
        Auto(model, objective=data())
    with pytest.raises(TypeError, match="Auto takes the model, or its parameters, first"):
        Auto(Objective(model, MSE, data()))
    with pytest.raises(ValueError, match="total_steps is 0: the loader has no batch"):
        Auto(model, total_steps=0)
    with pytest.raises(ValueError, match="give one of them"):
        Auto(model, total_steps=3, progress=lambda: 0.0)
    with pytest.raises(ValueError, match="expected a real scalar"):
        Auto(model).step(torch.ones(2))


@pytest.mark.parametrize("clock", [{"total_steps": 1000}, {"progress": lambda: 7.5 / 1000}])
def test_a_second_failure_during_the_warm_up_lowers_the_peak_to_half_of_what_has_failed(clock):
    model = network()
    optimizer = controlled(model, base=torch.optim.SGD(model.parameters(), lr=1e9), **clock)
    take_steps(optimizer, model, data(), 8)
    assert not optimizer.report.outcome.keeps
    assert optimizer.scale == pytest.approx(7.5 / 1000 / 0.05 / 2)  # the eighth step is the longest


def test_the_loop_of_the_contract_runs_as_written():
    loader, model, loss_fn, epochs = data(), network(), MSE, 12
    before = Objective(model, loss_fn, loader)()
    optimizer = Auto(model, total_steps=epochs * len(loader))
    for _ in range(epochs):
        for x, y in loader:
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
    assert Objective(model, loss_fn, loader)() < 0.5 * before


def test_an_engine_advances_windows_as_single_steps_do():
    model, twin = network(), network()
    optimizer, other = (controlled(m, total_steps=24) for m in (model, twin))
    take_steps(optimizer, model, data(), 24)
    loader = data()
    batches = iter([batch for _ in range(2) for batch in loader])

    def run(factors):
        losses = []
        for factor in factors:
            x, y = next(batches)
            other.base.zero_grad()
            loss = MSE(twin(x), y)
            loss.backward()
            for group in other.base.param_groups:
                group["lr"] *= factor
            other.base.step()
            for group in other.base.param_groups:
                group["lr"] = 1e-2
            losses.append(loss.detach().double())
        return torch.stack(losses)

    losses = torch.cat([other.advance(10, run), other.advance(14, run)])
    assert len(losses) == 24
    assert_same_bits(bits(model), bits(twin))
    assert other.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]


@pytest.mark.parametrize(("norm", "dtype"), [(True, torch.float32), (False, torch.bfloat16)], ids=str)
@pytest.mark.parametrize("garbage", [math.nan, 1e38])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_an_undo_leads_to_where_the_last_confirmed_window_began_bit_for_bit(norm, dtype, garbage, device):
    model, batches = network(norm=norm, dtype=dtype), data(dtype=dtype)
    optimizer = controlled(model, total_steps=100, snapshot_device=device)
    take_steps(optimizer, model, batches, 8)
    before, state = bits(model), copy.deepcopy(optimizer.base.state_dict())
    take_steps(optimizer, model, batches, 8, spoil={5: garbage})  # the first four confirm where they began
    assert optimizer.report.outcome is Outcome.DIVERGED
    assert_same_bits(bits(model), before)
    after = optimizer.base.state_dict()
    for number, values in state["state"].items():
        for name, value in values.items():
            assert torch.equal(after["state"][number][name], value), name


def test_without_an_objective_a_single_alarm_undoes_nothing_and_a_second_does():
    model = network()
    optimizer = controlled(model, base=torch.optim.SGD(model.parameters(), lr=1e-6), total_steps=100)
    told = []
    optimizer.on_report(told.append)
    take_steps(optimizer, model, data(), 16)
    began = bits(model)
    take_steps(optimizer, model, data(), 12, spoil=dict.fromkeys((*range(4, 8), *range(8, 12)), -30.0))
    assert [report.outcome for report in told[4:]] == [Outcome.KEPT, Outcome.ALARM, Outcome.UNDONE]
    assert_same_bits(bits(model), began)
    assert str(told[6]).startswith("window of 4 steps undone")


@pytest.mark.parametrize(
    ("values", "lands"),
    [((2.0, 1.0, 1.5), "confirmed"), ((2.0, 1.5, 1.0), "current"), ((1.0, 2.0, 2.0), "here")],
    ids=["at the confirmed point", "where the window began", "nowhere"],
)
def test_with_an_objective_f_settles_the_alarm_at_once_and_an_undo_leads_to_the_lower_point(values, lands):
    model, told = network(), iter(values)  # here, at the confirmed point, where the window began
    base = torch.optim.SGD(model.parameters(), lr=1e-6)
    optimizer = short_windows(Controlled(base, model, objective=lambda: next(told), total_steps=100))
    take_steps(optimizer, model, data(), 12)
    points = {"confirmed": bits(model)}
    take_steps(optimizer, model, data(), 4)
    points["current"] = bits(model)
    take_steps(optimizer, model, data(), 4, spoil=dict.fromkeys(range(4), -30.0))
    report = optimizer.report
    assert report.outcome is (Outcome.DISMISSED if lands == "here" else Outcome.UNDONE)
    assert (report.evaluations, report.f_end, report.f_confirmed) == (3, values[0], min(values[1:]))
    assert [torch.equal(model[0].weight, point["0.weight"]) for point in points.values()] == [
        lands == name for name in points
    ]


def test_after_an_undo_both_points_are_one():
    model, told = network(), iter([2.0, 1.5, 1.0, 3.0, 1.0])  # the second alarm has one point to go back to
    base = torch.optim.SGD(model.parameters(), lr=1e-6)
    optimizer = short_windows(Controlled(base, model, objective=lambda: next(told), total_steps=100))
    take_steps(optimizer, model, data(), 16)
    began = bits(model)
    for _ in range(2):
        take_steps(optimizer, model, data(), 4, spoil=dict.fromkeys(range(4), -30.0))
        assert optimizer.report.outcome is Outcome.UNDONE
        assert_same_bits(bits(model), began)
    assert optimizer.report.evaluations == 2


def test_after_an_undo_the_confirmed_point_is_where_the_next_windows_begin():
    """Not the start of the window that failed, which nothing has confirmed."""
    model, optimizer = watched(total_steps=100)
    take_steps(optimizer, model, data(), 8)
    confirmed = bits(model)
    take_steps(optimizer, model, data(), 4)
    for _ in range(2):
        take_steps(optimizer, model, data(), 4, spoil={1: math.nan})
        assert_same_bits(bits(model), confirmed)
    take_steps(optimizer, model, data(), 4)
    take_steps(optimizer, model, data(), 4, spoil={1: math.nan})
    assert_same_bits(bits(model), confirmed)


@pytest.mark.parametrize("spoil", [1.0, math.nan], ids=["kept", "undone"])
@pytest.mark.parametrize("place", range(8))
def test_an_interrupt_while_a_window_is_judged_leaves_it_kept_or_undone_but_never_mixed(place, spoil, monkeypatch):
    model, optimizer = watched(norm=True, total_steps=40)

    def bits_and_moments():
        return bits(model) | {i: own["exp_avg"].clone() for i, own in enumerate(optimizer.state.values())}

    take_steps(optimizer, model, data(), 4)
    began = bits_and_moments()
    take_steps(optimizer, model, data(), 4)
    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        take_steps(optimizer, model, data(), 3, spoil={2: spoil})
        x, y = next(iter(data()))
        optimizer.zero_grad()
        loss = MSE(model(x), y)
        loss.backward()
        optimizer.base.register_step_post_hook(lambda *_: _interrupt_after(patched, place))
        optimizer.step(loss)
    now = bits_and_moments()
    kept = spoil == 1.0 and all(torch.isfinite(value).all() for value in now.values())
    assert kept or same_state(now, began)
    optimizer.base._optimizer_step_post_hooks.clear()
    take_steps(optimizer, model, data(), 4, spoil={0: math.nan})
    assert all(torch.isfinite(p).all() for p in model.parameters())


def losses_of(optimizer):
    return optimizer._watch.losses.values()


def test_several_observations_before_a_step_are_averaged():
    _, optimizer = watched(length=8, total_steps=100)
    for value in (1.0, torch.tensor(3.0)):
        optimizer.observe(value)
    optimizer.step()
    optimizer.observe(5.0)
    optimizer.step()
    assert losses_of(optimizer) == [2.0, 5.0]


@pytest.mark.parametrize(
    "observe",
    [
        lambda optimizer: (optimizer.observe(1.0), optimizer.zero_grad()),
        lambda optimizer: (optimizer.observe(math.inf), optimizer.zero_grad(), optimizer.observe(1.0)),
    ],
    ids=["before zero_grad", "for gradients that are thrown away"],
)
def test_the_last_observation_before_a_step_counts(observe):
    """GradScaler throws gradients away, and their loss may be infinite."""
    _, optimizer = watched(length=8, total_steps=100)
    observe(optimizer)
    optimizer.step()
    assert losses_of(optimizer) == [1.0]


def test_a_step_without_a_loss_is_taken_but_not_watched_and_that_is_said_once():
    model, optimizer = watched(total_steps=100)
    model(torch.ones(1, 6)).sum().backward()
    before = bits(model)
    with pytest.warns(UserWarning, match="was given no loss") as told:
        for _ in range(8):
            optimizer.step()
    assert len(told) == 1
    assert optimizer.report is None
    assert optimizer.steps == 8
    assert not torch.equal(model[0].bias, before["0.bias"])


def test_a_loss_that_only_rises_is_named_with_the_likely_causes():
    model = network()
    values = itertools.chain([1e300, 0.0, 0.0], itertools.cycle([1e300, 0.0]))  # here, and where the steps began
    optimizer = short_windows(Controlled(adam(model), model, objective=lambda: next(values), total_steps=1000))
    with pytest.warns(UserWarning, match=r"Controlled has undone 5 windows in a row.*adversarial"):
        for number in range(60):
            optimizer.step(float(2**number))


def test_the_last_window_ends_with_the_run():
    model, told = network(), []
    optimizer = controlled(model, length=8, total_steps=20)
    optimizer.on_report(told.append)
    take_steps(optimizer, model, data(), 20)
    assert [report.steps for report in told] == [8, 8, 4]
