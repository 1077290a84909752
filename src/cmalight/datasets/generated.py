"""Problems made from a seed: nothing to download, any size, and the answer is known.

The same arguments give the same numbers in every process, on the same versions of torch and NumPy. Rows are filled
block by block, so that millions of rows need hardly more memory than the result.

Sums are added column by column in double precision, and NumPy gives the functions: torch's products and tanh may differ
in the last digit from one process to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from cmalight.errors import check_least, check_share, check_whole

_BLOCK = 65_536


def teacher_network(
    rows: int, features: int, *, hidden: int = 20, noise: float = 0.01, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Make a regression problem from the outputs of a random network with one hidden layer of tanh units.

    Args:
        rows: Number of rows.
        features: Number of columns.
        hidden: Number of hidden units.
        noise: Standard deviation of the noise added to the outputs, whose variance is about one.
        seed: Of the weights and the rows.

    Returns:
        Inputs, and a column of targets.
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
        answer = _product(torch.from_numpy(np.tanh((_product(x[block], inner) + bias).numpy())), outer)
        y[block] = answer + noise * torch.randn(answer.shape, generator=generator)
    return x, y


def least_squares(
    rows: int, features: int, *, noise: float = 0.1, condition: float = 10.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Make a linear regression with known weights.

    Args:
        rows: Number of rows.
        features: Number of columns.
        noise: Standard deviation of the noise added to the targets.
        condition: The spreads of the columns go from 1 down to 1 / condition; its square is about the condition number
            of the Hessian.
        seed: Of the weights and the rows.

    Returns:
        Inputs, and a column of targets.
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
        answer = _product(x[block], weights)
        y[block] = answer + noise * torch.randn(answer.shape, generator=generator)
    return x, y


def logistic(rows: int, features: int, *, noise: float = 0.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw two classes from a logistic model with known weights.

    Args:
        rows: Number of rows.
        features: Number of columns.
        noise: Share of the labels that are drawn at random.
        seed: Of the weights and the rows.

    Returns:
        Inputs, and int64 labels 0 or 1.
    """
    _check(rows=rows, features=features)
    check_share("noise", noise)
    generator = _seeded(seed)
    weights = 3.0 * torch.randn(features, 1, generator=generator) / math.sqrt(features)
    x, y = torch.empty(rows, features), torch.empty(rows, dtype=torch.int64)
    for block in _blocks(rows):
        x[block] = torch.randn(x[block].shape, generator=generator)
        probability = torch.from_numpy(1.0 / (1.0 + np.exp(-_product(x[block], weights).numpy()))).squeeze(1)
        drawn = torch.rand(probability.shape, generator=generator) < probability
        blind = torch.rand(probability.shape, generator=generator) < noise
        coin = torch.rand(probability.shape, generator=generator) < 0.5
        y[block] = torch.where(blind, coin, drawn).long()
    return x, y


def _product(left: Tensor, right: Tensor) -> Tensor:
    """A product in double precision whose terms are added in the same order every time."""
    result = torch.zeros(len(left), right.shape[1], dtype=torch.float64)
    for column, row in zip(left.double().T, right.double(), strict=True):
        result += column[:, None] * row
    return result


def _blocks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, _BLOCK):
        yield slice(start, min(start + _BLOCK, rows))


def _seeded(seed: int) -> torch.Generator:
    check_whole("seed", seed)
    return torch.Generator().manual_seed(seed)


def _check(**counts: int) -> None:
    for name, count in counts.items():
        check_whole(name, count, least=1)
