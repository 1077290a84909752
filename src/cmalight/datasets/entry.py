"""What the registry knows of a data set, and the small types its parts hand to each other."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from cmalight.errors import needed
from cmalight.tables.splitting import training_count
from cmalight.tables.targets import Task

Array = npt.NDArray[Any]
Group = Literal["small", "big", "images", "embedded", "generated", "own"]

PAPER_TEST_SHARE = 0.25
_BLOCK = 1 << 21  # values that are digested at once
PART = ":rows="  # between the name of a data set and how many of its rows are taken


def library(name: str) -> Any:
    """An optional library, imported now that it is needed."""
    with needed(f"data sets need {name}, which is not installed", "data"):
        return importlib.import_module(name)


@dataclass(frozen=True)
class RemoteFile:
    """A file as its publisher distributes it.

    Attributes:
        name: what it is called in a data folder and in the cache.
        urls: the publisher's address first, then mirrors; the container (zip, gz, tar, plain) may differ between them.
        sha256: every digest known to be good; empty where none could be established.
        size: in bytes, where it is known.
        other_names: further names under which a file put there by hand is found.
    """

    name: str
    urls: tuple[str, ...] = ()
    sha256: tuple[str, ...] = ()
    size: int | None = None
    other_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Meaning:
    """What the numbers of a table stand for, so that rows of other files can be made into such numbers.

    Args:
        columns: in the order of the inputs, a name and its categories, one input for each; a number has none.
        target: its name.
        classes: their names, where the target is one of them.
    """

    columns: tuple[tuple[str, tuple[str, ...]], ...]
    target: str
    classes: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many inputs there are."""
        return sum(max(1, len(categories)) for _, categories in self.columns)


@dataclass(frozen=True)
class Raw:
    """What a source reads: rows of features (or NCHW pixels), one target per row, a test part if the publisher cut one.

    Attributes:
        x: the inputs.
        y: the targets: numbers for regression, labels from 0 for classification.
        x_test: inputs of the publisher's own test part.
        y_test: its targets.
        meaning: what columns and classes are called; None where they have no names.
    """

    x: Array
    y: Array
    x_test: Array | None = None
    y_test: Array | None = None
    meaning: Meaning | None = None

    def arrays(self) -> dict[str, Array]:
        """By name: those that are there.

        Returns:
            The arrays.
        """
        named = {"x": self.x, "y": self.y, "x_test": self.x_test, "y_test": self.y_test}
        return {name: array for name, array in named.items() if array is not None}

    def digest(self) -> str:
        """The sha256 of the values as little-endian doubles, whatever type, archive or line ends they came in.

        Returns:
            64 hexadecimal digits.
        """
        return digest_of(((f"{name}{array.shape}", array) for name, array in self.arrays().items()), dtype="<f8")


class Source(Protocol):
    """Reads a data set from its files (by `RemoteFile.name`); its repr stands for what it does, in the cache's key."""

    def read(self, files: Mapping[str, Path]) -> Raw:
        """Read the files of a data set.

        Args:
            files: their paths by name.

        Returns:
            What is in them.
        """


@dataclass(frozen=True)
class Entry:
    """A data set: where it comes from, how it is read, and what must come out.

    Attributes:
        name: by which it is found.
        task: "regression" or "classification".
        source: reads its files.
        title: in words.
        group: of the registry's list.
        rows: that reading must give; None where it is not known beforehand.
        features: that reading must give; None where it is not known beforehand.
        classes: how many there are.
        test_rows: the size of the publisher's own test part; 0 where the rows are split by us.
        image: channels, height and width.
        files: that it is read from; none where it is embedded.
        values_sha256: `Raw.digest` of the right values.
        encoding: what was done to columns, in words.
        licence: of the data.
        citation: whom to cite.
        homepage: where it is described.
        folder: where the files are looked for first (a user's own data set).
        part: only so many of the rows for training, and at most as many for testing; None for all.
    """

    name: str
    task: Task
    source: Source
    title: str = ""
    group: Group = "own"
    rows: int | None = None
    features: int | None = None
    classes: int | None = None
    test_rows: int = 0
    image: tuple[int, int, int] | None = None
    files: tuple[RemoteFile, ...] = ()
    values_sha256: str | None = None
    encoding: str = ""
    licence: str = ""
    citation: str = ""
    homepage: str = ""
    folder: Path | None = field(default=None, compare=False)
    part: int | None = None

    def first(self, rows: int) -> Entry:
        """A part of the data set: the first rows of its training part, and of its test part.

        Args:
            rows: how many at most.

        Returns:
            An entry of the same files, with a name that says so.
        """
        return replace(self, name=f"{self.name}{PART}{rows}", part=rows)

    def trusted(self) -> Entry:
        """The same data set without known checksums: whatever file has the right rows and columns is taken.

        Returns:
            Another entry; what is cached of the one is never taken for the other.
        """
        return replace(self, values_sha256=None, files=tuple(replace(file, sha256=()) for file in self.files))

    @property
    def d(self) -> int | None:
        """The paper's d, which counts the constant 1 beside the features; for images the number of pixel values."""
        if self.features is None or self.image is not None:
            return self.features
        return self.features + 1

    @property
    def training_rows(self) -> int | None:
        """The rows left for training by the paper's split, its P."""
        if self.rows is None:
            return None
        rows = self.rows if self.test_rows else training_count(self.rows, PAPER_TEST_SHARE)
        return rows if self.part is None else min(rows, self.part)

    @property
    def is_embedded(self) -> bool:
        """Whether it needs no files."""
        return not self.files


def digest_of(labelled: Iterable[tuple[str, Array]], dtype: str | None = None) -> str:
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
