"""Problems made from a seed: nothing to download, any size, and the answer is known.

The same arguments give the same numbers in every process, on the same versions of torch and NumPy. Rows are filled
block by block, so that millions of rows need hardly more memory than the result.

Sums are added column by column in double precision, and NumPy gives the functions: torch's products and tanh may differ
in the last digit from one process to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from cmalight.errors import check_least, check_unit_interval, check_whole

_BLOCK = 65_536


def teacher_network(
    rows: int, features: int, *, hidden: int = 20, noise: float = 0.01, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return inputs, and a column of the outputs of a random network with one hidden layer of tanh units.

    Args:
        rows: Number of rows.
        features: Number of columns.
        hidden: Number of hidden units.
        noise: Standard deviation of the noise added to the outputs, whose variance is about one.
        seed: Of the weights and the rows.
    """
    check_whole("hidden", hidden, least=1)
    check_least("noise", noise, 0)
    generator = _generator(rows, features, seed)
    inner = torch.randn(features, hidden, generator=generator) / math.sqrt(features)
    bias = torch.randn(hidden, generator=generator)
    outer = torch.randn(hidden, 1, generator=generator) / math.sqrt(hidden)

    def answer(x: Tensor) -> Tensor:
        y = _product(torch.from_numpy(np.tanh((_product(x, inner) + bias).numpy())), outer)
        return (y + noise * torch.randn(y.shape, generator=generator)).float()

    return _rows(rows, features, generator, answer)


def least_squares(
    rows: int, features: int, *, noise: float = 0.1, condition: float = 10.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return inputs, and a column of targets that a linear model gives.

    Args:
        rows: Number of rows.
        features: Number of columns.
        noise: Standard deviation of the noise added to the targets.
        condition: The spreads of the columns go from 1 down to 1 / condition; its square is about the condition number
            of the Hessian.
        seed: Of the weights and the rows.
    """
    check_least("noise", noise, 0)
    check_least("condition", condition, 1)
    generator = _generator(rows, features, seed)
    weights = torch.randn(features, 1, generator=generator)
    spread = torch.logspace(0.0, -math.log10(condition), features)

    def answer(x: Tensor) -> Tensor:
        y = _product(x, weights)
        return (y + noise * torch.randn(y.shape, generator=generator)).float()

    return _rows(rows, features, generator, answer, spread)


def logistic(rows: int, features: int, *, noise: float = 0.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return inputs, and int64 labels 0 or 1 drawn from a logistic model.

    Args:
        rows: Number of rows.
        features: Number of columns.
        noise: Fraction of the labels that are drawn at random.
        seed: Of the weights and the rows.
    """
    check_unit_interval("noise", noise)
    generator = _generator(rows, features, seed)
    weights = 3.0 * torch.randn(features, 1, generator=generator) / math.sqrt(features)

    def answer(x: Tensor) -> Tensor:
        probability = torch.from_numpy(1.0 / (1.0 + np.exp(-_product(x, weights).numpy()))).squeeze(1)
        drawn = torch.rand(probability.shape, generator=generator) < probability
        blind = torch.rand(probability.shape, generator=generator) < noise
        coin = torch.rand(probability.shape, generator=generator) < 0.5
        return torch.where(blind, coin, drawn).long()

    return _rows(rows, features, generator, answer)


def _rows(
    rows: int, features: int, generator: torch.Generator, answer: Callable[[Tensor], Tensor], spread: Tensor | float = 1
) -> tuple[Tensor, Tensor]:
    """Inputs of this spread, and their answers."""
    x = torch.empty(rows, features)
    answers = []
    for block in torch.split(x, _BLOCK):
        block.copy_(spread * torch.randn(block.shape, generator=generator))
        answers.append(answer(block))
    return x, torch.cat(answers)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """A product in double precision whose terms are added in the same order every time."""
    result = torch.zeros(len(left), right.shape[1], dtype=torch.float64)
    for column, row in zip(left.double().T, right.double(), strict=True):
        result += column[:, None] * row
    return result


def _generator(rows: int, features: int, seed: int) -> torch.Generator:
    check_whole("rows", rows, least=1)
    check_whole("features", features, least=1)
    check_whole("seed", seed)
    return torch.Generator().manual_seed(seed)
