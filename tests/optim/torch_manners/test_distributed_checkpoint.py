"""torch.distributed.checkpoint in one process: its state dicts and files carry the run, also inside an epoch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)

from cmalight import CMA, IG, CMALight

from .loop import assert_same_models, batches, network, run_epoch, train

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is disabled, unavailable or uninitialized:UserWarning"
)

Make = Callable[[nn.Module], Any]

_MAKERS: dict[str, Make] = {
    "light": lambda model: CMALight(model.parameters(), lr=0.8, weight_decay=0.001),
    "certified": lambda model: CMALight(model.parameters(), lr=0.8, line_search="certified"),
    "CMA": lambda model: CMA(model.parameters(), lr=0.8),
    "IG": lambda model: IG(model.parameters(), lr=0.1, decay=0.2),
    "two-groups": lambda model: CMALight(
        [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[3].parameters(), "weight_decay": 0.1}], lr=0.4
    ),
}

each_maker = pytest.mark.parametrize("make", _MAKERS.values(), ids=_MAKERS)
each_option = pytest.mark.parametrize(
    "options", [StateDictOptions(flatten_optimizer_state_dict=flat) for flat in (False, True)], ids=["nested", "flat"]
)


def _started(make: Make, *, norm: bool = False) -> tuple[nn.Sequential, Any]:
    model = network(norm=norm)
    optimizer = make(model)
    train(optimizer, model, range(3))
    return model, optimizer


@each_maker
@each_option
def test_state_dicts_set_into_fresh_objects_go_on_bit_for_bit(make: Make, options: Any) -> None:
    model, optimizer = _started(make, norm=True)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    twin = network(norm=True)
    twin_optimizer = make(twin)
    set_state_dict(
        twin, twin_optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state, options=options
    )
    assert train(twin_optimizer, twin, range(3, 6)) == train(optimizer, model, range(3, 6))
    assert_same_models(twin, model)


@each_maker
@each_option
def test_the_optimizer_alone_goes_into_another_optimizer(make: Make, options: Any) -> None:
    model, optimizer = _started(make)
    state = get_optimizer_state_dict(model, optimizer, options=options)
    twin = network()
    twin_optimizer = make(twin)
    set_optimizer_state_dict(twin, twin_optimizer, state, options=options)
    for loaded, group in zip(twin_optimizer.param_groups, optimizer.param_groups, strict=True):
        for name in group.keys() - {"params"}:
            assert loaded[name] == group[name], name
    assert twin_optimizer.evaluations == optimizer.evaluations > 0


@each_maker
@each_option
def test_files_loaded_into_fresh_objects_go_on_bit_for_bit(make: Make, options: Any, tmp_path: Path) -> None:
    model, optimizer = _started(make)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=tmp_path)
    twin = network()
    twin_optimizer = make(twin)
    _load(twin, twin_optimizer, options, tmp_path)
    assert train(twin_optimizer, twin, range(3, 6)) == train(optimizer, model, range(3, 6))
    assert_same_models(twin, model)


@each_maker
@each_option
def test_a_file_can_be_loaded_again_into_an_optimizer_that_was_loaded_before(
    make: Make, options: Any, tmp_path: Path
) -> None:
    model, optimizer = _started(make)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=tmp_path)
    twin = network()
    twin_optimizer = make(twin)
    _load(twin, twin_optimizer, options, tmp_path)
    train(twin_optimizer, twin, range(3, 5))
    _load(twin, twin_optimizer, options, tmp_path)
    assert train(twin_optimizer, twin, range(3, 5)) == train(optimizer, model, range(3, 5))


def _load(model: nn.Module, optimizer: Any, options: Any, path: Path) -> None:
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=path)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
        options=options,
    )


@each_maker
@each_option
@pytest.mark.parametrize("cleared", [False, True], ids=["with-gradients", "without-gradients"])
def test_a_state_dict_taken_after_each_step_does_not_change_the_epochs(make: Make, options: Any, cleared: bool) -> None:
    model, twin = network(norm=True), network(norm=True)
    optimizer, reference = make(model), make(twin)
    taken = []

    def take() -> None:
        if cleared:
            optimizer.zero_grad()
        taken.append(get_state_dict(model, optimizer, options=options))

    assert train(optimizer, model, range(3), after_step=take) == train(reference, twin, range(3))
    assert len(taken) >= 6
    assert_same_models(model, twin)


@each_maker
@each_option
@pytest.mark.parametrize("cleared", [False, True], ids=["with-gradients", "without-gradients"])
def test_a_state_dict_taken_between_epochs_does_not_change_them(make: Make, options: Any, cleared: bool) -> None:
    """Nor the number of evaluations: what is known of f(w^k) stays known."""
    model, twin = network(), network()
    optimizer, reference = make(model), make(twin)
    for order in range(5):
        report = run_epoch(optimizer, model, batches(order))
        assert repr(report) == repr(run_epoch(reference, twin, batches(order)))
        if cleared:
            optimizer.zero_grad()
        get_state_dict(model, optimizer, options=options)
    assert_same_models(model, twin)


@each_maker
@each_option
def test_a_state_dict_taken_before_the_first_batch_of_an_epoch_does_not_change_it(make: Make, options: Any) -> None:
    model, twin = network(), network()
    optimizer, reference = make(model), make(twin)
    plain, taken = optimizer.zero_grad, []

    def clear_and_take(set_to_none: bool = True) -> None:
        plain(set_to_none)
        if not taken:
            taken.append(True)
            get_state_dict(model, optimizer, options=options)

    optimizer.zero_grad = clear_and_take
    report = run_epoch(optimizer, model, batches())
    assert taken
    assert repr(report) == repr(run_epoch(reference, twin, batches()))
    assert_same_models(model, twin)


@each_maker
def test_the_lr_is_what_it_was_after_a_state_dict_was_taken(make: Make) -> None:
    model = network()
    optimizer = make(model)
    before = [group["lr"] for group in optimizer.param_groups]
    get_optimizer_state_dict(model, optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == before
    assert all(p.grad is None for p in model.parameters())
