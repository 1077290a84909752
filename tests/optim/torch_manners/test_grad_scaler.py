"""GradScaler: an ordinary step is the unscaled one, and a skipped step is no step."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from cmalight import Outcome

from .infos import each_implementation, each_optimizer
from .loop import LOSS, Objective, assert_same, batches, network, run_epoch

# A power of two, so that scaling and unscaling are exact.
_SCALE = 2.0**10


def _scaler() -> Any:
    return torch.amp.GradScaler("cpu", init_scale=_SCALE)


def _run(
    optimizer: Any, w: nn.Parameter, *, skip: tuple[int, ...], clear: str = "first", unscale: bool = False
) -> tuple[list[float], Any]:
    """Batches of 4 whose losses are 1, 2 and 4 times w; the gradients of those in `skip` overflow."""
    scaler, seen = _scaler(), []
    with optimizer.epoch(lambda: 7 / 3 * w.item()) as epoch:
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


def _weight() -> nn.Parameter:
    return nn.Parameter(torch.tensor([8.0]))


@each_optimizer
@each_implementation
@pytest.mark.parametrize("unscale", [False, True], ids=["", "unscaled-first"])
def test_a_scaled_step_outside_an_epoch_equals_the_plain_one(
    optimizer_class: Any, implementation: Any, unscale: bool
) -> None:
    scaled, plain = network(), network()
    inputs, target = batches()[0]
    optimizer = optimizer_class(scaled.parameters(), lr=0.1, **implementation)
    scaler = _scaler()
    scaler.scale(LOSS(scaled(inputs), target)).backward()
    if unscale:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    LOSS(plain(inputs), target).backward()
    optimizer_class(plain.parameters(), lr=0.1, **implementation).step()
    assert_same(scaled.parameters(), plain.parameters())


@each_optimizer
@each_implementation
def test_a_scaled_epoch_equals_the_plain_one(optimizer_class: Any, implementation: Any) -> None:
    scaled, plain = network(), network()
    data = batches()
    optimizer = optimizer_class(scaled.parameters(), lr=0.1, weight_decay=0.01, **implementation)
    scaler = _scaler()
    with optimizer.epoch(Objective(scaled, LOSS, data)) as epoch:
        for inputs, target in epoch.batches(data):
            optimizer.zero_grad()
            loss = LOSS(scaled(inputs), target)
            scaler.scale(loss).backward()
            epoch.observe(loss, len(target))
            scaler.step(optimizer)
            scaler.update()
    reference = optimizer_class(plain.parameters(), lr=0.1, weight_decay=0.01, **implementation)
    assert repr(epoch.report) == repr(run_epoch(reference, plain, data))
    assert_same(scaled.parameters(), plain.parameters())


@each_optimizer
@each_implementation
@pytest.mark.parametrize("clear", ["first", "last"])
@pytest.mark.parametrize("unscale", [False, True], ids=["", "unscaled-first"])
@pytest.mark.parametrize(
    ("skip", "expected"),
    [((), [7.5, 6.5, 4.5]), ((0,), [8.0, 7.0, 5.0]), ((1,), [7.5, 7.5, 5.5]), ((0, 1), [8.0, 8.0, 6.0])],
    ids=str,
)
def test_after_a_skipped_batch_the_next_step_is_of_full_size_and_not_accumulation(
    optimizer_class: Any, implementation: Any, clear: str, unscale: bool, skip: tuple[int, ...], expected: list[float]
) -> None:
    """lr is 1/2, so the steps are 1/2, 1 and 2, or none."""
    w = _weight()
    seen, _ = _run(optimizer_class([w], lr=0.5, **implementation), w, skip=skip, clear=clear, unscale=unscale)
    assert seen == expected


@each_optimizer
@each_implementation
def test_a_skipped_batch_is_observed_all_the_same(optimizer_class: Any, implementation: Any) -> None:
    """The losses were 8, 2 · 7.5 and 4 · 7.5."""
    w = _weight()
    _, report = _run(optimizer_class([w], lr=0.5, **implementation), w, skip=(1,))
    assert report.f_tilde == pytest.approx((8 + 15 + 30) / 3, rel=1e-12)


@each_optimizer
@each_implementation
def test_an_epoch_whose_steps_were_all_skipped_changes_neither_weights_nor_lr(
    optimizer_class: Any, implementation: Any
) -> None:
    w = _weight()
    optimizer = optimizer_class([w], lr=0.5, **implementation)
    seen, report = _run(optimizer, w, skip=(0, 1, 2))
    assert seen == [8.0, 8.0, 8.0]
    assert report.outcome is Outcome.NO_STEP
    assert report.next_lr == optimizer.param_groups[0]["lr"] == 0.5


@each_optimizer
@each_implementation
def test_after_an_epoch_of_skipped_steps_the_next_epoch_is_an_ordinary_one(
    optimizer_class: Any, implementation: Any
) -> None:
    w, twin = _weight(), _weight()
    optimizer = optimizer_class([w], lr=0.5, **implementation)
    _run(optimizer, w, skip=(0, 1, 2))
    seen, report = _run(optimizer, w, skip=())
    expected_seen, expected = _run(optimizer_class([twin], lr=0.5, **implementation), twin, skip=())
    assert seen == expected_seen
    assert (report.outcome, report.lr, report.f_tilde) == (expected.outcome, expected.lr, expected.f_tilde)


@each_optimizer
def test_a_state_dict_taken_after_a_skipped_step_is_no_step_either(optimizer_class: Any) -> None:
    """torch.distributed.checkpoint calls step() with lr = 0 where no parameter has a gradient."""
    model = nn.Linear(1, 1, bias=False)
    optimizer = optimizer_class(model.parameters(), lr=0.5)
    with optimizer.epoch(lambda: 1.0) as epoch:
        epoch.observe(1.0, 4)
        optimizer.zero_grad()
        get_optimizer_state_dict(model, optimizer)
    assert epoch.report.outcome is Outcome.NO_STEP


@each_optimizer
@pytest.mark.parametrize("fused_group", [0, 1])
def test_groups_of_which_one_is_fused_take_scaled_steps(optimizer_class: Any, fused_group: int) -> None:
    params = [_weight(), _weight()]
    groups: list[dict[str, Any]] = [{"params": [p]} for p in params]
    groups[fused_group]["fused"] = True
    optimizer = optimizer_class(groups, lr=0.5)
    scaler = _scaler()
    scaler.scale(params[0].sum() + 2 * params[1].sum()).backward()
    scaler.step(optimizer)
    assert [p.item() for p in params] == [7.5, 7.0]


@each_optimizer
@pytest.mark.parametrize("into_fused", [True, False])
def test_scaled_steps_work_after_loading_a_state_dict_of_the_other_implementation(
    optimizer_class: Any, into_fused: bool
) -> None:
    w = _weight()
    optimizer = optimizer_class([w], lr=0.5, fused=into_fused or None)
    optimizer.load_state_dict(optimizer_class([_weight()], lr=0.25, fused=not into_fused or None).state_dict())
    scaler = _scaler()
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    assert w.item() == 7.75
