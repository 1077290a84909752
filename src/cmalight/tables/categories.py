"""Categories of a column: their order, their codes, one column of numbers for each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

MOST_CATEGORIES = 1000


def ordered(categories: Iterable[str]) -> list[str]:
    """The different ones: by size if all are numbers, by the alphabet otherwise."""
    different = sorted(set(categories))
    try:
        sizes = [float(category) for category in different]
    except ValueError:
        return different
    if any(math.isnan(size) for size in sizes):
        return different
    return [category for _, category in sorted(zip(sizes, different, strict=True))]


def codes(cells: Iterable[str | None], categories: Sequence[str]) -> npt.NDArray[np.intp]:
    """The place of each cell among the categories, -1 for none of them."""
    place = {category: index for index, category in enumerate(categories)}
    return np.array([-1 if cell is None else place.get(cell, -1) for cell in cells], dtype=np.intp)


def indicators(codes: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.float64]:
    """One column for each of `count` categories, 1 where a row has it and 0 elsewhere."""
    return np.asarray(codes[:, np.newaxis] == np.arange(count), dtype=np.float64)
