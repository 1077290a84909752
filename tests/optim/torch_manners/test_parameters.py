"""Kinds of parameters: complex, with sparse gradients, of several dtypes and devices, named, frozen."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from cmalight import CMALight, Outcome

from .infos import INFOS, each_implementation, each_optimizer
from .loop import assert_same, batches, network, run_epoch

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def _checked_sparse_tensors() -> Iterator[None]:
    """Without a choice torch warns once, and a warning is an error here."""
    with torch.sparse.check_sparse_tensor_invariants():
        yield


def _run_quadratic(optimizer: Any, params: list[nn.Parameter], steps: int = 3) -> Any:
    """An epoch on f(w) = mean of |w|² over everything."""

    def loss() -> Tensor:
        return torch.stack([p.abs().double().square().mean() for p in params]).mean()

    with optimizer.epoch(lambda: loss().item()) as epoch:
        for _ in range(steps):
            optimizer.zero_grad()
            value = loss()
            value.backward()
            epoch.observe(value, 1)
            optimizer.step()
    return epoch.report


@each_optimizer
@pytest.mark.parametrize("implementation", [{}, {"foreach": False}, {"foreach": True}], ids=str)
@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
def test_a_complex_parameter_steps_like_two_real_ones(
    optimizer_class: Any, implementation: Any, weight_decay: float
) -> None:
    start = torch.randn(4, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    joint = nn.Parameter(start.clone())
    real, imag = nn.Parameter(start.real.clone()), nn.Parameter(start.imag.clone())
    mixed = optimizer_class([joint], lr=0.1, weight_decay=weight_decay, **implementation)
    split = optimizer_class([real, imag], lr=0.1, weight_decay=weight_decay, **implementation)
    for seed in range(3):
        grad = torch.randn(4, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed))
        joint.grad, real.grad, imag.grad = grad, grad.real.clone(), grad.imag.clone()
        mixed.step()
        split.step()
    torch.testing.assert_close([joint.real, joint.imag], [real.detach(), imag.detach()])
    assert (joint - start).abs().min() > 0.01


@each_optimizer
@pytest.mark.parametrize("implementation", [{}, {"foreach": False}, {"foreach": True}], ids=str)
def test_a_complex_parameter_steps_as_in_sgd_bit_for_bit(optimizer_class: Any, implementation: Any) -> None:
    ours, theirs = (nn.Parameter(torch.tensor([1 + 2j, 3 - 1j])) for _ in range(2))
    for p, kind in ((ours, optimizer_class), (theirs, SGD)):
        optimizer = kind([p], lr=0.1, weight_decay=0.5, **implementation)
        p.grad = torch.tensor([0.3 + 0.1j, 0.7j])
        optimizer.step()
    assert_same([ours], [theirs])


@each_optimizer
@pytest.mark.parametrize("lr", [0.5, 40.0], ids=["accepted", "rejected"])
def test_an_epoch_on_a_complex_parameter_ends_like_one_on_two_real_ones(optimizer_class: Any, lr: float) -> None:
    start = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128)
    joint = nn.Parameter(start.clone())
    split = nn.Parameter(torch.view_as_real(start).clone())

    def epoch(params: list[nn.Parameter], loss: Any) -> Any:
        optimizer = optimizer_class(params, lr=lr, weight_decay=0.1)
        with optimizer.epoch(lambda: loss().item()) as epoch:
            for _ in range(2):
                optimizer.zero_grad()
                value = loss()
                value.backward()
                epoch.observe(value, 1)
                optimizer.step()
        return epoch.report

    report = epoch([joint], lambda: torch.view_as_real(joint).square().mean())
    expected = epoch([split], lambda: split.square().mean())
    assert report.outcome is expected.outcome
    assert report.direction_norm == pytest.approx(expected.direction_norm, rel=1e-12)
    torch.testing.assert_close(torch.view_as_real(joint), split)


@each_optimizer
def test_fused_refuses_complex_parameters_as_sgd_does(optimizer_class: Any) -> None:
    for kind in (SGD, optimizer_class):
        p = nn.Parameter(torch.ones(2, dtype=torch.complex64))
        optimizer = kind([p], lr=0.1, fused=True)
        p.grad = torch.ones_like(p)
        with pytest.raises(RuntimeError, match="requires all the params to be floating point"):
            optimizer.step()


@each_optimizer
@pytest.mark.parametrize("implementation", [{}, {"foreach": False}, {"foreach": True}], ids=str)
def test_sparse_gradients_step_as_in_sgd(optimizer_class: Any, implementation: Any) -> None:
    """The gradient is uncoalesced: the first row comes twice."""
    grad = torch.sparse_coo_tensor([[0, 0, 2]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], (3, 2))
    ours, theirs = nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(3, 2))
    for p, kind in ((ours, optimizer_class), (theirs, SGD)):
        optimizer = kind([p], lr=0.5, **implementation)
        p.grad = grad.clone()
        optimizer.step()
    assert ours.tolist() == [[-1.0, -2.0], [1.0, 1.0], [-1.5, -2.0]]
    assert_same([ours], [theirs])


@each_optimizer
def test_fused_refuses_sparse_gradients_as_sgd_does(optimizer_class: Any) -> None:
    for kind in (SGD, optimizer_class):
        p = nn.Parameter(torch.ones(3))
        optimizer = kind([p], lr=0.1, fused=True)
        p.grad = torch.sparse_coo_tensor([[0]], [1.0], (3,))
        with pytest.raises(RuntimeError, match="does not support sparse gradients"):
            optimizer.step()


@pytest.mark.filterwarnings("ignore:20 steps of:RuntimeWarning")  # they are outside of an epoch on purpose
@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
def test_sparse_gradients_go_in_the_right_direction_under_a_scheduler(info: Any) -> None:
    """Cyclic coordinate descent on Rosenbrock's function, as in PyTorch's suite."""
    kwargs, schedulers = info.metadata_for_sparse
    assert info.supports_sparse
    p = nn.Parameter(torch.tensor([1.5, 1.5]))
    optimizer = info.optim_cls([p], **kwargs)
    scheduler = schedulers[0](optimizer)
    solution = torch.ones(2)
    distance = torch.dist(p.detach(), solution).item()
    for i in range(500):
        x, y = p.detach()
        slope = (-400 * x * (y - x**2) - 2 * (1 - x), 200 * (y - x**2))[i % 2]
        p.grad = torch.sparse_coo_tensor([[i % 2, i % 2]], torch.stack([slope / 4, slope * 3 / 4]), (2,))
        optimizer.step()
        scheduler.step()
    assert torch.dist(p.detach(), solution).item() < 0.9 * distance


@each_optimizer
@pytest.mark.parametrize("lr", [0.1, 10.0], ids=["accepted", "rejected"])
def test_an_epoch_with_an_embedding_with_sparse_gradients_equals_a_dense_one(optimizer_class: Any, lr: float) -> None:
    weights, outcomes = [], []
    for sparse in (True, False):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = nn.Sequential(nn.Embedding(5, 2, sparse=sparse), nn.Linear(2, 1)).double()
        data = [
            (torch.tensor([0, 1, 1]), torch.ones(3, 1, dtype=torch.float64)),
            (torch.tensor([3, 4]), torch.zeros(2, 1, dtype=torch.float64)),
        ]
        outcomes.append(run_epoch(optimizer_class(model.parameters(), lr=lr), model, data).outcome)
        weights.append([p.detach() for p in model.parameters()])
    assert outcomes[0] is outcomes[1]
    torch.testing.assert_close(*weights)


@each_optimizer
@each_implementation
def test_several_dtypes_in_one_optimizer_step_as_in_sgd(optimizer_class: Any, implementation: Any) -> None:
    ours, theirs = ([nn.Parameter(torch.linspace(1, 2, 6).to(d)) for d in _DTYPES] for _ in range(2))
    for params, kind in ((ours, optimizer_class), (theirs, SGD)):
        optimizer = kind(params, lr=0.1, weight_decay=0.5, **implementation)
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert_same(ours, theirs)
    assert ours[0][0].item() == pytest.approx(1 - 0.1 * 1.5)


@each_optimizer
@each_implementation
def test_several_dtypes_in_one_epoch_keep_their_dtypes_and_the_loss_falls(
    optimizer_class: Any, implementation: Any
) -> None:
    params = [nn.Parameter(torch.ones(2, dtype=d)) for d in _DTYPES]
    report = _run_quadratic(optimizer_class(params, lr=0.5, weight_decay=0.01, **implementation), params)
    assert report.outcome in (Outcome.ACCEPTED, Outcome.UNCONTROLLED)
    assert [p.dtype for p in params] == list(_DTYPES)
    assert all((p < 1).all() for p in params)


@each_optimizer
def test_a_bfloat16_epoch_that_is_undone_is_undone_bit_for_bit(optimizer_class: Any) -> None:
    params = [nn.Parameter(torch.linspace(1, 2, 5).to(d)) for d in (torch.bfloat16, torch.float32)]
    start = [p.detach().clone() for p in params]
    report = _run_quadratic(optimizer_class(params, lr=50.0), params)
    undone = report.alpha == 0.0
    assert undone is (report.outcome is not Outcome.UNCONTROLLED)
    assert all(torch.equal(p, q) for p, q in zip(params, start, strict=True)) is undone


@each_optimizer
def test_the_direction_of_a_bfloat16_epoch_is_not_rounded_to_bfloat16(optimizer_class: Any) -> None:
    """From 1 by 2⁻⁷ to 2⁻⁹ in both coordinates: 1 − 2⁻⁹ has nine binary digits, one too many for bfloat16."""
    p = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = optimizer_class([p], lr=1.0)
    with optimizer.epoch(lambda: p.float().sum().item()) as epoch:
        for slope in (1 - 2**-7, 2**-7 - 2**-9):
            optimizer.zero_grad()
            loss = slope * p.sum()
            loss.backward()
            epoch.observe(loss, 1)
            optimizer.step()
        assert p.tolist() == [2**-9, 2**-9]
    assert epoch.report.direction_norm == pytest.approx((1 - 2**-9) * 2**0.5, rel=1e-6)


@each_optimizer
@pytest.mark.parametrize("implementation", [{"foreach": False}, {"foreach": True}], ids=str)
def test_a_step_over_two_devices_updates_each_on_its_own(optimizer_class: Any, implementation: Any) -> None:
    """The meta device holds no numbers, so it stands in for a second device in a step, but not in an epoch."""
    here, there = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2, device="meta"))
    optimizer = optimizer_class([there, here], lr=0.5, **implementation)
    for p in (here, there):
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert here.tolist() == [0.5, 0.5]
    assert there.device.type == "meta"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="an epoch over two devices needs numbers on both: no GPU")
@each_optimizer
def test_an_epoch_over_two_devices_ends_like_one_on_a_single_device(optimizer_class: Any) -> None:
    reports = []
    for device in ("cpu", "cuda"):
        params = [nn.Parameter(torch.ones(2, device=where)) for where in ("cpu", device)]
        optimizer = optimizer_class(params, lr=0.5, weight_decay=0.1)
        with optimizer.epoch(lambda params=params: sum(p.square().sum().item() for p in params)) as epoch:
            optimizer.zero_grad()
            loss = params[0].square().sum() + params[1].square().sum().cpu()
            loss.backward()
            epoch.observe(loss, 1)
            optimizer.step()
        reports.append(epoch.report)
    assert reports[0] == reports[1]


@each_optimizer
def test_named_parameters_train_like_unnamed_ones_and_keep_their_names(optimizer_class: Any) -> None:
    named, plain = network(), network()
    optimizer = optimizer_class(named.named_parameters(), lr=0.1)
    report = run_epoch(optimizer, named, batches())
    assert repr(report) == repr(run_epoch(optimizer_class(plain.parameters(), lr=0.1), plain, batches()))
    names = optimizer.state_dict()["param_groups"][0]["param_names"]
    assert names == ["0.weight", "0.bias", "3.weight", "3.bias"]


@each_optimizer
def test_frozen_parameters_stay_and_do_not_count_as_regularised(optimizer_class: Any) -> None:
    w, frozen = nn.Parameter(torch.tensor([1.0])), nn.Parameter(torch.tensor([100.0]), requires_grad=False)
    optimizer = optimizer_class([frozen, w], lr=0.5, weight_decay=1.0)
    report = _run_quadratic(optimizer, [w], steps=1)
    assert report.f_tilde == 1.0 + 0.5
    assert frozen.item() == 100.0


@each_optimizer
def test_a_first_group_without_parameters_is_allowed_as_in_sgd(optimizer_class: Any) -> None:
    """Sharded training makes such groups."""
    model, plain = network(), network()
    SGD([{"params": []}, {"params": model.parameters()}])
    report = run_epoch(optimizer_class([{"params": []}, {"params": model.parameters()}], lr=0.1), model, batches())
    assert repr(report) == repr(run_epoch(optimizer_class(plain.parameters(), lr=0.1), plain, batches()))


@each_optimizer
def test_a_frozen_integer_parameter_may_come_first(optimizer_class: Any) -> None:
    """As in the training of adapters on quantised weights."""
    w, quantised = nn.Parameter(torch.tensor([1.0])), nn.Parameter(torch.tensor([3]), requires_grad=False)
    report = _run_quadratic(optimizer_class([quantised, w], lr=0.25), [w], steps=1)
    assert report.direction_norm == 2.0
    assert quantised.item() == 3


def test_a_single_parameter_in_a_group_need_not_be_a_list() -> None:
    w = nn.Parameter(torch.ones(1))
    optimizer = CMALight([{"params": w}], lr=0.5)
    w.grad = torch.ones(1)
    optimizer.step()
    assert w.item() == 0.5
