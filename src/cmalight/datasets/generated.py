"""Problems made from a seed: nothing to download, any size, and the answer is known.

Each function fills its tables block by block, so that beside the result only one block is in memory:
millions of rows are as easy as a hundred. The same arguments give the same numbers on the same version of torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from cmalight.errors import check_least, check_share, check_whole

_BLOCK = 65_536


def teacher_network(
    rows: int, features: int, *, hidden: int = 20, noise: float = 0.01, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Regression on the answers of a random network with one hidden layer of `hidden` tanh units.

    The answers have a variance of about one, and `noise` is the standard deviation of what is added to them.
    """
    _check(rows=rows, features=features, hidden=hidden)
    check_least("noise", noise, 0)
    generator = _seeded(seed)
    inner = torch.randn(features, hidden, generator=generator) / math.sqrt(features)
    bias = torch.randn(hidden, generator=generator)
    outer = torch.randn(hidden, 1, generator=generator) / math.sqrt(hidden)
    x, y = torch.empty(rows, features), torch.empty(rows, 1)
    for block in _blocks(rows):
        x[block] = torch.randn(x[block].shape, generator=generator)
        answer = torch.tanh(x[block] @ inner + bias) @ outer
        y[block] = answer + noise * torch.randn(answer.shape, generator=generator)
    return x, y


def least_squares(
    rows: int, features: int, *, noise: float = 0.1, condition: float = 10.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Linear regression with known weights; the columns' spreads go from 1 down to 1 / `condition`.

    With independent columns that makes `condition` squared about the condition number of the Hessian.
    """
    _check(rows=rows, features=features)
    check_least("noise", noise, 0)
    check_least("condition", condition, 1)
    generator = _seeded(seed)
    weights = torch.randn(features, 1, generator=generator)
    spread = torch.logspace(0.0, -math.log10(condition), features)
    x, y = torch.empty(rows, features), torch.empty(rows, 1)
    for block in _blocks(rows):
        x[block] = spread * torch.randn(x[block].shape, generator=generator)
        answer = x[block] @ weights
        y[block] = answer + noise * torch.randn(answer.shape, generator=generator)
    return x, y


def logistic(rows: int, features: int, *, noise: float = 0.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two classes drawn from a logistic model with known weights; `noise` is the share of labels drawn blindly.

    The labels are int64, 0 or 1, one per row.
    """
    _check(rows=rows, features=features)
    check_share("noise", noise)
    generator = _seeded(seed)
    weights = 3.0 * torch.randn(features, generator=generator) / math.sqrt(features)
    x, y = torch.empty(rows, features), torch.empty(rows, dtype=torch.int64)
    for block in _blocks(rows):
        x[block] = torch.randn(x[block].shape, generator=generator)
        probability = torch.sigmoid(x[block] @ weights)
        drawn = torch.rand(probability.shape, generator=generator) < probability
        blind = torch.rand(probability.shape, generator=generator) < noise
        coin = torch.rand(probability.shape, generator=generator) < 0.5
        y[block] = torch.where(blind, coin, drawn).long()
    return x, y


def _blocks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, _BLOCK):
        yield slice(start, min(start + _BLOCK, rows))


def _seeded(seed: int) -> torch.Generator:
    check_whole("seed", seed)
    return torch.Generator().manual_seed(seed)


def _check(**counts: int) -> None:
    for name, count in counts.items():
        check_whole(name, count, least=1)
