"""Compiled steps agree with torch's to rounding, over the whole white list."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from cmalight.compiled import CannotCompile, Evaluator, compile_training, library
from cmalight.evaluation.batches import TensorBatches
from cmalight.models import layered
from cmalight.optim.soap import SOAP
from tests.compiled.eager import Make, Pair, eager_steps

FEATURES, OUTPUTS, BATCH = 6, 3, 16


def around(*layers: nn.Module, width: int = 5) -> nn.Sequential:
    return nn.Sequential(nn.Linear(FEATURES, width), *layers, nn.Linear(width, OUTPUTS))


def numbers(n: int) -> Tensor:
    return torch.randn(n, FEATURES)


def images(n: int) -> Tensor:
    return torch.randn(n, 2, 3)


def indices(n: int) -> Tensor:
    return torch.randint(7, (n, 4))


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu in place": lambda: nn.ReLU(inplace=True),
    "leaky relu": lambda: nn.LeakyReLU(0.2),
    "leaky relu of a negative slope": lambda: nn.LeakyReLU(-0.3),
    "elu": lambda: nn.ELU(0.7),
    "gelu": nn.GELU,
    "gelu by tanh": lambda: nn.GELU("tanh"),
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "softplus": lambda: nn.Softplus(2.0, 1.0),
    "hardtanh": lambda: nn.Hardtanh(-0.3, 0.4),
    "relu6": nn.ReLU6,
    "identity": nn.Identity,
}
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    **{name: (lambda make=make: around(make()), numbers) for name, make in ACTIVATIONS.items()},
    "linear": (lambda: nn.Linear(FEATURES, OUTPUTS), numbers),
    "no bias": (lambda: nn.Linear(FEATURES, OUTPUTS, bias=False), numbers),
    "wide": (lambda: around(nn.Tanh(), nn.Linear(70, 70), nn.SiLU(), width=70), numbers),
    "dropout": (lambda: around(nn.Sigmoid(), nn.Dropout(0.4), nn.Identity(), nn.Dropout(0.0)), numbers),
    "dropout first": (lambda: nn.Sequential(nn.Dropout(0.2), around(nn.Tanh())), numbers),
    "dropout evaluating": (lambda: around(nn.Dropout().eval()), numbers),
    "batch norm": (lambda: around(nn.BatchNorm1d(5), nn.ReLU()), numbers),
    "batch norm, averages": (lambda: around(nn.BatchNorm1d(5, momentum=None, eps=0.01)), numbers),
    "batch norm, not affine": (lambda: around(nn.BatchNorm1d(5, affine=False)), numbers),
    "batch norm, no averages": (lambda: around(nn.BatchNorm1d(5, track_running_stats=False)), numbers),
    "batch norm evaluating": (lambda: around(nn.BatchNorm1d(5).eval()), numbers),
    "layer norm": (lambda: around(nn.LayerNorm(5)), numbers),
    "layer norm, not affine": (lambda: around(nn.LayerNorm(5, elementwise_affine=False)), numbers),
    "layer norm, no bias": (lambda: around(nn.LayerNorm(5, bias=False), nn.GELU()), numbers),
    "flatten": (lambda: nn.Sequential(nn.LayerNorm((2, 3)), nn.Flatten(), around(nn.ReLU())), images),
    "rows": (lambda: nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Flatten(), around(nn.ReLU())), images),
    "embedding": (lambda: nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(12, OUTPUTS)), indices),
    "padded embedding": (
        lambda: nn.Sequential(nn.Embedding(7, 3, padding_idx=2), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, 3)),
        indices,
    ),
    "layered": (lambda: layered("3x5", FEATURES, outputs=OUTPUTS), numbers),
}


def labels(n: int) -> Tensor:
    return torch.randint(OUTPUTS, (n,))


def fractions(n: int) -> Tensor:
    return torch.rand(n, OUTPUTS)


def weighted_bce() -> nn.Module:
    return nn.BCEWithLogitsLoss(weight=torch.rand(OUTPUTS), pos_weight=1 + torch.rand(OUTPUTS))


def weighted_cross_entropy() -> nn.Module:
    return nn.CrossEntropyLoss(weight=torch.rand(OUTPUTS) + 0.1, label_smoothing=0.2, ignore_index=1)


LOSSES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "mse": (nn.MSELoss, fractions),
    "l1": (nn.L1Loss, fractions),
    "bce": (nn.BCEWithLogitsLoss, fractions),
    "weighted bce": (weighted_bce, fractions),
    "cross entropy": (nn.CrossEntropyLoss, labels),
    "weighted cross entropy": (weighted_cross_entropy, labels),
}
OPTIMIZERS: dict[str, Callable[[float], Make]] = {
    "sgd": lambda decay: lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=decay),
    "momentum": lambda decay: lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=decay),
    "nesterov": lambda decay: lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True, weight_decay=decay),
    "adam": lambda decay: lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=decay),
    "adamw": lambda decay: lambda p: torch.optim.AdamW(p, lr=0.01, eps=1e-4, weight_decay=decay),
    "adagrad": lambda decay: (
        lambda p: torch.optim.Adagrad(p, lr=0.01, lr_decay=0.1, initial_accumulator_value=0.01, weight_decay=decay)
    ),
    "adadelta": lambda decay: lambda p: torch.optim.Adadelta(p, lr=0.5, rho=0.8, eps=1e-4, weight_decay=decay),
}


def parts(model: str, loss: str, dtype: torch.dtype, *, samples: int, order: str = "reshuffle"):
    """A model, a loss and data."""
    make_model, inputs = MODELS[model]
    make_loss, targets = LOSSES[loss]
    data = [t.to(dtype) if t.is_floating_point() else t for t in (inputs(samples), targets(samples))]
    return make_model().to(dtype), make_loss().to(dtype), TensorBatches(*data, batch_size=BATCH, order=order)


def pair(model: str, loss: str, make: Make, dtype: torch.dtype, **options) -> Pair:
    torch.manual_seed(0)
    network, loss_fn, batches = parts(model, loss, dtype, **options)
    return Pair(network, loss_fn, make, batches)


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


SIZES = ((0.0, "fixed", 3 * BATCH), (0.1, "reshuffle", 2 * BATCH + 5))  # weight decay; a short last batch


def soap(parameters, decay: float) -> SOAP:
    return SOAP(parameters, lr=0.01, eps=1.0, weight_decay=decay, refresh_interval=2)


def assert_soap_agrees(model: str, loss: str, dtype: torch.dtype) -> None:
    """From a common state on, and with a large eps: where a factor has no full rank, rounding decides on its basis."""
    tolerance = 1e-3 if dtype == torch.float32 else 1e-6
    for decay, order, samples in SIZES:
        both = pair(model, loss, lambda p, d=decay: soap(p, d), dtype, samples=samples, order=order)
        eager_steps(both.twin, both.loss_fn, both.twin_optimizer, both.batches, both.batches.permutation(0), [1.0] * 3)
        both.model.load_state_dict(both.twin.state_dict())
        both.optimizer.load_state_dict(copy.deepcopy(both.twin_optimizer.state_dict()))
        both.epoch(1, tolerance=tolerance)
        both.check(state=False, tolerance=tolerance)


CASES = [(model, [*LOSSES][number % len(LOSSES)]) for number, model in enumerate(MODELS)]
CASES += [("tanh", loss) for loss in LOSSES]


@DTYPES
@pytest.mark.parametrize(("model", "loss"), CASES)
def test_every_layer_and_every_loss_agree_with_torch_under_every_optimizer(model, loss, dtype):
    for make in OPTIMIZERS.values():
        for decay, order, samples in SIZES:
            both = pair(model, loss, make(decay), dtype, samples=samples, order=order)
            both.epoch(0)
            both.check()
    assert_soap_agrees(model, loss, dtype)


@DTYPES
@pytest.mark.parametrize("rows", [1, 7, 128, 300])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 50, 1), (9, 50, 1), (17, 33, 65), (300, 20), (20, 300), (1100, 3)])
def test_products_of_every_shape(sizes, rows, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))).to(dtype)
    x, y = torch.randn(2 * rows, sizes[0], dtype=dtype), torch.randn(2 * rows, sizes[-1], dtype=dtype)
    both = Pair(model, nn.MSELoss(), lambda p: torch.optim.SGD(p, lr=0.01), TensorBatches(x, y, batch_size=rows))
    both.epoch(0)
    both.check()


@DTYPES
@pytest.mark.parametrize("addresses", [library._products_of_torch(), (None, None)], ids=["torch", "kernel"])
def test_large_products_are_those_of_torch_if_it_exports_them(addresses, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(420, 430), nn.Tanh(), nn.Linear(430, 440, bias=False)).to(dtype)
    x, y = torch.randn(260, 420, dtype=dtype), torch.randn(260, 440, dtype=dtype)
    both = Pair(model, nn.MSELoss(), lambda p: torch.optim.SGD(p, lr=0.1), TensorBatches(x, y, batch_size=130))
    library.kernel().cmalight_use(*addresses)
    try:
        both.epoch(0)
        both.check()
        loss = Evaluator(both.model, nn.MSELoss(), both.batches).loss()
    finally:
        library.kernel().cmalight_use(*library._products_of_torch())
    assert loss == pytest.approx(nn.MSELoss()(both.twin(x), y).item(), rel=1e-5)


def test_soap_agrees_over_many_refreshes_in_double_precision():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    x = torch.randn(640, 4, dtype=torch.float64)
    batches = TensorBatches(x, torch.sin(3 * x), batch_size=64)
    both = Pair(model, nn.MSELoss(), lambda p: SOAP(p, lr=0.01, weight_decay=0.01, refresh_interval=3), batches)
    for number in range(3):
        both.epoch(number, [1.0] * 10)
    for ours, theirs in zip(both.model.parameters(), both.twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-7)
    state = both.optimizer.state[both.model[2].weight]
    identity = torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(state["right_basis"].T @ state["right_basis"], identity)


def test_soap_leaves_inputs_alone_that_are_always_zero():
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    x[:, 2] = 0
    model = nn.Linear(4, 3)
    before = model.weight[:, 2].clone()
    batches = TensorBatches(x, x[:, :3].contiguous(), batch_size=8)
    both = Pair(model, nn.MSELoss(), lambda p: SOAP(p, lr=0.1, refresh_interval=1), batches)
    both.program.begin_epoch(both.batches.permutation(0))
    both.program.run([1.0] * 8)
    assert torch.equal(both.model.weight[:, 2], before)


def test_groups_have_their_own_options_and_parameters_may_stay():
    torch.manual_seed(0)
    model = around(nn.BatchNorm1d(5), nn.Tanh())
    model[1].weight.requires_grad_(False)

    def make(parameters):
        first, _, *others = parameters
        options = [{"params": [first], "lr": 0.3}, {"params": others, "weight_decay": 0.2, "momentum": 0.5}]
        return torch.optim.SGD(options, lr=0.1)

    x = torch.randn(40, FEATURES)
    both = Pair(model, nn.MSELoss(), make, TensorBatches(x, x[:, :OUTPUTS].clone(), batch_size=BATCH))
    both.epoch(0)
    both.check()
    assert both.optimizer.param_groups[0]["lr"] == 0.3


def test_a_batch_whose_labels_are_all_ignored_has_no_loss():
    torch.manual_seed(0)
    batches = TensorBatches(torch.randn(8, FEATURES), torch.full((8,), -100), batch_size=8)
    both = Pair(around(), nn.CrossEntropyLoss(), lambda p: torch.optim.SGD(p, lr=0.1), batches)
    both.program.begin_epoch(batches.permutation(0))
    assert both.program.run([1.0]).isnan().all()
    both.check()


@pytest.mark.parametrize("batch_size", [8, 1])
def test_a_batch_of_one_row_is_left_to_torch_under_batch_norm(batch_size):
    batches = TensorBatches(torch.randn(9, FEATURES), torch.randn(9, OUTPUTS), batch_size=batch_size)
    model = around(nn.BatchNorm1d(5))
    with pytest.raises(CannotCompile, match="more than one row"):
        compile_training(model, nn.MSELoss(), torch.optim.SGD(model.parameters()), batches)
