"""Whatever is not on the white list is refused with its reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from cmalight.compiled import CannotCompile, compile_training
from cmalight.evaluation.batches import TensorBatches

X, Y, LABELS = torch.randn(20, 4), torch.randn(20, 3), torch.randint(3, (20,))


def network(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), *layers, nn.Linear(5, 3))


def refusal(model: nn.Module, loss_fn=None, optimizer=None, data=(X, Y), **options) -> str:
    """The reason in one line."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(CannotCompile) as caught:
        compile_training(model, loss_fn or nn.MSELoss(), optimizer, TensorBatches(*data, batch_size=8, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Subclass(nn.Linear):
    pass


def changed(change: Callable[[nn.Linear], object]) -> nn.Module:
    """A network whose first layer somebody has changed."""
    model = network()
    change(model[0])
    return model


def shared(*, layer: bool) -> nn.Module:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, first if layer else second, nn.Linear(4, 3))


def nothing(*_: object) -> None:
    """A hook."""


def parameter(*shape: int, **options: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, **options))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: network(nn.PReLU()), "PReLU"),
        (lambda: nn.Sequential(Subclass(4, 3)), "Subclass"),
        (lambda: network(nn.utils.parametrizations.weight_norm(nn.Linear(5, 5))), "ParametrizedLinear"),
        (lambda: changed(lambda layer: layer.register_forward_hook(nothing)), "hooks"),
        (lambda: changed(lambda layer: layer.register_forward_pre_hook(nothing)), "hooks"),
        (lambda: changed(lambda layer: layer.register_full_backward_hook(nothing)), "hooks"),
        (lambda: changed(lambda layer: layer.register_full_backward_pre_hook(nothing)), "hooks"),
        (lambda: changed(lambda layer: setattr(layer, "forward", abs)), "forward of its own"),
        (lambda: changed(lambda layer: layer.weight.register_hook(nothing)), "hooks"),
        (lambda: changed(lambda layer: layer.weight.register_post_accumulate_grad_hook(nothing)), "hooks"),
        (lambda: shared(layer=True), "share"),
        (lambda: shared(layer=False), "share"),
        (lambda: changed(lambda layer: setattr(layer, "weight", parameter(5, 3))), "shape"),
        (lambda: changed(lambda layer: setattr(layer, "bias", parameter(5, dtype=torch.float64))), "mixes"),
        (lambda: network().half(), "mixes"),
        (lambda: network(nn.Dropout(1.0)), "drops everything"),
        (lambda: network(nn.Sigmoid(), nn.ReLU(inplace=True)), "in place"),
        (lambda: nn.Sequential(nn.ReLU(inplace=True), network()), "in place"),
        (lambda: network(nn.Embedding(5, 5)), "first layer only"),
        (lambda: network(nn.Flatten(0)), "Flatten"),
        (lambda: network(nn.LayerNorm(4)), "LayerNorm"),
        (lambda: network(nn.Linear(7, 7)), "expects 7 features"),
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
        (nn.CrossEntropyLoss(), (X, LABELS.int()), "int64"),
        (nn.CrossEntropyLoss(weight=torch.ones(2)), (X, LABELS), "2 weights"),
        (nn.BCEWithLogitsLoss(weight=torch.ones(8, 1)), (X, Y), "weight"),
        (nn.BCEWithLogitsLoss(pos_weight=torch.ones(3, dtype=torch.float64)), (X, Y), "weight"),
    ],
)
def test_losses(loss_fn, data, reason):
    assert reason in refusal(network(), loss_fn, data=data)


def altered(
    optimizer: torch.optim.Optimizer, change: Callable[[torch.optim.Optimizer], object]
) -> torch.optim.Optimizer:
    change(optimizer)
    return optimizer


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda p: torch.optim.RMSprop(p), "RMSprop"),
        (lambda p: torch.optim.Adam(p, amsgrad=True), "amsgrad"),
        (lambda p: torch.optim.Adam(p, maximize=True), "maximize"),
        (lambda p: torch.optim.Adam(p, capturable=True), "capturable"),
        (lambda p: torch.optim.Adam(p, differentiable=True), "differentiable"),
        (lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1)), "Tensor"),
        (lambda p: torch.optim.SGD([*p, nn.Parameter(X)]), "not the model's"),
        (lambda p: altered(torch.optim.SGD(p), lambda one: setattr(one, "step", nothing)), "step of its own"),
        (lambda p: altered(torch.optim.SGD(p), lambda one: one.register_step_post_hook(nothing)), "hooks"),
    ],
)
def test_optimizers(make, reason):
    model = network()
    assert reason in refusal(model, optimizer=make(model.parameters()))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ((X, Y, Y), "3 tensors"),
        ((X.T.contiguous().T, Y), "contiguous"),
        ((X.int(), Y), "int32"),
        ((X.clone().requires_grad_(), Y), "require gradients"),
        ((X[:, 0].contiguous(), Y), "expects 4 features"),
    ],
)
def test_data(data, reason):
    assert reason in refusal(network(), data=data)


def test_global_hooks_and_autocast():
    with nn.modules.module.register_module_forward_hook(nothing):
        assert "global" in refusal(network())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert "autocast" in refusal(network())


def test_a_scheduler_of_torch_is_no_obstacle():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    compile_training(model, nn.MSELoss(), optimizer, TensorBatches(X, Y))
