"""Mixed precision. GradScaler: an ordinary step is the unscaled one, and a skipped step is no step."""

import pytest
import torch
from torch import nn

from cmalight import SOAP, CMALight, Controlled, Objective, Outcome
from tests.optim.plain_loop import short_windows

from .cases import (
    MSE,
    assert_same,
    assert_same_models,
    batches,
    each_implementation,
    each_of_the_paper,
    network,
    run_losses,
    train,
)

# A power of two, so that scaling and unscaling are exact.
_SCALE = 2.0**10


def _scaler(enabled=True):
    return torch.amp.GradScaler("cpu", init_scale=_SCALE, enabled=enabled)


def _steps_of_w(optimizer, w, *, skip, objective=None, clear="first", unscale=False):
    """Batches of 4 whose losses are 1, 2 and 4 times w; the gradients of those in `skip` overflow."""
    scaler, seen = _scaler(), []
    with optimizer.epoch(objective or (lambda: 7 / 3 * w.item())) as epoch:
        for number, slope in enumerate((1.0, 2.0, 4.0)):
            if clear == "first":
                optimizer.zero_grad()
            loss = slope * w.sum()
            scaler.scale(loss).backward()
            if number in skip:
                w.grad.fill_(torch.inf)
            epoch.observe(loss, 4)
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            if clear == "last":
                optimizer.zero_grad()
            seen.append(w.item())
    return seen, epoch.report


def _weight():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 8.0)
    return model, model.weight


@each_of_the_paper
@each_implementation
@pytest.mark.parametrize(("clear", "unscale"), [("first", False), ("last", True)])
def test_after_a_skipped_batch_the_next_step_is_of_full_size(make, implementation, clear, unscale):
    """lr is 1/2, so the steps are 1/2, 1 and 2, or none; the skipped batch is no accumulation, but its loss counts."""
    for skip, expected in (((), [7.5, 6.5, 4.5]), ((0,), [8.0, 7.0, 5.0]), ((1,), [7.5, 7.5, 5.5])):
        model, w = _weight()
        seen, report = _steps_of_w(make(model, lr=0.5, **implementation), w, skip=skip, clear=clear, unscale=unscale)
        assert seen == expected
        at = [8.0, *expected[:2]]
        assert report.f_tilde == pytest.approx((at[0] + 2 * at[1] + 4 * at[2]) / 3, rel=1e-12)


@each_of_the_paper
@each_implementation
def test_an_epoch_whose_steps_were_all_skipped_changes_nothing(make, implementation):
    model, w = _weight()
    optimizer = make(model, lr=0.5, **implementation)

    def objective():
        return 7 / 3 * w.item()

    with pytest.warns(UserWarning, match="No step"):
        seen, report = _steps_of_w(optimizer, w, skip=(0, 1, 2), objective=objective)
    assert seen == [8.0, 8.0, 8.0]
    assert report.outcome is Outcome.NO_STEP
    assert report.next_lr == optimizer.param_groups[0]["lr"] == 0.5
    assert _steps_of_w(optimizer, w, skip=(), objective=objective)[0] == [7.5, 6.5, 4.5]


_BASES = {
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=1e-2),
    "Adam-fused": lambda model: torch.optim.Adam(model.parameters(), lr=1e-2, fused=True),
    "SGD-fused": lambda model: torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, fused=True),
    "SOAP": lambda model: SOAP(model.parameters()),
}
each_base = pytest.mark.parametrize("make_base", _BASES.values(), ids=_BASES)


def _watched_steps(make_base, *, count, overflows=(), enabled=True):
    model = network()
    optimizer, scaler, windows = _controlled(make_base, model), _scaler(enabled), []
    optimizer.on_report(lambda report: windows.append(report.steps))
    data = batches()[:5] * 8
    for number in range(count):
        x, y = data[number]
        optimizer.zero_grad()
        loss = MSE(model(x), y)
        scaler.scale(loss).backward()
        if number in overflows:
            model[0].weight.grad[0, 0] = torch.inf
        scaler.step(optimizer, loss)
        scaler.update()
    return model, optimizer, windows


def _controlled(make_base, model):
    return short_windows(Controlled(make_base(model), model, total_steps=40))


@each_base
def test_scaled_steps_under_control_equal_plain_ones(make_base):
    scaled, optimizer, _ = _watched_steps(make_base, count=16)
    plain, expected, _ = _watched_steps(make_base, count=16, enabled=False)
    assert optimizer.report == expected.report
    assert_same_models(scaled, plain)


@pytest.mark.parametrize("name", ["Adam", "SOAP"])
def test_a_step_that_the_scaler_skips_counts_neither_for_the_window_nor_for_the_schedule(name):
    """Windows of four steps: with four overflows, 16 calls are three windows, and they are as long as others."""
    _, optimizer, windows = _watched_steps(_BASES[name], count=16, overflows=(1, 3, 4, 10))
    assert windows == [4, 4, 4]
    assert optimizer.steps == 12


@pytest.mark.parametrize("name", ["Adam-fused", "SGD-fused"])
def test_the_loss_of_a_step_that_a_fused_base_skips_does_not_count(name):
    """Only the device knows that it was skipped, so it has its place in the window."""
    _, optimizer, windows = _watched_steps(_BASES[name], count=16, overflows=(1, 3, 4, 10))
    assert windows == [2, 3, 3, 4]
    assert optimizer.steps == 16


def test_the_scaler_leaves_nothing_behind_on_the_base():
    model, optimizer, _ = _watched_steps(_BASES["Adam-fused"], count=3)
    assert not {"grad_scale", "found_inf"} & (vars(optimizer).keys() | vars(optimizer.base).keys())
    before = [p.detach().clone() for p in model.parameters()]
    train(optimizer, model, range(1))
    with pytest.raises(AssertionError):
        assert_same(model.parameters(), before)


def test_bfloat16_is_evaluated_as_it_is_trained():
    """With steps that change nothing the epoch's losses are those of the evaluation, and not those of float32."""
    model = network()

    def loss_of(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return MSE(model(x), y)

    losses = [(lambda x=x, y=y: loss_of(x, y), len(y)) for x, y in batches()]
    objective = Objective(model, None, batches(), forward=lambda _, batch: (loss_of(*batch), len(batch[1])))
    evaluated = objective()
    report = run_losses(CMALight(model.parameters(), lr=1e-30), objective, losses)
    assert report.f_tilde == pytest.approx(evaluated, rel=1e-12)
    assert abs(Objective(model, MSE, batches())() - evaluated) > 1e-6
