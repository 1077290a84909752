"""Every bad argument is refused with what was given, what was expected and what to do."""

from typing import Any

import pytest
import torch
from torch.testing._internal.common_optimizers import OptimizerErrorEnum

from cmalight import CMALight

from .infos import INFOS, each_optimizer
from .loop import batches, network, run_epoch

_ERRORS = [
    pytest.param(info.optim_cls, error, id=f"{info.name}-{error.optimizer_error_input.desc}")
    for info in INFOS
    for error in info.optim_error_inputs_func("cpu", torch.float32)
]


@pytest.mark.parametrize(("optimizer_class", "error"), _ERRORS)
def test_a_bad_argument_is_refused_with_its_name_and_value(optimizer_class: Any, error: Any) -> None:
    assert error.error_on is OptimizerErrorEnum.CONSTRUCTION_ERROR
    given = error.optimizer_error_input
    is_warning = issubclass(error.error_type, Warning)
    expectation = pytest.warns if is_warning else pytest.raises
    with expectation(error.error_type, match=error.error_regex):
        optimizer_class(given.params, **given.kwargs)


@each_optimizer
def test_the_list_of_errors_is_long_enough_to_mean_something(optimizer_class: Any) -> None:
    errors = [e for e in _ERRORS if e.values[0] is optimizer_class]
    assert len(errors) >= 20


@each_optimizer
def test_momentum_is_not_an_argument(optimizer_class: Any) -> None:
    with pytest.raises(TypeError, match="momentum"):
        optimizer_class(network().parameters(), momentum=0.9)


@each_optimizer
def test_settings_are_keyword_only(optimizer_class: Any) -> None:
    with pytest.raises(TypeError, match="positional"):
        optimizer_class(network().parameters(), 0.1, 0.5)


@each_optimizer
@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"lr": -0.1}, "Invalid lr value: -0.1"),
        ({"lr": float("nan")}, "Invalid lr value: nan"),
        ({"lr": torch.tensor(0.1)}, "lr as a Tensor is not supported"),
        ({"weight_decay": -0.1}, "Invalid weight_decay value: -0.1"),
        ({"maximize": True}, "maximize=True is not supported.*bounded below.*negate the loss"),
    ],
    ids=["lr-negative", "lr-nan", "lr-tensor", "weight_decay", "maximize"],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_bad_value_in_a_group_is_refused(optimizer_class: Any, group: Any, message: str, place: int) -> None:
    model = network()
    groups: list[dict[str, Any]] = [{"params": model[0].parameters()}, {"params": model[3].parameters()}]
    groups[place].update(group)
    with pytest.raises(ValueError, match=message):
        optimizer_class(groups)


@each_optimizer
def test_a_bad_value_in_an_added_group_is_refused_and_the_group_not_added(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model[0].parameters())
    with pytest.raises(ValueError, match="maximize=True is not supported"):
        optimizer.add_param_group({"params": model[3].parameters(), "maximize": True})
    assert len(optimizer.param_groups) == 1


@each_optimizer
def test_a_group_may_have_lr_zero(optimizer_class: Any) -> None:
    model = network()
    frozen = [p.detach().clone() for p in model[0].parameters()]
    optimizer = optimizer_class([{"params": model[0].parameters(), "lr": 0.0}, {"params": model[3].parameters()}], 0.1)
    run_epoch(optimizer, model, batches())
    assert all(torch.equal(p, q) for p, q in zip(model[0].parameters(), frozen, strict=True))


@each_optimizer
def test_an_lr_that_became_zero_everywhere_is_refused_at_the_next_epoch(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters())
    optimizer.param_groups[0]["lr"] = 0.0
    with pytest.raises(ValueError, match="the lr of every parameter group is 0"):
        run_epoch(optimizer, model, batches())


@each_optimizer
def test_an_lr_that_became_a_tensor_is_refused_at_the_next_epoch(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters())
    optimizer.param_groups[0]["lr"] = torch.tensor(0.1)
    with pytest.raises(ValueError, match="lr as a Tensor is not supported"):
        run_epoch(optimizer, model, batches())


@pytest.mark.parametrize("setting", ["theta", "tau", "gamma", "delta", "max_extrapolations", "certified"])
def test_a_later_group_with_its_own_control_setting_is_refused(setting: str) -> None:
    model = network()
    second = {"params": model[3].parameters(), setting: 1 if setting == "max_extrapolations" else 0.123}
    with pytest.raises(ValueError, match=f"{setting} belongs to the optimizer, not to a parameter group"):
        CMALight([{"params": model[0].parameters()}, second])
