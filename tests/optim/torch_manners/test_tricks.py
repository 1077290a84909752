"""The usual tricks of a training loop around an epoch: mixed precision, clipping, accumulation, averages, compiling."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from cmalight import CMALight, Objective, Outcome

from .loop import LOSS, assert_same, assert_same_models, batches, network, run_epoch, train


def _autocast_loss(model: nn.Module, inputs: Tensor, target: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return LOSS(model(inputs), target)


def _autocast_objective(model: nn.Module) -> Objective:
    def forward(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
        return _autocast_loss(model, *batch), len(batch[1])

    return Objective(model, None, batches(), forward=forward)


def _autocast_epoch(optimizer: Any, model: nn.Module) -> Any:
    with optimizer.epoch(_autocast_objective(model)) as epoch:
        for inputs, target in epoch.batches(batches()):
            optimizer.zero_grad()
            loss = _autocast_loss(model, inputs, target)
            loss.backward()
            epoch.observe(loss, len(target))
            optimizer.step()
    return epoch.report


def test_bfloat16_is_evaluated_as_it_is_trained() -> None:
    """With steps that change nothing the epoch's losses are those of the evaluation, and not those of float32."""
    model = network()
    plain = Objective(model, LOSS, batches())()
    evaluated = _autocast_objective(model)()
    report = _autocast_epoch(CMALight(model.parameters(), lr=1e-30), model)
    assert report.f_tilde == pytest.approx(evaluated, rel=1e-12)
    assert abs(plain - evaluated) > 1e-6


@pytest.mark.parametrize("norm", [False, True])
def test_epochs_in_bfloat16_are_accepted_and_undone(norm: bool) -> None:
    model = network(norm=norm)
    optimizer = CMALight(model.parameters(), lr=30.0)
    outcomes, first = [], _autocast_objective(model)()
    for _ in range(20):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        report = _autocast_epoch(optimizer, model)
        outcomes.append(report.outcome)
        if report.alpha == 0:
            assert_same(model.state_dict().values(), before.values())
    assert {Outcome.ACCEPTED, Outcome.REJECTED_EARLY} <= set(outcomes)
    assert _autocast_objective(model)() < 0.9 * first
    assert all(p.dtype is torch.float32 for p in model.parameters())


def test_clipped_epochs_take_the_steps_of_clipped_sgd() -> None:
    model, twin = network(), network()
    optimizer, reference = CMALight(model.parameters(), lr=0.1), SGD(twin.parameters(), lr=0.1)
    data = batches()[:5]  # of equal size
    start = [p.detach().clone() for p in model.parameters()]

    def step() -> None:
        clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()

    report = run_epoch(optimizer, model, data, step=step)
    for inputs, target in data:
        reference.zero_grad()
        LOSS(twin(inputs), target).backward()
        clip_grad_norm_(twin.parameters(), 0.01)
        reference.step()
    assert report.outcome is Outcome.ACCEPTED
    assert_same_models(model, twin)
    moved = torch.cat([(p - q).flatten() for p, q in zip(model.parameters(), start, strict=True)]).norm()
    assert report.direction_norm == pytest.approx(moved.item() / 0.1, rel=1e-5)


def _accumulating(scaler: Any) -> tuple[nn.Module, list[str]]:
    """Batches of two parts, unscaled and clipped before the step."""
    model = network()
    optimizer = CMALight(model.parameters(), lr=0.8)
    reports = []
    for _ in range(6):
        with optimizer.epoch(Objective(model, LOSS, batches())) as epoch:
            for number, (inputs, target) in enumerate(epoch.batches(batches())):
                if number % 2 == 0:
                    optimizer.zero_grad()
                loss = LOSS(model(inputs), target)
                epoch.observe(loss, len(target))
                scaler.scale(loss / 2).backward()
                if number % 2:
                    scaler.unscale_(optimizer)
                    clip_grad_norm_(model.parameters(), 0.5)
                    scaler.step(optimizer)
                    scaler.update()
        reports.append(repr(epoch.report))
    return model, reports


def test_scaling_accumulation_and_clipping_go_together() -> None:
    """A scale that is a power of two changes nothing, to the last bit."""
    scaled, reports = _accumulating(torch.amp.GradScaler("cpu", init_scale=2.0**12))
    plain, expected = _accumulating(torch.amp.GradScaler("cpu", enabled=False))
    assert reports == expected
    assert_same_models(scaled, plain)


def test_an_average_beside_it_sees_controlled_weights_only() -> None:
    """Updated between the epochs, it never sees an epoch that was undone, and no evaluation changes it."""
    model = network(norm=True)
    optimizer = CMALight(model.parameters(), lr=1.0)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    weight, expected, outcomes = model[0].weight, None, set()
    for order in range(12):
        outcomes.add(run_epoch(optimizer, model, batches(order)).outcome)
        average.update_parameters(model)
        now = weight.detach().clone()
        expected = now if expected is None else 0.9 * expected + 0.1 * now
    assert {Outcome.ACCEPTED, Outcome.REJECTED_EARLY} <= outcomes
    torch.testing.assert_close(average.module[0].weight.detach(), expected)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_a_compiled_model_gives_the_epochs_of_the_eager_one() -> None:
    """Buffers are rolled back through it; it may be the objective's model as well."""
    torch._dynamo.reset()
    eager, inner = network(norm=True), network(norm=True)
    compiled = torch.compile(inner, backend="aot_eager")
    reports = train(CMALight(compiled.parameters(), lr=1.0), compiled, range(6))
    expected = train(CMALight(eager.parameters(), lr=1.0), eager, range(6))
    assert [report.split(",")[0] for report in reports] == [report.split(",")[0] for report in expected]
    assert any("REJECTED" in report for report in reports)
    assert any("ACCEPTED" in report for report in reports)
    for value, other in zip(inner.state_dict().values(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()
