"""torch's learning-rate schedulers run with these optimizers, outside an epoch and around epochs."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import ConstantLR, LRScheduler, ReduceLROnPlateau, SequentialLR, StepLR
from torch.optim.swa_utils import SWALR, AveragedModel

from cmalight import CMA, IG, CMALight, Objective

from . import loop
from .infos import INFOS, each_optimizer
from .loop import LOSS, assert_same, batches, network, run_epoch

_CASES = [
    pytest.param(info.optim_cls, schedulers, id=f"{info.name}-{number}")
    for info in INFOS
    for number, schedulers in enumerate(info.scheduler_inputs)
]


def _advance(scheduler: Any, loss: float) -> None:
    if isinstance(scheduler, ReduceLROnPlateau):
        scheduler.step(loss)
    else:
        scheduler.step()


def _problem(contiguous: bool) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(10, 5, 2, generator=generator), torch.randn(10, 2, generator=generator)
    if contiguous:
        return [nn.Parameter(weight[..., 0].contiguous()), nn.Parameter(bias[..., 0].contiguous())]
    return [nn.Parameter(weight[..., 0]), nn.Parameter(bias[..., 0])]


def _descend(kind: Any, schedulers: Any, *, contiguous: bool, implementation: Any) -> tuple[list[float], list[Any]]:
    weight, bias = _problem(contiguous)
    inputs = torch.linspace(-1, 1, 5)
    optimizer = kind([weight, bias], lr=0.01, **implementation)
    active = [make(optimizer) for make in schedulers]
    losses = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (weight.mv(inputs) + bias).pow(2).sum()
        loss.backward()
        return loss

    for _ in range(20):
        losses.append(optimizer.step(closure).item())
        for scheduler in active:
            _advance(scheduler, losses[-1])
    return losses, [weight.detach(), bias.detach(), torch.tensor(optimizer.param_groups[0]["lr"])]


@pytest.mark.filterwarnings("ignore:20 steps of:RuntimeWarning")  # they are outside of an epoch on purpose
@pytest.mark.parametrize(("optimizer_class", "schedulers"), _CASES)
@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("foreach", [False, True])
def test_steps_under_schedulers_go_in_the_right_direction_and_as_in_sgd(
    optimizer_class: Any, schedulers: Any, contiguous: bool, foreach: bool
) -> None:
    implementation = {"foreach": foreach}
    losses, result = _descend(optimizer_class, schedulers, contiguous=contiguous, implementation=implementation)
    expected_losses, expected = _descend(SGD, schedulers, contiguous=contiguous, implementation=implementation)
    assert losses[-1] < 0.9 * losses[0]
    assert losses == expected_losses
    assert_same(result, expected)


@pytest.mark.filterwarnings("ignore:lr was raised between two epochs:RuntimeWarning")
@pytest.mark.parametrize(("optimizer_class", "schedulers"), _CASES)
def test_epochs_under_schedulers_lower_the_loss(optimizer_class: Any, schedulers: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.05)
    active = [make(optimizer) for make in schedulers]
    losses = []
    for order in range(6):
        losses.append(run_epoch(optimizer, model, batches(order)).f_tilde)
        for scheduler in active:
            _advance(scheduler, losses[-1])
    assert min(losses[1:]) < losses[0]


@each_optimizer
def test_an_epoch_uses_the_lr_that_the_scheduler_set(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.02)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    first = run_epoch(optimizer, model, batches(0))
    scheduler.step()
    second = run_epoch(optimizer, model, batches(1))
    assert second.lr == 0.5 * first.next_lr


@each_optimizer
def test_a_plateau_scheduler_shrinks_the_lr_of_every_group(optimizer_class: Any) -> None:
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[3].parameters(), "lr": 0.4}]
    optimizer = optimizer_class(groups)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for _ in range(2):
        scheduler.step(1.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.2]


@each_optimizer
def test_sequential_schedulers_give_the_lr_they_give_to_sgd(optimizer_class: Any) -> None:
    def rates(optimizer: Any) -> list[float]:
        parts: list[LRScheduler] = [
            ConstantLR(optimizer, factor=0.25, total_iters=2),
            StepLR(optimizer, step_size=2, gamma=0.5),
        ]
        scheduler = SequentialLR(optimizer, parts, milestones=[3])
        seen = []
        for _ in range(8):
            optimizer.step()
            scheduler.step()
            seen.append(optimizer.param_groups[0]["lr"])
        return seen

    ours = rates(optimizer_class(network().parameters(), lr=1.0))
    assert ours == rates(SGD(network().parameters(), lr=1.0))
    assert set(ours) == {0.25, 0.5, 1.0}


@each_optimizer
def test_a_scheduled_optimizer_saves_and_goes_on_with_its_scheduler(optimizer_class: Any) -> None:
    model, twin = network(), network()
    optimizer, other = optimizer_class(model.parameters(), lr=0.05), optimizer_class(twin.parameters())
    scheduler = StepLR(optimizer, step_size=2, gamma=0.5)
    for order in range(3):
        run_epoch(optimizer, model, batches(order))
        scheduler.step()
    other_scheduler = StepLR(other, step_size=2, gamma=0.5)
    twin.load_state_dict(model.state_dict())
    other.load_state_dict(optimizer.state_dict())
    other_scheduler.load_state_dict(scheduler.state_dict())
    for order in range(3, 5):
        report = run_epoch(optimizer, model, batches(order))
        assert repr(run_epoch(other, twin, batches(order))) == repr(report)
        scheduler.step()
        other_scheduler.step()
    assert other.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


@each_optimizer
def test_weight_averaging_works_around_epochs(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.05)
    averaged, scheduler = AveragedModel(model), SWALR(optimizer, swa_lr=0.01, anneal_epochs=2)
    seen = []
    for order in range(3):
        run_epoch(optimizer, model, batches(order))
        averaged.update_parameters(model)
        scheduler.step()
        seen.append(model[0].weight.detach().clone())
    torch.testing.assert_close(averaged.module[0].weight.detach(), torch.stack(seen).mean(0))


@pytest.mark.parametrize("optimizer_class", [CMALight, CMA])
def test_a_scheduler_that_raises_lr_is_warned_about_once(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.05)
    scheduler = StepLR(optimizer, step_size=1, gamma=1.5)
    run_epoch(optimizer, model, batches(0))
    scheduler.step()
    with pytest.warns(RuntimeWarning, match="lr was raised between two epochs") as caught:
        run_epoch(optimizer, model, batches(1))
    assert [warning.filename for warning in caught] == [loop.__file__]  # it points to the user's `with`
    scheduler.step()
    run_epoch(optimizer, model, batches(2))


@pytest.mark.parametrize("optimizer_class", [CMALight, CMA])
def test_a_group_that_is_raised_below_the_largest_is_warned_about_too(optimizer_class: Any) -> None:
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[3].parameters(), "lr": 0.05}]
    optimizer = optimizer_class(groups)
    run_epoch(optimizer, model, batches(0))
    optimizer.param_groups[0]["lr"] *= 1.5
    with pytest.warns(RuntimeWarning, match="lr was raised between two epochs"):
        run_epoch(optimizer, model, batches(1))


@pytest.mark.parametrize("optimizer_class", [CMALight, CMA])
def test_a_scheduler_that_steps_at_every_batch_is_warned_about(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.05)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.9)
    with pytest.warns(RuntimeWarning, match="lr was changed inside an epoch"):
        run_epoch(optimizer, model, batches(0), after_step=scheduler.step)


@each_optimizer
def test_a_scheduler_that_lowers_lr_and_a_restart_that_raises_it_are_fine(optimizer_class: Any) -> None:
    """Warnings are errors here."""
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.05)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.9)
    for order in range(3):
        run_epoch(optimizer, model, batches(order))
        scheduler.step()
    optimizer.restart(Objective(model, LOSS, batches()), lr=0.5)
    run_epoch(optimizer, model, batches(3))


def test_ig_may_be_scheduled_as_one_likes() -> None:
    model = network()
    optimizer = IG(model.parameters(), lr=0.05)
    scheduler = StepLR(optimizer, step_size=1, gamma=1.1)
    for order in range(2):
        run_epoch(optimizer, model, batches(order), after_step=scheduler.step)
        scheduler.step()
