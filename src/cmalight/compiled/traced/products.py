"""Matrix products as the compiled step takes them: the same numbers by faster calls.

Small products are bound by what a call of the library costs and by its kernels for odd shapes. Each rewriting below is
used where it was measured to be faster (docs/results/speed.md), by shape alone, so that the same run is compiled the
same way everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

# Products with so few columns are taken transposed: the library's kernels are made for long rows.
_FEW_COLUMNS = 16
# Larger products of a batch of matrices are taken one by one.
_LARGE = 350_000


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Inductor's table with the products of this module; NotImplemented leaves a call as it is."""
    from torch._inductor.decomposition import select_decomp_table

    return {
        **select_decomp_table(),
        aten.mm.default: _product,
        aten.addmm.default: _product_and_sum,
        aten.bmm.default: _products,
    }


def _product(left: Tensor, right: Tensor) -> Any:
    if _has_few_columns(left.shape[0], right.shape[1]):
        return aten.mm(right.t(), left.t()).t()
    return NotImplemented


def _product_and_sum(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """The bias by itself becomes one with the activation that follows; addmm would first copy it into every row."""
    if beta != 1 or alpha != 1:
        return NotImplemented
    return aten.mm(left, right) + bias


def _products(left: Tensor, right: Tensor) -> Any:
    count, rows, inner = left.shape
    columns = right.shape[2]
    if columns == 1:
        return (left * right.transpose(1, 2)).sum(2, keepdim=True)
    if inner == 1:
        return left * right
    if _has_few_columns(rows, columns):
        return aten.bmm(right.transpose(1, 2), left.transpose(1, 2)).transpose(1, 2)
    if rows * columns * inner > _LARGE:
        return torch.stack([aten.mm(left[i], right[i]) for i in range(count)])
    return NotImplemented


def _has_few_columns(rows: int, columns: int) -> bool:
    return 1 < columns < _FEW_COLUMNS and rows > columns
