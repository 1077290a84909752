"""torch's learning rate schedulers, one of each kind, beside every optimizer."""

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import ConstantLR, ExponentialLR, OneCycleLR, ReduceLROnPlateau, SequentialLR, StepLR

from cmalight import IG, Controlled, Outcome
from tests.optim.plain_loop import short_windows

from .cases import (
    MSE,
    assert_same_models,
    batches,
    each,
    each_of_the_paper,
    network,
    objective_of,
    run_epoch,
    run_losses,
    train,
)

_SCHEDULERS = {
    "step": lambda opt: StepLR(opt, gamma=0.9, step_size=3),
    "one-cycle": lambda opt: OneCycleLR(opt, max_lr=0.1, total_steps=40),
    "plateau": lambda opt: ReduceLROnPlateau(opt, patience=1),
    "sequential": lambda opt: SequentialLR(
        opt, [ConstantLR(opt, factor=0.4), StepLR(opt, step_size=5), ExponentialLR(opt, 0.9)], milestones=[4, 9]
    ),
}
each_scheduler = pytest.mark.parametrize("schedule", _SCHEDULERS.values(), ids=_SCHEDULERS)


def _advance(scheduler):
    scheduler.step(1.0) if isinstance(scheduler, ReduceLROnPlateau) else scheduler.step()


def _lrs(optimizer, model, schedule, *, epochs=2):
    scheduler, seen = schedule(optimizer), []

    def note():
        _advance(scheduler)
        seen.append(optimizer.param_groups[0]["lr"])

    train(optimizer, model, range(epochs), after_step=note)
    return seen


@pytest.mark.filterwarnings("ignore:The epoch parameter in")  # SequentialLR of torch 2.6 warns of its own call
@pytest.mark.filterwarnings("ignore:Controlled has no schedule")  # a plateau scheduler leaves no mark to know it by
@each_scheduler
def test_under_control_every_scheduler_gives_the_lr_and_the_weights_that_it_gives_the_base_alone(schedule):
    """Where nothing is undone; `last_lr` is what the step used."""
    model, alone = network(), network()
    bases = [torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9) for net in (model, alone)]
    optimizer = short_windows(Controlled(bases[0], model, objective=objective_of(model)))
    assert _lrs(optimizer, model, schedule) == _lrs(bases[1], alone, schedule)
    assert optimizer.report.outcome is Outcome.KEPT
    assert_same_models(model, alone)


@each_of_the_paper
def test_an_epoch_uses_the_lr_that_a_scheduler_set_between_epochs(make):
    model = network()
    optimizer = make(model, lr=0.02)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    run_epoch(optimizer, model, batches(0))
    before = optimizer.param_groups[0]["lr"]
    scheduler.step()
    assert f"lr={0.5 * before!r}," in run_epoch(optimizer, model, batches(1))


@each
def test_a_plateau_scheduler_shrinks_the_lr_of_every_group(make):
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[3].parameters(), "lr": 0.4}]
    optimizer = make(model, groups)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for _ in range(2):
        scheduler.step(1.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.2]


def test_ig_may_be_scheduled_at_every_step():
    model, alone = network(), network()
    ig, sgd = IG(model.parameters(), lr=0.05), SGD(alone.parameters(), lr=0.05)
    data = batches()[:5]
    losses = [(lambda x=x, y=y: MSE(model(x), y), len(y)) for x, y in data]
    run_losses(ig, None, losses, after_step=StepLR(ig, step_size=1, gamma=0.9).step)
    run_epoch(sgd, alone, data, after_step=StepLR(sgd, step_size=1, gamma=0.9).step)
    assert_same_models(model, alone)
