"""`Controlled` in a plain loop: whose lr it is, what is undone, what is said."""

import contextlib
import copy
import itertools
import math
import pickle
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils._python_dispatch import TorchDispatchMode

from cmalight import SOAP, Auto, CMALight, Controlled, Objective, Outcome
from cmalight.evaluation.state import ModuleState
from cmalight.rules import schedule

from .plain_loop import MSE, adam, assert_same_bits, bits, controlled, data, network, short_windows, take_steps, watched


def test_where_nothing_is_undone_the_weights_are_those_of_the_base_alone():
    model, alone = network(), network()
    optimizer = controlled(model, total_steps=40)
    take_steps(optimizer, model, data(), 40)
    base = adam(alone)
    scheduler = LambdaLR(base, lambda step: schedule.factor((min(step, 39) + 0.5) / 40))
    for step in range(40):
        take_steps(base, alone, _from(data(), step), 1)
        scheduler.step()
    assert_same_bits(bits(model), bits(alone))


def _from(batches, step):
    """The batch that comes after so many steps."""
    batches.set_epoch(step // len(batches))
    return [list(batches)[step % len(batches)]]


def test_lr_is_the_users_before_and_after_every_step():
    model = network()
    base = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.3}, {"params": model[3].parameters()}], lr=0.1)
    optimizer = controlled(model, base=base, total_steps=20)
    for _ in range(20):
        take_steps(optimizer, model, data(), 1)
        assert [group["lr"] for group in optimizer.param_groups] == [0.3, 0.1]
    assert optimizer.last_lr == pytest.approx(0.3 * schedule.factor(19.5 / 20))


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


def test_progress_takes_the_place_of_total_steps():
    model, twin = network(), network()
    done = 0
    counted = controlled(model, total_steps=20)
    by_clock = controlled(twin, progress=lambda: (done + 0.5) / 20)
    for done in range(20):
        take_steps(counted, model, _from(data(), done), 1)
        take_steps(by_clock, twin, _from(data(), done), 1)
    assert_same_bits(bits(model), bits(twin))


def test_state_that_the_window_created_is_gone_after_it_is_undone():
    model, optimizer = watched(total_steps=100)
    take_steps(optimizer, model, data(), 4, spoil={0: math.nan})
    assert not optimizer.base.state


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


def test_nan_in_the_very_first_batch_leaves_the_running_statistics_finite():
    model, optimizer = watched(norm=True, total_steps=12)
    x, y = next(iter(data()))
    loss = MSE(model(x * math.nan), y)
    loss.backward()
    optimizer.step(loss)
    take_steps(optimizer, model, data(), 3)
    assert optimizer.report.outcome is Outcome.DIVERGED
    take_steps(optimizer, model, data(), 4)
    assert torch.isfinite(model[1].running_mean).all()


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


@pytest.mark.parametrize("stop", [1, 4, 6, 7, 8, 11])
def test_a_run_resumes_bit_for_bit_from_any_step(stop):
    def begun():
        model = network(norm=True)
        return model, controlled(model, base=SOAP(model.parameters(), lr=0.5), total_steps=24)

    spoiled = {6: 1e8}  # so that a window is undone after some of the stops
    whole, optimizer = begun()
    for step in range(24):
        take_steps(optimizer, whole, _from(data(), step), 1, spoil={0: spoiled.get(step, 1.0)})
    first, optimizer = begun()
    for step in range(stop):
        take_steps(optimizer, first, _from(data(), step), 1, spoil={0: spoiled.get(step, 1.0)})
    saved = pickle.loads(pickle.dumps((first.state_dict(), optimizer.state_dict())))
    second, optimizer = begun()
    optimizer.load_state_dict(saved[1])  # in either order
    second.load_state_dict(saved[0])
    for step in range(stop, 24):
        take_steps(optimizer, second, _from(data(), step), 1, spoil={0: spoiled.get(step, 1.0)})
    assert_same_bits(bits(second), bits(whole))


def test_total_steps_is_resumed_where_it_is_not_named_again():
    model, twin = network(), network()
    optimizer = controlled(model, total_steps=24)
    take_steps(optimizer, model, data(), 5)
    resumed = controlled(twin)
    resumed.load_state_dict(optimizer.state_dict())
    assert (resumed.total_steps, resumed.steps) == (24, 5)


def test_restart_keeps_the_count_of_steps_and_gives_the_scale_back():
    model, optimizer = watched(total_steps=24)
    take_steps(optimizer, model, data(), 12, spoil={5: math.nan, 9: math.nan})
    assert (optimizer.scale, optimizer.steps) == (pytest.approx(0.5), 12)
    optimizer.restart()
    assert (optimizer.scale, optimizer.steps) == (1.0, 12)


def test_restart_takes_weights_that_somebody_has_set():
    model, optimizer = watched(total_steps=24)
    take_steps(optimizer, model, data(), 6)
    with torch.no_grad():
        model[3].bias.fill_(0.25)
    optimizer.restart()
    take_steps(optimizer, model, data(), 4, spoil={2: math.nan})
    assert model[3].bias.item() == 0.25


def test_every_report_is_told():
    model, told = network(), []
    optimizer = controlled(model, total_steps=24)
    optimizer.on_report(told.append)
    take_steps(optimizer, model, data(), 12)
    assert [report.steps for report in told] == [4, 4, 4]
    assert told[-1] is optimizer.report


def test_parameters_can_be_added_between_steps():
    model = network()
    optimizer = controlled(model[0], base=adam(model[0]), total_steps=24)
    take_steps(optimizer, model, data(), 6)
    head = bits(model[3])
    optimizer.add_param_group({"params": model[3].parameters()})
    take_steps(optimizer, model, data(), 2, spoil={0: math.nan})
    assert optimizer.report.outcome is Outcome.DIVERGED
    assert_same_bits(bits(model[3]), head)


def test_a_stream_without_a_length_can_be_watched():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            generator = torch.Generator().manual_seed(3)
            while True:
                x = torch.randn(6, generator=generator)
                yield x, x.sum().sin().unsqueeze(0)

    loader = torch.utils.data.DataLoader(Stream(), batch_size=16)
    model = network()
    optimizer = Controlled(adam(model), model, total_steps=12)
    take_steps(optimizer, model, loader, 12)
    assert optimizer.report.outcome is Outcome.KEPT


def test_a_plain_callable_may_return_a_loss_with_its_graph():
    """Warnings are errors here, and torch warns of numbers that are taken from a graph."""
    model, batches = network(), data()
    x, y = batches.tensors
    optimizer = short_windows(Controlled(adam(model), model, objective=lambda: MSE(model(x), y), total_steps=80))
    take_steps(optimizer, model, batches, 12, spoil=dict.fromkeys(range(9, 12), 100.0))
    assert optimizer.report.evaluations == 3


def _bits_of_all(model, optimizer, *, buffers=True):
    found = bits(model) if buffers else {name: value.clone() for name, value in model.named_parameters()}
    return found | {i: own["exp_avg"].clone() for i, own in enumerate(optimizer.state.values())}


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


def _are_equal(left, right):
    return all(torch.equal(left[name].nan_to_num(7.0), right[name].nan_to_num(7.0)) for name in left)


def test_a_schedule_free_base_trains_on_after_an_objective_that_failed():
    schedulefree = pytest.importorskip("schedulefree")
    model, batches = network(), data()
    base = schedulefree.AdamWScheduleFree(model.parameters())
    optimizer = short_windows(Controlled(base, model, objective=lambda: 1 / 0, total_steps=80))
    optimizer.train()
    with pytest.raises(ZeroDivisionError):
        take_steps(optimizer, model, batches, 12, spoil=dict.fromkeys(range(8, 12), 100.0))
    assert optimizer.param_groups[0]["train_mode"]


def test_the_missing_schedule_is_said_once():
    model, optimizer = watched()
    with pytest.warns(UserWarning, match="has no schedule") as told:
        take_steps(optimizer, model, data(), 12)
    assert len(told) == 1


def test_steps_past_the_end_are_tiny_and_said_once():
    model, optimizer = watched(total_steps=8)
    with pytest.warns(UserWarning, match="total_steps=8 are done") as told:
        take_steps(optimizer, model, data(), 12)
    assert len(told) == 1
    assert optimizer.last_lr == pytest.approx(1e-2 * schedule.factor(7.5 / 8))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda model: torch.optim.LBFGS(model.parameters()), "needs a closure"),
        (lambda model: CMALight(model.parameters()), "judges its own steps"),
        (lambda model: torch.optim.SGD(model.parameters(), lr=0.1, maximize=True), "negate the loss"),
        (lambda model: torch.optim.SGD([{"params": model.parameters(), "lr": None}], lr=0.1), "it has none"),
    ],
)
def test_what_cannot_be_watched_is_refused(make, message):
    model = network()
    with pytest.raises(ValueError, match=message):
        Controlled(make(model), model)


def test_wrong_arguments_are_refused():
    model = network()
    with pytest.raises(TypeError, match="Controlled needs a torch optimizer"):
        Controlled(model.parameters(), model)
    with pytest.raises(TypeError, match=r"needs the model.*pass an objective by name"):
        Controlled(adam(model), Objective(model, MSE, data()))
    with pytest.raises(TypeError, match="Auto needs an Objective"):
        Auto(model, objective=data())
    with pytest.raises(ValueError, match="total_steps"):
        Auto(model, total_steps=0)
    with pytest.raises(ValueError, match="give one of them"):
        Auto(model, total_steps=3, progress=lambda: 0.0)
    with pytest.raises(ValueError, match="expected a real scalar"):
        Auto(model).step(torch.ones(2))


class Host(TorchDispatchMode):
    """Counts what waits for the device or copies to the host."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default):
            self.waits.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("make", [lambda m: torch.optim.SGD(m.parameters(), lr=0.01), lambda m: SOAP(m.parameters())])
def test_between_the_ends_of_windows_nothing_waits_for_the_device(make):
    model = network(norm=True)
    optimizer = controlled(model, data(), base=make(model), length=8, total_steps=100)
    take_steps(optimizer, model, data(), 9)
    with Host() as host:
        take_steps(optimizer, model, data(), 6)
    assert host.waits == []


@pytest.mark.parametrize("clock", [{"total_steps": 1000}, {"progress": lambda: 7.5 / 1000}])
def test_a_second_failure_during_the_warm_up_lowers_the_peak_to_half_of_what_has_failed(clock):
    model = network()
    optimizer = controlled(model, base=torch.optim.SGD(model.parameters(), lr=1e9), **clock)
    take_steps(optimizer, model, data(), 8)
    assert not optimizer.report.outcome.keeps
    assert optimizer.scale == pytest.approx(7.5 / 1000 / 0.05 / 2)  # the eighth step is the longest


def test_progress_is_asked_once_per_step():
    model, asked = network(), []
    optimizer = controlled(model, progress=lambda: float(asked.append(1) or 0.5))
    take_steps(optimizer, model, data(), 10, spoil={1: 1e9})
    assert len(asked) == 10


def test_prodigy_like_numbers_in_groups_are_undone():
    """Prodigy and schedule-free optimizers keep their state in the parameter groups."""

    class Counting(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                group["k"] = group.get("k", 0) + 1
            return super().step(closure)

    model = network()
    optimizer = controlled(model, base=Counting(model.parameters(), lr=0.01), total_steps=50)
    take_steps(optimizer, model, data(), 8)
    take_steps(optimizer, model, data(), 4, spoil={0: math.nan})
    assert optimizer.param_groups[0]["k"] == 4


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


@pytest.mark.parametrize(("factor", "shift"), [(1.0, 1.0), (8.0, 0.0), (4.0, -2.0)])
def test_the_run_is_the_same_for_a_scaled_and_shifted_loss(factor, shift):
    """SOAP, like Adam without eps, takes the same steps for a·f; so every decision, and the weights, must agree."""
    ends = []
    for a, b in ((1.0, 0.0), (factor, shift)):
        model = network(dtype=torch.float64)
        batches = data(dtype=torch.float64)

        def loss_fn(output, target, a=a, b=b):
            return a * MSE(output, target) + b

        base = SOAP(model.parameters(), lr=0.3, eps=0.0)
        optimizer = controlled(model, base=base, loss_fn=loss_fn, total_steps=60)
        outcomes = []
        optimizer.on_report(lambda report, outcomes=outcomes: outcomes.append(report.outcome))
        take_steps(optimizer, model, batches, 60, loss_fn=loss_fn)
        ends.append((outcomes, model[0].weight.detach()))
    assert ends[0][0] == ends[1][0]
    torch.testing.assert_close(ends[0][1], ends[1][1], rtol=1e-6, atol=1e-8)


def _own_calls(action):
    counts = []

    def profile(frame, event, _):
        name = frame.f_code.co_name
        if event == "call" and "/cmalight/" in frame.f_code.co_filename and not name.startswith("<"):
            counts.append(name)

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return counts


def test_a_step_passes_few_functions_and_a_window_not_many():
    model = network()
    optimizer = controlled(model, length=8, total_steps=100)
    take_steps(optimizer, model, data(), 9)
    loss = torch.zeros(())
    per_step = len(_own_calls(lambda: optimizer.step(loss)))
    assert per_step <= 20
    for _ in range(5):
        optimizer.step(loss)
    calls = _own_calls(lambda: optimizer.step(loss))  # the eighth step of the window, which is judged
    assert optimizer.report.steps == 8
    assert len(calls) - per_step <= 105, calls


def test_two_optimizers_in_one_loop_do_not_disturb_each_other():
    models = network(), network()
    optimizers = [controlled(model, total_steps=16) for model in models]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(16):
            for model, optimizer in zip(models, optimizers, strict=True):
                take_steps(optimizer, model, _from(data(), step), 1)
    assert_same_bits(bits(models[0]), bits(models[1]))


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


# What is undone, and where it leads.


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


def test_an_alarm_that_the_next_window_does_not_confirm_changes_nothing():
    runs = []
    for make in (controlled, lambda model, **options: None):
        model = network()
        base = torch.optim.SGD(model.parameters(), lr=1e-3)
        optimizer = make(model, base=base, progress=lambda: 0.3)
        take_steps(optimizer or base, model, data(), 40, spoil=dict.fromkeys(range(20, 24), -30.0))
        runs.append(bits(model))
    assert_same_bits(*runs)


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
    take_steps(optimizer, model, data(), 4)
    began = _bits_of_all(model, optimizer)
    take_steps(optimizer, model, data(), 4)
    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        take_steps(optimizer, model, data(), 3, spoil={2: spoil})
        x, y = next(iter(data()))
        optimizer.zero_grad()
        loss = MSE(model(x), y)
        loss.backward()
        optimizer.base.register_step_post_hook(lambda *_: _interrupt_after(patched, place))
        optimizer.step(loss)
    now = _bits_of_all(model, optimizer)
    confirmed = _are_equal(now, began)
    assert confirmed or (spoil == 1.0 and all(torch.isfinite(value).all() for value in now.values()))
    optimizer.base._optimizer_step_post_hooks.clear()
    take_steps(optimizer, model, data(), 4, spoil={0: math.nan})
    assert all(torch.isfinite(p).all() for p in model.parameters())


# What is observed.


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


def test_a_closure_gives_the_loss_and_is_called_once():
    model, optimizer = watched(length=8, total_steps=100)
    calls = []

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = model(torch.ones(1, 6)).square().mean()
        loss.backward()
        return loss

    assert optimizer.step(closure).requires_grad
    assert len(calls) == len(losses_of(optimizer)) == 1


def test_what_was_observed_for_gradients_that_are_thrown_away_does_not_count():
    """GradScaler skips such a step, and the loss may be infinite."""
    _, optimizer = watched(length=8, total_steps=100)
    optimizer.observe(math.inf)
    optimizer.zero_grad()
    optimizer.observe(1.0)
    optimizer.step()
    assert losses_of(optimizer) == [1.0]


def test_both_orders_of_zero_grad_and_observe_are_understood():
    _, optimizer = watched(length=8, total_steps=100)
    optimizer.observe(1.0)
    optimizer.zero_grad()
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


# What is said.


def test_a_loss_that_only_rises_is_named_with_the_likely_causes():
    model = network()
    values = itertools.chain([1e300, 0.0, 0.0], itertools.cycle([1e300, 0.0]))  # here, and where the steps began
    optimizer = short_windows(Controlled(adam(model), model, objective=lambda: next(values), total_steps=1000))
    with pytest.warns(UserWarning, match=r"Controlled has undone 5 windows in a row.*adversarial"):
        for number in range(60):
            optimizer.step(float(2**number))


def test_a_scheduler_beside_total_steps_is_said():
    model, optimizer = watched(total_steps=100)
    LambdaLR(optimizer, lambda _: 1.0)
    with pytest.warns(UserWarning, match="their factors are multiplied"):
        take_steps(optimizer, model, data(), 4)


def test_the_last_window_ends_with_the_run():
    model, told = network(), []
    optimizer = controlled(model, length=8, total_steps=20)
    optimizer.on_report(told.append)
    take_steps(optimizer, model, data(), 20)
    assert [report.steps for report in told] == [8, 8, 4]


def test_no_step_at_all_is_a_mistake_in_the_loader():
    with pytest.raises(ValueError, match="total_steps is 0: the loader has no batch"):
        Auto(network(), total_steps=0)


def test_probes_cost_two_percent_of_a_run_of_1300_steps_and_less_of_longer_ones(monkeypatch):
    """18 probes of four batches each, forward only: as much as 24 steps."""
    model, batches, probed = network(), data(), []
    monkeypatch.setattr(Objective, "probe", lambda self: probed.append(1) or 0.0)
    optimizer = Controlled(adam(model), model, objective=Objective(model, MSE, batches), total_steps=400)
    take_steps(optimizer, model, batches, 400)
    assert len(probed) <= 18
