"""Compiled evaluations agree with `Objective` to rounding and leave no trace."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from cmalight.compiled import CannotCompile, Evaluator
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.objective import Objective
from tests.compiled.eager import TOLERANCE, close
from tests.compiled.test_agreement import BATCH, CASES, DTYPES, parts

MODES = pytest.mark.parametrize("mode", ["train", "eval"])


def problem(model: str, loss: str, dtype: torch.dtype, samples: int = 2 * BATCH + 5):
    torch.manual_seed(0)
    return parts(model, loss, dtype, samples=samples)


def assert_agrees(model: nn.Module, loss_fn: nn.Module, data: TensorBatches, mode: str) -> None:
    dtype = next(model.parameters()).dtype
    before = copy.deepcopy(model.state_dict())
    evaluator = Evaluator(model, loss_fn, data, mode=mode)
    loss, outputs = evaluator.measure()
    assert evaluator.loss() == loss
    assert all(torch.equal(now, then) for now, then in zip(model.state_dict().values(), before.values(), strict=True))
    expected = Objective(model, loss_fn, data, mode=mode)()
    close(torch.tensor(loss), torch.tensor(expected), TOLERANCE[dtype])
    if mode == "eval":
        with torch.no_grad():
            evaluating = copy.deepcopy(model).eval()
            batches = [evaluating(batch) for batch in data.tensors[0].split(data.batch_size)]
            close(outputs, torch.cat(batches), TOLERANCE[dtype])


@DTYPES
@MODES
@pytest.mark.parametrize(("model", "loss"), CASES)
def test_every_layer_and_every_loss_agree_with_the_objective(model, loss, dtype, mode):
    network, loss_fn, data = problem(model, loss, dtype)
    if mode == "train" and any(isinstance(m, nn.Dropout) and m.training and m.p for m in network.modules()):
        with pytest.raises(CannotCompile, match="Dropout"):
            Evaluator(network, loss_fn, data, mode=mode)
    else:
        assert_agrees(network, loss_fn, data, mode)


@MODES
def test_a_model_in_eval_mode_is_evaluated_in_the_mode_that_was_asked_for(mode):
    network, loss_fn, data = problem("batch norm", "mse", torch.float64)
    network(data.tensors[0])
    assert_agrees(network.eval(), loss_fn, data, mode)
    assert not network.training


@MODES
def test_more_rows_than_fit_into_one_call(mode, monkeypatch):
    monkeypatch.setattr("cmalight.compiled.network._WORK_PER_CALL", 1)
    assert_agrees(*problem("tanh", "weighted cross entropy", torch.float64, samples=1000), mode)


def test_current_weights_are_read_in_place_and_refresh_sees_new_data_and_hooks():
    network, loss_fn, data = problem("tanh", "mse", torch.float64)
    evaluator = Evaluator(network, loss_fn, data)
    for p in network.parameters():
        p.data = p.data + 1
    assert evaluator.loss() == pytest.approx(Objective(network, loss_fn, data)(), rel=1e-12)
    data.tensors = tuple(t[:20].clone() for t in data.tensors)
    evaluator.refresh()
    assert evaluator.loss() == pytest.approx(Objective(network, loss_fn, data)(), rel=1e-12)
    network.register_forward_hook(lambda *_: None)
    with pytest.raises(CannotCompile, match="hooks"):
        evaluator.refresh()


def test_ignored_targets_do_not_count_and_labels_out_of_range_are_an_error():
    network, loss_fn, data = problem("tanh", "cross entropy", torch.float64)
    data.tensors[1][:BATCH] = loss_fn.ignore_index
    assert_agrees(network, loss_fn, data, "eval")
    data.tensors[1].fill_(loss_fn.ignore_index)
    with pytest.raises(ValueError, match="ignores every target"):
        Evaluator(network, loss_fn, data).loss()
    data.tensors[1][-1] = 3
    with pytest.raises(IndexError, match="target"):
        Evaluator(network, loss_fn, data).loss()


def test_a_last_batch_of_one_row_is_left_to_torch_if_it_is_normalised():
    network, loss_fn, data = problem("batch norm", "mse", torch.float32, samples=BATCH + 1)
    assert_agrees(network, loss_fn, data, "eval")
    with pytest.raises(CannotCompile, match="more than one row"):
        Evaluator(network, loss_fn, data, mode="train")


def test_numbers_below_full_precision_are_zero_in_the_kernel_only():
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(1e-30)
    data = TensorBatches(torch.full((4, 1), 1e-10), torch.zeros(4, 1))
    _, outputs = Evaluator(model, nn.MSELoss(), data, mode="eval").measure()
    assert outputs.abs().max() == 0
    assert (torch.tensor(1e-30) * torch.tensor(1e-10)).item() != 0
