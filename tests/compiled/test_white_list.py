"""Whatever is not on the white list is refused with its reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from cmalight.compiled import CannotCompile, Evaluator, compile_training
from cmalight.evaluation.batches import TensorBatches
from cmalight.optim.soap import SOAP

MSE = nn.MSELoss()
X, Y, LABELS = torch.randn(20, 4), torch.randn(20, 3), torch.randint(3, (20,))


def network(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), *layers, nn.Linear(5, 3))


def refusal(model: nn.Module, loss_fn=None, optimizer=None, data=(X, Y), **options) -> str:
    """The reason in one line."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(CannotCompile) as caught:
        compile_training(model, loss_fn or MSE, optimizer, TensorBatches(*data, batch_size=8, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Subclass(nn.Linear):
    pass


def changed(change: Callable[[nn.Linear], object]) -> nn.Module:
    """A network whose first layer somebody has changed."""
    model = network()
    change(model[0])
    return model


def shared() -> nn.Module:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, second, nn.Linear(4, 3))


def normed(name: str, value: torch.Tensor | None) -> nn.Module:
    """A network whose batch norm has another tensor in the place of one of its own."""
    norm = nn.BatchNorm1d(5)
    delattr(norm, name)
    setattr(norm, name, value)
    return network(norm)


def nothing(*_: object) -> None:
    """A hook."""


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: network(nn.PReLU()), "PReLU"),
        (lambda: nn.Sequential(Subclass(4, 3)), "Subclass"),
        (lambda: network(nn.utils.parametrizations.weight_norm(nn.Linear(5, 5))), "ParametrizedLinear"),
        (lambda: changed(lambda layer: layer.register_forward_hook(nothing)), "hooks"),
        (lambda: changed(lambda layer: layer.register_full_backward_pre_hook(nothing)), "hooks"),
        (lambda: changed(lambda layer: setattr(layer, "forward", abs)), "forward of its own"),
        (lambda: changed(lambda layer: layer.weight.register_hook(nothing)), "hooks"),
        (lambda: changed(lambda layer: layer.weight.register_post_accumulate_grad_hook(nothing)), "hooks"),
        (shared, "share"),
        (lambda: changed(lambda layer: setattr(layer, "weight", parameter(5, 3))), "of the shape (5, 4)"),
        (lambda: network().half(), "mixes"),
        (lambda: normed("weight", torch.ones(5)), "expected a Parameter"),
        (lambda: normed("running_mean", nn.Parameter(torch.zeros(5))), "expected a Tensor"),
        (lambda: normed("running_mean", torch.zeros(5, dtype=torch.int8)), "mixes"),
        (lambda: normed("num_batches_tracked", torch.tensor(0.0)), "float32 with torch.int64"),
        (lambda: normed("running_var", None), "track_running_stats"),
        (lambda: network(nn.Dropout(1.0)), "drops everything"),
        (lambda: network(nn.Sigmoid(), nn.ReLU(inplace=True)), "in place"),
        (lambda: nn.Sequential(nn.ReLU(inplace=True), network()), "in place"),
        (lambda: network(nn.Embedding(5, 5)), "first layer only"),
        (lambda: network(nn.Flatten(0)), "Flatten"),
        (lambda: network(nn.LayerNorm(4)), "LayerNorm expects"),
        (lambda: network(nn.Linear(7, 7)), "Linear expects"),
        (lambda: nn.Sequential(), "no layers"),
        (lambda: network().requires_grad_(False), "trains no parameter"),
    ],
)
def test_models(make, reason):
    model = make()
    assert reason in refusal(model, optimizer=torch.optim.SGD([*model.parameters()] or [nn.Parameter(X)], lr=0.1))


@pytest.mark.parametrize("options", [{"max_norm": 1.0}, {"sparse": True}, {"scale_grad_by_freq": True}])
def test_embeddings(options):
    model = nn.Sequential(nn.Embedding(4, 3, **options))
    assert "max_norm" in refusal(model, data=(LABELS, Y))


@pytest.mark.parametrize(
    ("loss_fn", "data", "reason"),
    [
        (nn.HuberLoss(), (X, Y), "HuberLoss"),
        (lambda a, b: (a - b).square().mean(), (X, Y), "function"),
        (nn.MSELoss(reduction="sum"), (X, Y), "sum"),
        (nn.MSELoss(), (X, Y[:, :1].contiguous()), "do not match"),
        (nn.MSELoss(), (X, Y.double()), "do not match"),
        (nn.CrossEntropyLoss(), (X, Y), "int64"),
        (nn.CrossEntropyLoss(weight=torch.ones(2)), (X, LABELS), "the shape (2,)"),
        (nn.BCEWithLogitsLoss(weight=torch.ones(8, 1)), (X, Y), "weight"),
        (nn.BCEWithLogitsLoss(pos_weight=torch.ones(3, dtype=torch.float64)), (X, Y), "weight"),
    ],
)
def test_losses(loss_fn, data, reason):
    assert reason in refusal(network(), loss_fn, data=data)


def with_own_step(parameters) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters)
    optimizer.step = nothing
    return optimizer


def with_hook(parameters) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters)
    optimizer.register_step_post_hook(nothing)
    return optimizer


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda p: torch.optim.RMSprop(p), "RMSprop"),
        (lambda p: torch.optim.Adam(p, amsgrad=True), "amsgrad"),
        (lambda p: torch.optim.Adam(p, maximize=True), "maximize"),
        (lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1)), "Tensor"),
        (lambda p: torch.optim.SGD([*p, nn.Parameter(X)]), "not the model's"),
        (with_own_step, "step of its own"),
        (with_hook, "hooks"),
    ],
)
def test_optimizers(make, reason):
    model = network()
    assert reason in refusal(model, optimizer=make(model.parameters()))


@pytest.mark.parametrize(
    ("make", "change", "reason"),
    [
        (torch.optim.Adam, lambda state: state.pop("exp_avg"), "no exp_avg"),
        (torch.optim.Adam, lambda state: state.pop("step"), "no step"),
        (torch.optim.Adam, lambda state: state.update(step=3), "step 3"),
        (torch.optim.Adam, lambda state: state.update(exp_avg_sq=torch.zeros(2)), "does not fit"),
        (SOAP, lambda state: state.pop("left_basis"), "no left_basis"),
    ],
)
def test_states_of_optimizers(make, change, reason):
    model = network()
    optimizer = make(model.parameters(), lr=0.1)
    batches = TensorBatches(X, Y, batch_size=8)
    program = compile_training(model, MSE, optimizer, batches)
    program.begin_epoch(batches.permutation(0))
    program.run([1.0] * 3)
    change(optimizer.state[model[0].weight])
    assert reason in refusal(model, optimizer=optimizer)
    with pytest.raises(CannotCompile, match=reason):
        program.begin_epoch(batches.permutation(1))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ((X, Y, Y), "3 tensors"),
        ((X.T.contiguous().T, Y), "contiguous"),
        ((X.int(), Y), "int32"),
        ((X.clone().requires_grad_(), Y), "require gradients"),
        ((X[:, 0].contiguous(), Y), "Linear expects"),
    ],
)
def test_data(data, reason):
    assert reason in refusal(network(), data=data)


class OtherBatches(TensorBatches):
    """May give other rows."""


def test_a_subclass_of_the_batches_may_give_others():
    model = network()
    optimizer = torch.optim.SGD(model.parameters())
    for compiled in (
        lambda data: compile_training(model, MSE, optimizer, data),
        lambda data: Evaluator(model, MSE, data),
    ):
        with pytest.raises(CannotCompile, match="OtherBatches"):
            compiled(OtherBatches(X, Y))


def test_without_gradients_torch_has_to_say_so():
    model = network()
    with torch.no_grad():
        assert "no_grad" in refusal(model)
    program = compile_training(model, MSE, torch.optim.SGD(model.parameters()), TensorBatches(X, Y))
    with torch.no_grad(), pytest.raises(CannotCompile, match="no_grad"):
        program.begin_epoch(torch.arange(20))


def test_global_hooks_and_autocast():
    with nn.modules.module.register_module_forward_hook(nothing):
        assert "global" in refusal(network())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert "autocast" in refusal(network())


def test_a_scheduler_of_torch_is_no_obstacle():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    compile_training(model, MSE, optimizer, TensorBatches(X, Y))
