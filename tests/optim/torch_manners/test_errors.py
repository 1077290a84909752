"""Every bad argument is refused with what was given, what was expected and what to do."""

import math

import pytest
import torch

from cmalight import CMA, IG, SOAP, CMALight

from .cases import batches, each_of_the_paper, network, run_epoch

_OF_ALL = [
    *(("lr", value, "Invalid lr value") for value in (-0.1, 0.0, math.nan, math.inf)),
    *(("weight_decay", value, "Invalid weight_decay value") for value in (-0.1, math.nan, math.inf)),
    ("maximize", True, "negate the loss"),
]
_OF_THE_LISTING = [
    *((name, v, f"Invalid {name} value") for name in ("theta", "gamma", "delta") for v in (-0.5, 0.0, 1.0, math.nan)),
    *(("tau", value, "Invalid tau value") for value in (-1.0, 0.0, math.nan, math.inf)),
    *(("max_extrapolations", value, "Invalid max_extrapolations value") for value in (-1, 2.5, math.nan)),
]
_ERRORS = {
    CMALight: [*_OF_ALL, *_OF_THE_LISTING, ("line_search", "exact", "expected one of light, certified")],
    CMA: [*_OF_ALL, *_OF_THE_LISTING],
    IG: [*_OF_ALL, *(("decay", value, "Invalid decay value") for value in (-0.5, 0.0, math.nan))],
}
_CASES = [
    pytest.param(kind, *error, id=f"{kind.__name__}-{error[0]}={error[1]}")
    for kind, errors in _ERRORS.items()
    for error in errors
]


@pytest.mark.parametrize(("optimizer_class", "name", "value", "message"), _CASES)
def test_a_bad_argument_is_refused_with_its_name_and_value(optimizer_class, name, value, message):
    with pytest.raises(ValueError, match=message):
        optimizer_class(network().parameters(), **{name: value})


@pytest.mark.parametrize("optimizer_class", [CMALight, CMA, IG, SOAP])
def test_what_torch_refuses_is_refused(optimizer_class):
    p = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(TypeError, match="iterable"):
        optimizer_class(p)
    with pytest.raises(ValueError, match="empty parameter list"):
        optimizer_class([])
    with pytest.raises(ValueError, match="non-leaf"):
        optimizer_class([p * 2])
    with pytest.raises(TypeError, match="momentum"):
        optimizer_class([p], momentum=0.9)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer_class([{"params": [p]}, {"params": [p]}])


@each_of_the_paper
def test_foreach_and_fused_exclude_each_other(make):
    with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` together"):
        make(network(), foreach=True, fused=True)


@each_of_the_paper
@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"lr": -0.1}, "Invalid lr value: -0.1"),
        ({"lr": math.nan}, "Invalid lr value: nan"),
        ({"weight_decay": -0.1}, "Invalid weight_decay value: -0.1"),
        ({"maximize": True}, "negate the loss"),
    ],
    ids=str,
)
def test_a_bad_value_in_a_group_is_refused_and_the_group_not_added(make, group, message):
    model = network()
    optimizer = make(model, model[0].parameters())
    with pytest.raises(ValueError, match=message):
        optimizer.add_param_group({"params": model[3].parameters(), **group})
    assert len(optimizer.param_groups) == 1
    with pytest.raises(ValueError, match=message):
        make(model, [{"params": model[0].parameters()}, {"params": model[3].parameters(), **group}])


@pytest.mark.parametrize("setting", ["theta", "tau", "gamma", "delta", "max_extrapolations", "line_search"])
def test_a_setting_of_the_whole_optimizer_in_a_group_is_refused(setting):
    model = network()
    with pytest.raises(ValueError, match=f"{setting} belongs to the optimizer, not to a parameter group"):
        CMALight([{"params": model.parameters(), setting: 0.123}])


@each_of_the_paper
def test_a_group_may_have_lr_zero_but_not_all_of_them(make):
    model = network()
    frozen = [p.detach().clone() for p in model[0].parameters()]
    optimizer = make(model, [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[3].parameters()}], lr=0.1)
    run_epoch(optimizer, model, batches())
    assert all(torch.equal(p, q) for p, q in zip(model[0].parameters(), frozen, strict=True))
    optimizer.param_groups[1]["lr"] = 0.0
    with pytest.raises(ValueError, match="lr of every parameter group is 0"):
        run_epoch(optimizer, model, batches())
