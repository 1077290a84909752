"""Which rows train and which test: one split for files and for data sets of the registry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cmalight.errors import DataError, check_part, check_seed

Rows = npt.NDArray[np.intp]


def training_count(rows: int, test_share: float) -> int:
    """How many rows train: the test part is rounded up, as Table 2 has it (Ailerons: 13750 rows, P = 10312).

    Raises:
        ValueError: the share is not in [0, 1), or leaves no row for training.
    """
    count = rows - _test_count(rows, test_share)
    if count < 1:
        raise ValueError(f"test_share={test_share} leaves none of {rows} rows for training: make it smaller")
    return count


def _test_count(rows: int, test_share: float) -> int:
    check_part("test_share", test_share)
    return math.ceil(round(rows * test_share, 9))


def permutation(rows: int, seed: int) -> Rows:
    """A random order that is the same on every version of NumPy: the legacy generator is frozen, the new one is not.

    Raises:
        ValueError: the seed is not one.
    """
    check_seed("seed", seed)
    return np.random.RandomState(seed).permutation(rows).astype(np.intp)


def split_rows(
    rows: int, test_share: float, seed: int, labels: npt.NDArray[Any] | None = None, *, source: str = "the table"
) -> tuple[Rows, Rows]:
    """Training and test rows by a seed, each part in random order.

    Args:
        rows: how many there are.
        test_share: of the rows, rounded up.
        seed: what the choice depends on.
        labels: of the rows; each class then gives its share, rounded, and keeps a row for training.
        source: the table, as messages name it.

    Raises:
        DataError: there are too few rows for both parts.
        ValueError: the share or the seed is not one.
    """
    order = permutation(rows, seed)
    if labels is None:
        count = rows - _test_count(rows, test_share)
        training, test = order[:count], order[count:]
    else:
        tested = np.zeros(rows, dtype=np.bool_)
        _, codes = np.unique(np.array([str(label) for label in labels]), return_inverse=True)
        for code in range(codes.max() + 1):
            members = order[codes[order] == code]
            tested[members[: min(round(test_share * len(members)), len(members) - 1)]] = True
        training, test = order[~tested[order]], order[tested[order]]
    if len(training) == 0 or (labels is not None and test_share > 0 and len(test) == 0):
        raise DataError(
            f"{source} has too few rows ({rows}) for a test share of {test_share:g}; "
            "give more, or a test share of 0 for no test"
        )
    return training, test
