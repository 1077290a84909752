"""State dicts, copies and pickles carry the whole control: whoever gets one goes on as the original would."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

from cmalight import CMALight

from .infos import each_input, each_optimizer
from .loop import assert_same_models, batches, network, run_epoch, through_a_file, train

_ROUND_TRIPS = {
    "itself": lambda state: state,
    "deepcopy": copy.deepcopy,
    "pickle": lambda state: pickle.loads(pickle.dumps(state)),
    "file": through_a_file,
}


def _loaded_twin(optimizer_class: Any, model: nn.Module, state: Any) -> tuple[Any, nn.Module]:
    """A fresh optimizer with other settings and another lr, then loaded."""
    twin = network()
    twin.load_state_dict(model.state_dict())
    optimizer = optimizer_class(twin.parameters(), lr=0.123)
    optimizer.load_state_dict(state)
    return optimizer, twin


@each_input
@pytest.mark.parametrize("round_trip", _ROUND_TRIPS.values(), ids=_ROUND_TRIPS)
def test_a_loaded_state_dict_goes_on_as_the_original_does(
    optimizer_class: Any, kwargs: Any, round_trip: Callable[[Any], Any]
) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), **kwargs)
    train(optimizer, model, range(2))
    loaded, twin = _loaded_twin(optimizer_class, model, round_trip(optimizer.state_dict()))
    assert train(loaded, twin, range(2, 5)) == train(optimizer, model, range(2, 5))
    assert_same_models(twin, model)


@each_input
def test_loading_changes_neither_the_state_dict_nor_the_original(optimizer_class: Any, kwargs: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), **kwargs)
    train(optimizer, model, range(2))
    state = optimizer.state_dict()
    before = copy.deepcopy(state)
    loaded, twin = _loaded_twin(optimizer_class, model, state)
    train(loaded, twin, range(2, 4))
    assert state == before
    assert optimizer.state_dict() == before


@each_optimizer
def test_the_state_dict_of_a_loaded_optimizer_equals_the_one_that_was_loaded(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    train(optimizer, model, range(2))
    state = optimizer.state_dict()
    loaded, _ = _loaded_twin(optimizer_class, model, state)
    assert loaded.state_dict() == state


@each_optimizer
def test_all_control_state_is_plain_numbers_in_the_first_group(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters())
    train(optimizer, model, range(2))
    state = optimizer.state_dict()
    assert state["state"] == {}
    values = [value for name, value in state["param_groups"][0].items() if name != "params"]
    assert len(values) >= 15
    assert all(value is None or isinstance(value, int | float) for value in values)


@each_optimizer
@pytest.mark.parametrize("dropped", [("foreach",), ("fused",), ("foreach", "fused")], ids=str)
def test_a_state_dict_without_foreach_or_fused_loads(optimizer_class: Any, dropped: tuple[str, ...]) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    train(optimizer, model, range(2))
    state = optimizer.state_dict()
    for name in dropped:
        del state["param_groups"][0][name]
    loaded, twin = _loaded_twin(optimizer_class, model, state)
    assert train(loaded, twin, range(2, 4)) == train(optimizer, model, range(2, 4))


@each_optimizer
def test_a_state_dict_of_sgd_loads_its_lr_and_weight_decay_and_starts_anew(optimizer_class: Any) -> None:
    model, twin = network(), network()
    sgd = SGD(model.parameters(), lr=0.125, weight_decay=0.01)
    optimizer = optimizer_class(model.parameters(), lr=0.9)
    optimizer.load_state_dict(sgd.state_dict())
    fresh = optimizer_class(twin.parameters(), lr=0.125, weight_decay=0.01)
    assert train(optimizer, model, range(3)) == train(fresh, twin, range(3))
    assert_same_models(model, twin)


@each_optimizer
def test_a_state_dict_of_sgd_loaded_after_the_start_starts_anew(optimizer_class: Any) -> None:
    model, twin = network(), network()
    optimizer = optimizer_class(model.parameters(), lr=0.9)
    train(optimizer, model, range(2))
    model.load_state_dict(twin.state_dict())
    optimizer.load_state_dict(SGD(model.parameters(), lr=0.125).state_dict())
    assert train(optimizer, model, range(2)) == train(optimizer_class(twin.parameters(), lr=0.125), twin, range(2))


@each_optimizer
def test_a_state_dict_that_maximizes_is_refused(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters())
    with pytest.raises(ValueError, match="maximize=True is not supported"):
        optimizer.load_state_dict(SGD(model.parameters(), lr=0.1, maximize=True).state_dict())


@each_optimizer
def test_loading_into_parameters_of_another_dtype_does_not_cast_the_control_state(optimizer_class: Any) -> None:
    model = network(dtype=torch.float64)
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    train(optimizer, model, range(2), dtype=torch.float64)
    half = network(dtype=torch.bfloat16)
    loaded = optimizer_class(half.parameters())
    loaded.load_state_dict(optimizer.state_dict())
    for name in ("f_0", "phi", "f_current", "zeta_0", "lr"):
        assert type(loaded.param_groups[0][name]) is float
        assert loaded.param_groups[0][name] == optimizer.param_groups[0][name]
    assert float(torch.tensor(loaded.param_groups[0]["f_0"], dtype=torch.bfloat16)) != loaded.param_groups[0]["f_0"]


@each_optimizer
def test_a_state_dict_with_other_groups_is_refused(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters())
    other = optimizer_class(model[0].parameters())
    with pytest.raises(ValueError, match="size of optimizer's group"):
        optimizer.load_state_dict(other.state_dict())


@each_input
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["deep", "pickle"]
)
def test_a_copy_of_model_and_optimizer_goes_on_as_the_original_does(
    optimizer_class: Any, kwargs: Any, copied: Callable[[Any], Any]
) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), **kwargs)
    train(optimizer, model, range(2))
    twin, twin_optimizer = copied((model, optimizer))
    assert twin_optimizer.param_groups[0]["params"][0] is twin[0].weight
    assert train(twin_optimizer, twin, range(2, 5)) == train(optimizer, model, range(2, 5))
    assert_same_models(twin, model)


@each_optimizer
def test_a_deepcopy_has_all_public_attributes(optimizer_class: Any) -> None:
    def public(optimizer: Any) -> set[str]:
        return {name for name in vars(optimizer) if not name.startswith("_")}

    model = network()
    optimizer = optimizer_class(model.parameters())
    train(optimizer, model, range(1))
    of_torch = {"defaults", "state", "param_groups"}
    ours = {"control", "steps", "budget", "epoch_under_way", "held_window", "steps_outside"}
    assert public(copy.deepcopy(optimizer)) == public(optimizer) == of_torch | ours


@each_optimizer
def test_a_copy_made_inside_an_epoch_is_outside_of_it(optimizer_class: Any) -> None:
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    copies: list[Any] = []
    run_epoch(optimizer, model, batches(), after_step=lambda: copies.append(copy.deepcopy((model, optimizer))))
    twin, twin_optimizer = copies[0]
    report = run_epoch(twin_optimizer, twin, batches())
    assert report.lr == 0.1


@each_optimizer
def test_loading_inside_an_epoch_is_refused(optimizer_class: Any) -> None:
    """The steps after it would no longer be the epoch's, nor scaled for a short batch."""
    model = network()
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    state = optimizer.state_dict()
    with pytest.raises(RuntimeError, match="epoch"):
        run_epoch(optimizer, model, batches(), after_step=lambda: optimizer.load_state_dict(state))


def test_the_settings_of_a_loaded_state_dict_replace_those_of_the_constructor() -> None:
    certified = CMALight(network().parameters(), theta=0.6, line_search="certified")
    optimizer = CMALight(network().parameters(), theta=0.7)
    optimizer.load_state_dict(certified.state_dict())
    assert optimizer.line_search == "certified"
    assert optimizer.param_groups[0]["theta"] == 0.6
