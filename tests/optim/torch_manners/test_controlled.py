"""Controlled around Adam keeps torch's manners: closures, hooks, schedulers, GradScaler, compile, DCP, fused steps."""

import copy
import functools

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.optim import lr_scheduler

from cmalight import Controlled, Objective, Outcome
from cmalight.optim.control.state import ControlState, names
from cmalight.rules.tolerant import Remembered

from .loop import LOSS, assert_same_models, batches, network, run_epoch, through_a_file, train


def controlled(model: nn.Module, **options) -> Controlled:
    settings = {name: options.pop(name) for name in ("rule", "tolerance") if name in options}
    adam = torch.optim.Adam(model.parameters(), **{"lr": 0.05, **options})
    return Controlled(adam, **settings)


@pytest.mark.parametrize("implementation", [{"foreach": False}, {"foreach": True}, {"fused": True}])
def test_every_implementation_of_the_base_gives_the_same_epochs(implementation):
    model, twin = network(dtype=torch.float64), network(dtype=torch.float64)
    reports = train(controlled(model, foreach=False), model, range(8), dtype=torch.float64)
    others = train(controlled(twin, **implementation), twin, range(8), dtype=torch.float64)
    assert [r.split(",")[0] for r in reports] == [r.split(",")[0] for r in others]
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-10, atol=1e-12)


def test_control_state_is_plain_and_loads_safely():
    model = network()
    optimizer = controlled(model)
    train(optimizer, model, range(3))
    state = through_a_file(optimizer.state_dict())
    own = names(ControlState, Remembered)
    assert all(isinstance(state["param_groups"][0][name], float | int) for name in own)


@pytest.mark.parametrize("saved_after", range(4))
def test_a_run_goes_on_from_a_file_bit_for_bit(saved_after):
    model = network()
    optimizer = controlled(model, lr=0.3)
    train(optimizer, model, range(saved_after))
    other = network()
    other.load_state_dict(through_a_file(model.state_dict()))
    loaded = controlled(other)
    loaded.load_state_dict(through_a_file(optimizer.state_dict()))
    assert train(optimizer, model, range(4, 10)) == train(loaded, other, range(4, 10))
    assert_same_models(model, other)


def test_a_closure_is_observed():
    model, twin = network(), network()
    optimizer, other = controlled(model), controlled(twin)
    data = batches()
    with optimizer.epoch(Objective(model, LOSS, data)) as epoch:
        for inputs, target in epoch.batches(data):

            def closure(inputs=inputs, target=target):
                optimizer.zero_grad()
                loss = LOSS(model(inputs), target)
                loss.backward()
                return loss

            optimizer.step(closure)
    assert epoch.report == run_epoch(other, twin, data)
    assert_same_models(model, twin)


def test_hooks_of_both_run_once_a_step():
    model = network()
    optimizer = controlled(model)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("outer"))
    optimizer.base.register_step_pre_hook(lambda *_: calls.append("inner"))
    run_epoch(optimizer, model, batches())
    assert calls == ["outer", "inner"] * len(batches())


@pytest.mark.parametrize(
    "make",
    [
        lambda opt: lr_scheduler.StepLR(opt, step_size=2, gamma=0.5),
        lambda opt: lr_scheduler.ReduceLROnPlateau(opt, patience=0),
    ],
)
def test_a_scheduler_sees_and_sets_the_step_size_of_the_base(make):
    model = network()
    optimizer = controlled(model)
    scheduler = make(optimizer)
    for k in range(4):
        run_epoch(optimizer, model, batches(k))
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(float(k))
        else:
            scheduler.step()
    assert optimizer.base.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("every_batch", [False, True])
def test_a_scheduler_that_cycles_momentum_finds_it(every_batch):
    """And is told that it undoes what the control decided."""
    model = network()
    optimizer = controlled(model)
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=100)
    assert optimizer.param_groups[0]["betas"][0] == 0.95
    if every_batch:
        with pytest.warns(RuntimeWarning, match="lr was changed inside an epoch"):
            run_epoch(optimizer, model, batches(), after_step=scheduler.step)
    else:
        run_epoch(optimizer, model, batches())
        scheduler.step()
    assert optimizer.base.param_groups[0]["betas"][0] < 0.95


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_grad_scaler_skips_is_no_step(fused):
    model = network()
    optimizer = controlled(model, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    before = copy.deepcopy(model)
    data = batches()
    with optimizer.epoch(Objective(model, LOSS, data)) as epoch:
        for inputs, target in epoch.batches(data):
            optimizer.zero_grad()
            loss = LOSS(model(inputs), target)
            scaler.scale(loss).backward()
            next(model.parameters()).grad.fill_(torch.inf)
            epoch.observe(loss, len(target))
            scaler.step(optimizer)
            scaler.update()
    assert epoch.report.outcome is Outcome.NO_STEP
    assert_same_models(model, before)


@pytest.mark.parametrize("fused", [False, True])
def test_under_grad_scaler_the_epochs_are_those_without(fused):
    model, twin = network(dtype=torch.float64), network(dtype=torch.float64)
    optimizer, other = controlled(model, fused=fused), controlled(twin, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    data = batches(dtype=torch.float64)
    for _ in range(3):
        with optimizer.epoch(Objective(model, LOSS, data)) as epoch:
            for inputs, target in epoch.batches(data):
                optimizer.zero_grad()
                loss = LOSS(model(inputs), target)
                scaler.scale(loss).backward()
                epoch.observe(loss, len(target))
                scaler.step(optimizer)
                scaler.update()
        assert epoch.report.outcome is run_epoch(other, twin, data).outcome
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-10, atol=1e-12)


def test_a_compiled_model_is_controlled_alike():
    model, twin = network(dtype=torch.float64), network(dtype=torch.float64)
    compiled = torch.compile(model, backend="eager")
    reports = train(controlled(model), compiled, range(4), dtype=torch.float64)
    assert reports == train(controlled(twin), twin, range(4), dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized:UserWarning")
def test_a_distributed_checkpoint_goes_on_bit_for_bit(tmp_path):
    model = network()
    optimizer = controlled(model)
    train(optimizer, model, range(3))
    dcp.save(
        {"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=tmp_path
    )
    other = network()
    loaded = controlled(other)
    state = {"model": other.state_dict(), "optimizer": get_optimizer_state_dict(other, loaded)}
    dcp.load(state, checkpoint_id=tmp_path)
    other.load_state_dict(state["model"])
    set_optimizer_state_dict(other, loaded, state["optimizer"])
    assert train(optimizer, model, range(3, 8)) == train(loaded, other, range(3, 8))
    assert_same_models(model, other)


def test_complex_parameters_are_controlled():
    weight = nn.Parameter(torch.tensor([1.0 + 2.0j, -0.5 + 0.3j], dtype=torch.complex128))
    optimizer = Controlled(torch.optim.Adam([weight], lr=0.1), usual=0.1)

    def loss() -> torch.Tensor:
        return weight.abs().square().mean()

    first = loss().item()
    for _ in range(20):
        with optimizer.epoch(lambda: loss().item()) as epoch:
            for _ in range(4):
                optimizer.zero_grad()
                value = loss()
                value.backward()
                epoch.observe(value, 1)
                optimizer.step()
    assert loss().item() < 0.05 * first


def test_a_profiler_sees_the_steps_of_the_base():
    model = network()
    optimizer = controlled(model)
    name = f"Optimizer.step#{type(optimizer.base).__name__}.step"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        run_epoch(optimizer, model, batches())
    assert [row.count for row in profiler.key_averages() if row.key == name] == [len(batches())]


def test_a_step_of_the_base_that_somebody_wrapped_is_taken(monkeypatch):
    model = network()
    optimizer = controlled(model)
    kind, calls = type(optimizer.base), []
    inner = kind.step

    @functools.wraps(inner)
    def wrapped(*args, **kwargs):
        calls.append(1)
        return inner(*args, **kwargs)

    monkeypatch.setattr(kind, "step", wrapped)
    run_epoch(optimizer, model, batches())
    assert len(calls) == len(batches())
