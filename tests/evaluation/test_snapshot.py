"""The way between w^k and w̃, and the norms along it."""

import math

import pytest
import torch

from cmalight.evaluation import norms
from cmalight.evaluation.snapshot import Snapshot


def test_move_reaches_every_point_of_the_line_and_both_ends_bit_for_bit():
    w = torch.tensor([1.0, 2.0, 3.0])
    snapshot = Snapshot([w], None)
    w += torch.tensor([0.1, 0.2, 0.4])
    tentative = w.clone()
    assert snapshot.displacement_norm() == pytest.approx((0.01 + 0.04 + 0.16) ** 0.5, rel=1e-6)
    snapshot.set_aside()
    snapshot.move(2.0)
    torch.testing.assert_close(w, torch.tensor([1.2, 2.4, 3.8]))
    snapshot.move(0.0)
    assert torch.equal(w, torch.tensor([1.0, 2.0, 3.0]))
    snapshot.move(1.0)
    assert torch.equal(w, tentative)


def test_without_anything_set_aside_only_the_two_ends_can_be_reached():
    w = torch.tensor([1.0])
    snapshot = Snapshot([w], None)
    w += 1
    snapshot.move(1.0)
    assert w.item() == 2.0
    with pytest.raises(RuntimeError, match="set_aside"):
        snapshot.move(1.5)


def test_the_second_copy_is_held_only_as_long_as_it_is_needed():
    w = torch.tensor([1.0])
    snapshot = Snapshot([w], None)
    snapshot.set_aside()
    snapshot.release_tentative()
    w += 4
    snapshot.set_aside()
    snapshot.move(0.0)
    snapshot.move(1.0)
    assert w.item() == 5.0


def test_parameters_whose_storage_was_exchanged_are_restored_all_the_same():
    p = torch.nn.Parameter(torch.tensor([1.0]))
    snapshot = Snapshot([p], None)
    p.data = torch.tensor([7.0])
    snapshot.move(0.0)
    assert p.item() == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_distance_agrees_with_the_flat_norm(dtype):
    torch.manual_seed(0)
    left = [torch.randn(n, dtype=dtype) for n in (3, 1, 500)]
    right = [torch.randn(n, dtype=dtype) for n in (3, 1, 500)]
    flat = (torch.cat(left) - torch.cat(right)).norm().item()
    assert norms.distance(left, right) == pytest.approx(flat, rel=1e-5)


def test_distance_of_half_precision_is_taken_in_single():
    left, right = torch.tensor([1.0078125], dtype=torch.bfloat16), torch.tensor([0.00390625], dtype=torch.bfloat16)
    assert norms.distance([left], [right]) == 1.00390625  # not a bfloat16 number


def test_large_and_strided_tensors_go_piece_by_piece(monkeypatch):
    monkeypatch.setattr(norms, "PIECE", 100)
    torch.manual_seed(0)
    left = [
        torch.randn(1001, dtype=torch.float64),
        torch.randn(30, 20, dtype=torch.float64).t(),
        torch.randn(5).double(),
    ]
    right = [torch.randn_like(t) for t in left]
    flat = torch.cat([(a - b).reshape(-1) for a, b in zip(left, right, strict=True)]).norm().item()
    assert norms.distance(left, right) == pytest.approx(flat, rel=1e-12)
    sizes = [sum(t.numel() for t in pieces) for pieces in norms._differences(left[:1], right[:1])]
    assert max(sizes) <= 100
    assert sum(sizes) == 1001


@pytest.mark.parametrize("size", [1 << 15, (1 << 15) + 77, 1 << 18])
def test_large_tensors_are_summed_to_almost_double_precision(size):
    torch.manual_seed(0)
    tensor = 3 + torch.randn(size)
    exact = tensor.double().square().sum().item()
    assert norms.sum_of_squares([tensor, tensor[:10]]).item() == pytest.approx(
        exact + tensor[:10].double().square().sum().item(), rel=1e-7
    )


def test_sums_of_squares_do_not_overflow_single_precision():
    large = torch.tensor([1e18])
    assert norms.sum_of_squares([large] * 1000).item() == pytest.approx(1e39, rel=1e-6)


def test_sums_of_squares_of_mixed_precisions():
    tensors = [torch.full((3,), 2.0, dtype=d) for d in (torch.float32, torch.float64, torch.bfloat16, torch.complex64)]
    tensors.append(torch.ones(1 << 16))
    assert norms.sum_of_squares(tensors).item() == pytest.approx(4 * 12 + (1 << 16), rel=1e-6)


@pytest.mark.parametrize("size", [3, 300_000])
def test_finite_numbers_whose_sum_is_not_are_finite(size):
    assert norms.all_finite([torch.full((size,), 3e38), torch.tensor(3e38)])


@pytest.mark.parametrize("size", [3, 300_000])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_not_finite_is_found(size, value):
    tensors = [torch.ones(2), torch.zeros(size), torch.tensor(1)]
    assert norms.all_finite(tensors)
    tensors[1][size // 2] = value
    assert not norms.all_finite(tensors)
