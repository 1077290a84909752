"""What is known of a data set before it is read, what reading gives, and the checksum of values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from cmalight.errors import check_part

Array = npt.NDArray[Any]
Task = Literal["regression", "classification"]

PAPER_TEST_SHARE = 0.25
_BLOCK = 1 << 21  # values per block: a large array is never copied as a whole


@dataclass(frozen=True)
class Raw:
    """Values as they were read: a target for each row, and the publisher's own test part if there is one.

    Attributes:
        x: Rows of features, or NCHW pixels from 0 to 255.
        y: Numbers for regression, labels from 0 for classification.
        x_test: Inputs of the publisher's own test part.
        y_test: Targets of the publisher's own test part.
        feature_names: One name per column of `x`; empty if columns have no names.
        class_names: One name per class; empty for regression.
    """

    x: Array
    y: Array
    x_test: Array | None = None
    y_test: Array | None = None
    feature_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that are there by name."""
        named = {"x": self.x, "y": self.y, "x_test": self.x_test, "y_test": self.y_test}
        return {name: array for name, array in named.items() if array is not None}

    def digest(self) -> str:
        """Return the sha256 of the values as little-endian doubles: independent of type, archive and line ends."""
        return digest_of(((f"{name}{array.shape}", array) for name, array in self.arrays().items()), dtype="<f8")


class Source(Protocol):
    """Reads a data set. Sources of files are frozen dataclasses: their repr is part of the cache's key."""

    def read(self, path: Path) -> Raw:
        """Read the file at `path`; a source that needs no file ignores it."""


@dataclass(frozen=True)
class Entry:
    """A data set: where it comes from, how it is read, and what must come out.

    Attributes:
        name: By which it is found.
        task: "regression" or "classification"; None if only reading tells.
        source: Reads it.
        title: What it is, in one line.
        rows: Number of rows, of the training part if the publisher has split it; None if only reading tells.
        features: Number of columns or pixel values; None if only reading tells.
        classes: Number of classes; None for regression, and if only reading tells.
        test_rows: Size of the publisher's own test part; 0 if `load_dataset` splits the rows.
        image: Channels, height and width; None for tables.
        file: Name of its file in a data folder and in the cache; empty if it needs none.
        other_names: Further names under which its file is found in a data folder.
        urls: Where its file is downloaded from: the publisher first, then mirrors.
        sha256: Of the file, checked if no checksum of the values is known.
        values_sha256: `Raw.digest` of the right values.
        encoding: What happens to the columns, in words.
        licence: Of the data.
        citation: Whom to cite.
        homepage: Where the data set is described.
        group: Group of its problems in the test-bed's report: "small" or "big" for the paper's.
        part: Use only that many rows of each part; None for all.
    """

    name: str
    task: Task | None
    source: Source
    title: str = ""
    rows: int | None = None
    features: int | None = None
    classes: int | None = None
    test_rows: int = 0
    image: tuple[int, int, int] | None = None
    file: str = ""
    other_names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    sha256: str | None = None
    values_sha256: str | None = None
    encoding: str = ""
    licence: str = ""
    citation: str = ""
    homepage: str = ""
    group: str = ""
    part: int | None = None

    @property
    def d(self) -> int | None:
        """The paper's d: the features and the constant 1; for images the number of pixel values."""
        return self.features if self.features is None or self.image else self.features + 1

    @property
    def training_rows(self) -> int | None:
        """The paper's P: the rows that the default split leaves for training."""
        if self.rows is None:
            return None
        rows = self.rows if self.test_rows else training_count(self.rows, PAPER_TEST_SHARE)
        return rows if self.part is None else min(rows, self.part)


def training_count(rows: int, test_fraction: float) -> int:
    """Return how many rows train; the test part is rounded up, as in the paper (Ailerons: 13750 rows, P = 10312)."""
    check_part("test_fraction", test_fraction)
    count = rows - math.ceil(round(rows * test_fraction, 9))
    if count < 1:
        raise ValueError(f"test_fraction={test_fraction} leaves none of {rows} rows for training; make it smaller")
    return count


def digest_of(labelled: Iterable[tuple[str, Array]], dtype: str | None = None) -> str:
    """Return the sha256 of labels and values in order.

    Args:
        labelled: Pairs of a label, which goes in before the values, and an array.
        dtype: Convert values to this type first; None takes them as they are.
    """
    sha = hashlib.sha256()
    for label, array in labelled:
        sha.update(label.encode())
        rows = max(1, _BLOCK // max(1, array[:1].size))
        for start in range(0, len(array), rows):
            sha.update(np.ascontiguousarray(array[start : start + rows], dtype=dtype).data)
    return sha.hexdigest()
