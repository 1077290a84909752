"""A program reads and writes torch's tensors as they are at every call."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cmalight.compiled import CannotCompile, compile_training
from cmalight.evaluation.batches import TensorBatches
from cmalight.optim.soap import SOAP
from tests.compiled.eager import Pair

MAKES = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-4),
    "soap": lambda p: SOAP(p, lr=0.01, refresh_interval=2),
}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()


def data(samples: int = 44) -> TensorBatches:
    x = torch.randn(samples, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return TensorBatches(x, x[:, :3].cos(), batch_size=8)


@pytest.fixture
def both() -> Pair:
    return Pair(network(), nn.MSELoss(), MAKES["adam"], data())


@pytest.mark.parametrize("name", MAKES)
def test_undo_gives_the_same_steps_again(name):
    both = Pair(network(), nn.MSELoss(), MAKES[name], data())
    both.epoch(0)
    tensors = [*both.model.state_dict().values()]
    tensors += [t for state in both.optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    counts = {p: state["step"] for p, state in both.optimizer.state.items() if isinstance(state.get("step"), int)}
    snapshot = [t.clone() for t in tensors]
    both.program.begin_epoch(both.batches.permutation(1))
    first = both.program.run([1.0] * 6)
    after = [t.clone() for t in tensors]
    for t, saved in zip(tensors, snapshot, strict=True):
        t.copy_(saved)
    for p, count in counts.items():
        both.optimizer.state[p]["step"] = count
    both.program.begin_epoch(both.batches.permutation(1))
    assert torch.equal(both.program.run([1.0] * 6), first)
    assert all(torch.equal(a, b) for a, b in zip(tensors, after, strict=True))


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


@pytest.mark.parametrize("row", [-1, 44])
def test_a_row_out_of_range_is_an_error(both, row):
    permutation = both.batches.permutation(0)
    permutation[30] = row
    with pytest.raises(IndexError, match="row"):
        both.program.begin_epoch(permutation)


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_out_of_range_is_an_error_before_anything_is_written(label):
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    before = model.weight.clone()
    batches = TensorBatches(torch.randn(20, 4), torch.randint(3, (20,)), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    program = compile_training(model, nn.CrossEntropyLoss(ignore_index=-7), optimizer, batches)
    program.begin_epoch(batches.permutation(0))
    batches.tensors[1][batches.permutation(0)[-1]] = label
    with pytest.raises(IndexError, match="target"):
        program.run([1.0] * 3)
    with pytest.raises(IndexError, match="target"):
        program.begin_epoch(batches.permutation(0))
    assert torch.equal(model.weight, before)
    assert not optimizer.state


@pytest.mark.parametrize("index", [-1, 7])
def test_an_index_out_of_range_is_an_error(index):
    model = nn.Sequential(nn.Embedding(7, 2), nn.Flatten(), nn.Linear(6, 1))
    batches = TensorBatches(torch.randint(7, (20, 3)), torch.randn(20, 1))
    batches.tensors[0][11, 2] = index
    program = compile_training(model, nn.MSELoss(), torch.optim.SGD(model.parameters()), batches)
    with pytest.raises(IndexError, match="Embedding"):
        program.begin_epoch(batches.permutation(0))
