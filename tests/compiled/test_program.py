"""A program reads and writes torch's tensors as they are at every call."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cmalight.compiled import CannotCompile, compile_training
from cmalight.evaluation.batches import TensorBatches
from tests.compiled.eager import Pair
from tests.helpers import copied_state, same_state


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()


def data(samples: int = 44) -> TensorBatches:
    x = torch.randn(samples, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return TensorBatches(x, x[:, :3].cos(), batch_size=8)


@pytest.fixture
def both() -> Pair:
    return Pair(network(), nn.MSELoss(), lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-4), data())


def test_eager_steps_and_compiled_ones_take_turns(both):
    both.epoch(0)
    for model, optimizer in ((both.model, both.optimizer), (both.twin, both.twin_optimizer)):
        optimizer.zero_grad()
        nn.MSELoss()(model(both.batches.tensors[0]), both.batches.tensors[1]).backward()
        optimizer.step()
    both.epoch(1)
    both.check()


def test_replaced_storage_is_found_and_torch_sees_that_it_has_changed(both):
    both.program.begin_epoch(both.batches.permutation(0))
    for p in both.model.parameters():
        p.data = p.data.clone()
    before = both.model[0].weight._version
    both.program.run([1.0] * 2)
    assert not torch.equal(both.model[0].weight, both.twin[0].weight)
    assert both.model[0].weight._version > before


def test_flags_and_options_are_read_anew(both):
    both.epoch(0)
    for model, optimizer in ((both.model, both.optimizer), (both.twin, both.twin_optimizer)):
        model[1].eval()
        optimizer.param_groups[0].update(lr=0.02, betas=(0.5, 0.9), weight_decay=0.1)
    both.epoch(1)
    both.check()
    both.model[0].register_forward_hook(lambda *_: None)
    with pytest.raises(CannotCompile, match="hooks"):
        both.program.begin_epoch(both.batches.permutation(2))


CLASSES, EMBEDDED = torch.arange(44) % 3, nn.Sequential(nn.Embedding(7, 2), nn.Flatten(), nn.Linear(6, 3)).double()


@pytest.mark.parametrize(
    ("model", "loss_fn", "tensors", "place", "name"),
    [
        (network(), nn.MSELoss(), data().tensors, None, "row"),
        (network(), nn.CrossEntropyLoss(ignore_index=-7), (data().tensors[0], CLASSES), 1, "target"),
        (EMBEDDED, nn.MSELoss(), (torch.arange(132).reshape(44, 3) % 7, data().tensors[1]), 0, "Embedding"),
    ],
    ids=["row", "label", "index"],
)
@pytest.mark.parametrize("value", [-1, 44])
def test_a_number_out_of_range_is_an_error_before_anything_is_written(model, loss_fn, tensors, place, name, value):
    batches = TensorBatches(*(t.clone() for t in tensors), batch_size=8)
    before = copied_state(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    program, permutation = compile_training(model, loss_fn, optimizer, batches), batches.permutation(0)
    program.begin_epoch(permutation.clone())
    if place is None:
        permutation[30] = value
    else:
        batches.tensors[place][permutation[-1]] = value
        with pytest.raises(IndexError, match=name):
            program.run([1.0] * 6)
    with pytest.raises(IndexError, match=name):
        program.begin_epoch(permutation)
    assert same_state(model.state_dict(), before)
    assert not optimizer.state
