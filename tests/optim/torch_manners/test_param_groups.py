"""Parameter groups: their defaults, their own lr and weight decay, groups added later."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

from cmalight import CMA, CMALight

from .infos import INFOS, each_implementation, each_input, each_optimizer
from .loop import assert_same, batches, network, run_epoch, set_gradients

_CONTROL_STATE = ("f_0", "phi", "f_current", "zeta_0", "epochs", "samples", "evaluations")


@each_input
def test_groups_take_what_they_do_not_say_from_the_arguments(optimizer_class: Any, kwargs: Any) -> None:
    model = network()
    optimizer = optimizer_class(
        [{"params": model[0].parameters()}, {"params": model[3].parameters(), "lr": 0.001}], **kwargs
    )
    first, second = optimizer.param_groups
    assert first["lr"] == kwargs.get("lr", 0.5)
    assert second["lr"] == 0.001
    for name in ("weight_decay", "foreach", "fused"):
        assert second[name] == first[name] == kwargs.get(name, optimizer.defaults[name])


@each_optimizer
@each_implementation
def test_each_group_steps_with_its_own_lr_and_weight_decay_as_in_sgd(optimizer_class: Any, implementation: Any) -> None:
    weights = []
    for kind in (optimizer_class, SGD):
        model = network()
        groups = [
            {"params": model[0].parameters(), "lr": 0.1},
            {"params": model[3].parameters(), "weight_decay": 0.5},
        ]
        optimizer = kind(groups, lr=0.01, **implementation)
        for seed in range(2):
            set_gradients(model.parameters(), seed)
            optimizer.step()
        weights.append(list(model.parameters()))
    assert_same(*weights)


@each_optimizer
def test_weight_decay_of_one_group_enters_the_loss_of_that_group_only(optimizer_class: Any) -> None:
    """loss = 0, weight decay 2 on the weight 3, none on the weight 5: f̃ = (2/2) · 3² = 9."""
    decayed, free = nn.Parameter(torch.tensor([3.0])), nn.Parameter(torch.tensor([5.0]))
    optimizer = optimizer_class([{"params": [free]}, {"params": [decayed], "weight_decay": 2.0}], lr=0.25)
    with optimizer.epoch(lambda: 0.0) as epoch:
        loss = 0 * (decayed + free).sum()
        loss.backward()
        epoch.observe(loss, 1)
        optimizer.step()
        assert decayed.item() == 3.0 - 0.25 * 2 * 3.0
    assert epoch.report.f_tilde == 9.0


@each_optimizer
def test_zeta_is_the_largest_lr_and_all_groups_shrink_in_their_ratio(optimizer_class: Any) -> None:
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 1.5}, {"params": model[3].parameters(), "lr": 3.0}]
    optimizer = optimizer_class(groups)
    report = run_epoch(optimizer, model, batches())
    assert report.lr == 3.0
    assert report.next_lr < 3.0
    assert [group["lr"] for group in optimizer.param_groups] == [report.next_lr / 2, report.next_lr]


@each_optimizer
def test_an_added_group_leaves_the_control_state_alone(optimizer_class: Any) -> None:
    model, extra = network(), nn.Parameter(torch.ones(2))
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    for order in range(2):
        run_epoch(optimizer, model, batches(order))
    before = {name: optimizer.param_groups[0][name] for name in _CONTROL_STATE}
    assert before["epochs"] == 2
    optimizer.add_param_group({"params": [extra], "lr": 0.001})
    assert {name: optimizer.param_groups[0][name] for name in _CONTROL_STATE} == before
    assert not set(_CONTROL_STATE) & optimizer.param_groups[1].keys()


@each_optimizer
def test_a_group_added_after_the_start_is_trained_and_undone_with_the_others(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model[0].parameters(), lr=0.1)
    run_epoch(optimizer, model, batches(0))
    optimizer.add_param_group({"params": model[3].parameters(), "lr": 0.1})
    start = [p.detach().clone() for p in model.parameters()]
    seen = []
    report = run_epoch(optimizer, model, batches(1), after_step=lambda: seen.append(model[3].bias.item()))
    assert len(set(seen)) == len(seen) == 6
    if report.alpha:
        assert model[3].bias.item() != start[3].item()
    else:
        assert_same(model.parameters(), start)


def test_after_a_group_was_added_the_value_of_the_weights_is_evaluated_anew() -> None:
    """CMA knows f(w^k) from epoch to epoch, but not what else was changed with the new group."""
    evaluations = []
    for adds in (False, True):
        model = network()
        optimizer = CMA(model.parameters(), lr=0.1)
        run_epoch(optimizer, model, batches(0))
        if adds:
            optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "lr": 0.1})
        evaluations.append(run_epoch(optimizer, model, batches(1)).evaluations)
    assert evaluations == [1, 2]


@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
def test_an_added_group_with_its_own_setting_of_the_whole_optimizer_is_refused(info: Any) -> None:
    model = network()
    optimizer = info.optim_cls(model[0].parameters())
    setting = "decay" if info.name == "IG" else "theta"
    with pytest.raises(ValueError, match=f"{setting} belongs to the optimizer, not to a parameter group"):
        optimizer.add_param_group({"params": model[3].parameters(), setting: 0.123})
    assert len(optimizer.param_groups) == 1


def test_an_added_group_may_repeat_the_setting_of_the_whole_optimizer() -> None:
    model = network()
    optimizer = CMALight(model[0].parameters(), theta=0.6)
    optimizer.add_param_group({"params": model[3].parameters(), "theta": 0.6})
    assert len(optimizer.param_groups) == 2


@each_optimizer
def test_a_parameter_in_two_groups_is_refused(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters())
    with pytest.raises(ValueError, match="appear in more than one parameter group"):
        optimizer.add_param_group({"params": model[3].parameters()})
