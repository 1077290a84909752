"""State dicts, copies and pickles carry the whole run: whoever gets one goes on as the original would."""

import copy
import pickle

import pytest
import torch
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import LambdaLR

from cmalight import CMALight, Controlled

from .cases import (
    assert_same_models,
    batches,
    each,
    each_of_the_paper,
    each_with_a_window,
    network,
    run_epoch,
    through_a_file,
    train,
)

_COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda pair: pickle.loads(pickle.dumps(pair))}


@each
@pytest.mark.parametrize("boundary", [0, 3])
def test_a_loaded_state_dict_goes_on_as_the_original_does(make, boundary):
    """The fresh optimizer had another lr, and the model is loaded after it, or before it."""
    model = network(norm=True)
    optimizer = make(model)
    train(optimizer, model, range(boundary))
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    expected = train(optimizer, model, range(boundary, 6))
    for model_first in (False, True):
        twin = network(norm=True)
        loaded = make(twin, lr=0.0123)
        parts = [(loaded, "optimizer"), (twin, "model")]
        for part, name in reversed(parts) if model_first else parts:
            part.load_state_dict(through_a_file(saved[name]))
        assert train(loaded, twin, range(boundary, 6)) == expected
        assert_same_models(twin, model)


@each_of_the_paper
@pytest.mark.parametrize("stop", [1, 5])
def test_an_epoch_goes_on_inside_it(make, stop):
    """What was observed before the stop is in the state dict, with the weights that the epoch began with."""
    model, data = network(norm=True), batches(1)
    optimizer = make(model)
    train(optimizer, model, range(1))
    saved = []

    def save():
        saved.append(through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))

    expected = run_epoch(optimizer, model, data, after_step=save)
    twin = network(norm=True)
    resumed = make(twin)
    twin.load_state_dict(saved[stop - 1]["model"])
    resumed.load_state_dict(saved[stop - 1]["optimizer"])
    assert run_epoch(resumed, twin, data[stop:]) == expected
    assert_same_models(twin, model)


@each_with_a_window
def test_loading_changes_neither_the_state_dict_nor_the_original(make):
    model, twin = network(), network()
    optimizer = make(model)
    train(optimizer, model, range(2))
    state = optimizer.state_dict()
    loaded = make(twin)
    loaded.load_state_dict(state)
    assert repr(loaded.state_dict()) == repr(state)
    ours = {name: value for name, value in state.items() if name != "state"}  # which torch itself shares
    before = repr(ours)
    train(loaded, twin, range(2, 4))
    assert repr(ours) == before


@each_with_a_window
def test_the_control_is_plain_values_under_one_key_and_no_live_group_has_it(make):
    model = network()
    optimizer = make(model)
    before = set(optimizer.param_groups[0])
    train(optimizer, model, range(2))
    control = optimizer.state_dict()["param_groups"][0]["control"]
    assert set(optimizer.param_groups[0]) == before

    def leaves(value):
        if isinstance(value, dict | list):
            return [leaf for part in (value.values() if isinstance(value, dict) else value) for leaf in leaves(part)]
        return [value]

    assert {type(leaf) for leaf in leaves(control)} <= {int, float, bool, str, type(None)}


@each
def test_loading_into_parameters_of_another_dtype_does_not_round_the_control(make):
    model, half = network(dtype=torch.float64), network(dtype=torch.bfloat16)
    optimizer, loaded = make(model), make(half)
    train(optimizer, model, range(2))
    state = optimizer.state_dict()
    loaded.load_state_dict(state)
    kept = loaded.state_dict()["param_groups"][0]
    assert kept.get("control") == state["param_groups"][0].get("control")
    assert kept["lr"] == state["param_groups"][0]["lr"]


@each_of_the_paper
def test_a_state_dict_of_sgd_loads_its_lr_and_starts_anew(make):
    model, twin = network(), network()
    optimizer = make(model, lr=0.9)
    optimizer.load_state_dict(SGD(model.parameters(), lr=0.125).state_dict())
    assert train(optimizer, model, range(2)) == train(make(twin, lr=0.125), twin, range(2))


def test_the_state_dict_of_the_base_alone_puts_it_under_control_in_mid_run():
    model, twin = network(), network()
    adam = Adam(model.parameters(), lr=0.01)
    train(adam, model, range(2))
    twin.load_state_dict(model.state_dict())
    optimizer = Controlled(Adam(twin.parameters()), twin, total_steps=100)
    optimizer.load_state_dict(adam.state_dict())
    assert (optimizer.steps, optimizer.param_groups[0]["lr"]) == (0, 0.01)
    assert float(optimizer.state[twin[0].weight]["step"]) == 12


@each_with_a_window
def test_a_state_dict_that_cannot_be_used_is_refused_and_changes_nothing(make):
    model = network()
    optimizer = make(model)
    train(optimizer, model, range(1))
    before = repr(optimizer.state_dict())
    with pytest.raises(ValueError, match="maximize=True cannot be watched"):
        optimizer.load_state_dict(SGD(model.parameters(), lr=0.1, maximize=True).state_dict())
    with pytest.raises(ValueError, match="size of optimizer's group"):
        optimizer.load_state_dict(SGD(model[0].parameters(), lr=0.1).state_dict())
    assert repr(optimizer.state_dict()) == before


@pytest.mark.filterwarnings("ignore:.* has total_steps or progress")
@each
@pytest.mark.parametrize("copied", _COPIES.values(), ids=_COPIES)
def test_a_copy_of_model_and_optimizer_goes_on_as_the_original_does(make, copied):
    """Also inside a window, and beside a scheduler, whose function in the place of `step` holds on to the original."""
    model = network(norm=True)
    optimizer = make(model)
    _scheduler = LambdaLR(optimizer, lambda _: 1.0)
    train(optimizer, model, range(1))  # 6 steps, of which two are in the second window
    before = copy.deepcopy(model)
    twin, twin_optimizer = copied((model, optimizer))
    assert twin_optimizer.param_groups[0]["params"][0] is twin[0].weight
    reports = train(twin_optimizer, twin, range(1, 4))
    assert_same_models(model, before)
    assert reports == train(optimizer, model, range(1, 4))
    assert_same_models(twin, model)


@each_of_the_paper
def test_a_copy_made_inside_an_epoch_is_outside_of_it(make):
    model, copies = network(), []
    optimizer = make(model, lr=0.1)
    run_epoch(optimizer, model, batches(), after_step=lambda: copies.append(copy.deepcopy((model, optimizer))))
    twin, twin_optimizer = copies[0]
    assert "lr=0.1," in run_epoch(twin_optimizer, twin, batches())


@each_of_the_paper
def test_loading_inside_an_epoch_is_refused(make):
    model = network()
    optimizer = make(model)
    state = optimizer.state_dict()
    with pytest.raises(RuntimeError, match="inside an epoch"):
        run_epoch(optimizer, model, batches(), after_step=lambda: optimizer.load_state_dict(state))


def test_the_settings_of_a_loaded_state_dict_replace_those_of_the_constructor():
    certified = CMALight(network().parameters(), theta=0.6, line_search="certified")
    optimizer = CMALight(network().parameters(), theta=0.7)
    optimizer.load_state_dict(certified.state_dict())
    assert optimizer.line_search == "certified"
    assert optimizer.settings["theta"] == 0.6
