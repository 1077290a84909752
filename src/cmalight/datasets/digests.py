"""The sha256 of arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

_BLOCK = 1 << 21  # values


def digest_of(labelled: Iterable[tuple[str, npt.NDArray[Any]]], dtype: str | None = None) -> str:
    """Of labels and values, in order; block by block, so that no large array is copied.

    Args:
        labelled: what goes in before the values of each array, and the array.
        dtype: as which the values go in; None takes them as they are.
    """
    sha = hashlib.sha256()
    for label, array in labelled:
        sha.update(label.encode())
        rows = max(1, _BLOCK // max(1, array[:1].size))
        for start in range(0, len(array), rows):
            sha.update(np.ascontiguousarray(array[start : start + rows], dtype=dtype).data)
    return sha.hexdigest()
