"""torch.distributed.checkpoint in one process: its state dicts and files carry the run."""

import copy

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)

from .cases import assert_same_models, batches, each, each_watched, each_with_a_window, network, run_epoch, train

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is (disabled, )?unavailable or uninitialized:UserWarning",
    "ignore:TypedStorage is deprecated:UserWarning",  # torch 2.6 warns of its own call
)


def _started(make, **options):
    model = network(**options)
    optimizer = make(model)
    train(optimizer, model, range(4))  # 24 steps: at the end of a window
    return model, optimizer


@each
def test_a_checkpoint_on_disk_goes_on_bit_for_bit_in_a_fresh_and_in_a_used_optimizer(make, tmp_path):
    model, optimizer = _started(make)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=tmp_path)
    expected = train(optimizer, model, range(4, 6))
    twin = network()
    other = make(twin)
    for _ in range(2):
        weights, state = get_state_dict(twin, other)
        loaded = {"model": weights, "optimizer": state}
        dcp.load(loaded, checkpoint_id=tmp_path)
        set_state_dict(twin, other, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
        assert train(other, twin, range(4, 6)) == expected
        assert_same_models(twin, model)


@each_with_a_window
@pytest.mark.parametrize("cleared", [False, True], ids=["with-gradients", "without-gradients"])
def test_a_state_dict_taken_after_each_step_and_between_epochs_changes_nothing(make, cleared):
    """torch builds the state of an optimizer that has none by a step with lr = 0, which is no step."""
    model, twin = network(norm=True), network(norm=True)
    optimizer, reference = make(model), make(twin)

    def take():
        if cleared:
            optimizer.zero_grad()
        get_state_dict(model, optimizer)

    for order in range(3):
        report = run_epoch(optimizer, model, batches(order), after_step=take)
        assert report == run_epoch(reference, twin, batches(order))
        take()
    assert_same_models(model, twin)


@each_with_a_window
def test_a_state_dict_of_a_fresh_optimizer_leaves_lr_gradients_and_count_alone(make):
    model = network()
    optimizer = make(model)
    lr = optimizer.param_groups[0]["lr"]
    state = get_optimizer_state_dict(model, optimizer)
    assert optimizer.param_groups[0]["lr"] == lr
    assert all(p.grad is None for p in model.parameters())
    assert state["param_groups"][0]["control"].get("steps", 0) == 0


@each_watched
def test_a_flattened_state_dict_has_the_base_and_starts_the_control_anew(make):
    """torch flattens the keys that the groups of the optimizer it loads into have, and no others."""
    model, optimizer = _started(make)
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    state = copy.deepcopy(get_optimizer_state_dict(model, optimizer, options=options))
    twin = network()
    twin.load_state_dict(model.state_dict())
    other = make(twin)
    set_optimizer_state_dict(twin, other, state, options=options)
    assert (optimizer.steps, other.steps) == (24, 0)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert all(torch.equal(optimizer.state[p][k], v) for k, v in other.state[q].items() if torch.is_tensor(v))
