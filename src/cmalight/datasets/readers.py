"""Files in their publishers' formats: delimited text, KEEL's .dat, a matrix with its targets, CIFAR's binary version.

pandas (3.1 or newer) reads each number as the double nearest to its text, so a checksum of the values is possible.
Nothing is unpacked to disk, and no pickle is opened. A damaged file makes a reader raise whatever it happens to raise;
`storage` says what to do then.
"""

from __future__ import annotations

import csv
import gzip
import re
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import pandas as pd

from cmalight.datasets.entry import Array, Raw
from cmalight.errors import DataError

ColumnName = str | int
_MISSING = ["", "NA", "?", "<null>"]
_CIFAR_SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class Delimited:
    """Delimited text; columns go by name with a header, by position without.

    Attributes:
        target: Column to predict.
        member: Name of the text file, inside an archive or alone.
        separator: Between two cells; a blank stands for any run of blanks and tabs.
        header: Whether the first line has the names of the columns.
        one_hot: Columns that become one indicator per value, in the order of the values, in place.
        drop: Columns to leave out.
        drop_missing: Leave out rows with a missing value; otherwise a missing value is an error.
    """

    target: ColumnName
    member: str
    separator: str = ","
    header: bool = False
    one_hot: tuple[ColumnName, ...] = ()
    drop: tuple[ColumnName, ...] = ()
    drop_missing: bool = False

    def read(self, path: Path) -> Raw:
        """Read the table."""
        with members(path, self.member) as (stream,):
            text = self.one_hot + self.drop
            frame = read_numbers(stream, separator=self.separator, header=self.header, text=text)
        frame = frame.drop(columns=list(self.drop))
        return _table(frame.dropna() if self.drop_missing else frame, self.target, self.one_hot)


@dataclass(frozen=True)
class Keel:
    """KEEL's .dat: lines with @attribute and @outputs, then after @data comma-separated rows."""

    member: str
    one_hot: tuple[str, ...] = ()

    def read(self, path: Path) -> Raw:
        """Read the table."""
        names: list[ColumnName] = []
        target = ""
        with members(path, self.member) as (stream,):
            for line in stream:
                keyword, _, rest = line.decode().strip().partition(" ")
                if keyword.lower() == "@attribute":
                    names.append(re.split(r"[\s{\[]", rest.strip(), maxsplit=1)[0].strip("'"))
                elif keyword.lower() in ("@output", "@outputs"):
                    target = rest.strip()
                elif keyword.lower() == "@data":
                    break
            frame = read_numbers(stream, separator=",", text=[names.index(name) for name in self.one_hot])
        return _table(frame.set_axis(names, axis=1), target, self.one_hot)


@dataclass(frozen=True)
class Matrix:
    """Whole numbers separated by blanks in the member `data`, and the target of each row in the member `targets`."""

    data: str
    targets: str

    def read(self, path: Path) -> Raw:
        """Read both members."""
        with members(path, self.data, self.targets) as streams:
            x, y = (read_numbers(one, separator=" ", dtype="int16").to_numpy() for one in streams)
        return Raw(x, y[:, 0])


@dataclass(frozen=True)
class Cifar:
    """CIFAR's binary version: for each image `label_bytes` labels, the last of which is taken, then 3072 pixels."""

    train: tuple[str, ...]
    test: str
    label_bytes: int = 1

    def read(self, path: Path) -> Raw:
        """Read the batches."""
        with members(path, *self.train, self.test) as streams:
            parts = [self._batch(one.read()) for one in streams]
        x, y = (np.concatenate([part[i] for part in parts[:-1]]) for i in (0, 1))
        return Raw(x, y, *parts[-1])

    def _batch(self, data: bytes) -> tuple[Array, Array]:
        rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, self.label_bytes + int(np.prod(_CIFAR_SHAPE)))
        return rows[:, self.label_bytes :].reshape(-1, *_CIFAR_SHAPE), rows[:, self.label_bytes - 1]


@contextmanager
def members(path: Path, *names: str) -> Iterator[list[IO[bytes]]]:
    """Open members of a zip or tar file by their base names, or one file that is plain or gzipped itself."""
    with ExitStack() as stack:
        archive: Any
        if zipfile.is_zipfile(path):
            archive = stack.enter_context(zipfile.ZipFile(path))
            inside, opened = archive.namelist(), archive.open
        elif tarfile.is_tarfile(path):
            archive = stack.enter_context(tarfile.open(path))
            inside, opened = archive.getnames(), archive.extractfile
        else:
            with path.open("rb") as file:
                is_gzipped = file.read(2) == b"\x1f\x8b"
            inside, opened = names[:1], lambda _: (gzip.GzipFile if is_gzipped else open)(path, "rb")
        found = {PurePosixPath(name).name: name for name in inside}
        if missing := set(names) - found.keys():
            raise DataError(f"it has no {', '.join(sorted(missing))}")
        yield [stack.enter_context(opened(found[name])) for name in names]


def read_numbers(
    stream: IO[bytes],
    *,
    separator: str,
    header: bool = False,
    text: Collection[ColumnName] = (),
    dtype: str = "float64",
) -> pd.DataFrame:
    """Read delimited text: the columns in `text` as strings, all others as numbers."""
    return pd.read_csv(
        stream,
        sep=r"\s+" if separator == " " else separator,
        header=0 if header else None,
        dtype=defaultdict(lambda: dtype, dict.fromkeys(text, "str")),
        na_values=_MISSING,
        keep_default_na=False,
        quoting=csv.QUOTE_NONE,
        encoding="utf-8-sig",
        skipinitialspace=True,
        index_col=False,
        low_memory=False,  # pieces of a column of text would be guessed apart
    )


def encode(frame: pd.DataFrame, one_hot: Collection[Hashable]) -> tuple[Array, tuple[str, ...]]:
    """Make numbers of a frame: indicator columns for `one_hot`, in place, and everything else as it is; and names."""
    blocks: list[Array] = []
    names: list[str] = []
    for place, column in enumerate(frame.columns):
        name = column if isinstance(column, str) else f"x{place}"
        if column in one_hot:
            categories, codes = np.unique(_category_values(frame[column]), return_inverse=True)
            blocks.append((codes[:, np.newaxis] == np.arange(len(categories))).astype(np.float64))
            names.extend(f"{name}={category}" for category in categories)
        else:
            blocks.append(frame[[column]].to_numpy(np.float64))
            names.append(name)
    return np.hstack(blocks), tuple(names)


def _table(frame: pd.DataFrame, target: Any, one_hot: Collection[ColumnName]) -> Raw:
    y = frame.pop(target).to_numpy(np.float64)
    x, names = encode(frame, one_hot)
    return Raw(x, y, feature_names=names)


def _category_values(column: Any) -> Array:
    """Return numbers if all are numbers, so that 2 comes before 10 and `2 ` equals `2`; words without blanks else."""
    numbers = pd.to_numeric(column, errors="coerce")
    values: Array = column.str.strip().to_numpy(object) if numbers.isna().any() else numbers.to_numpy()
    return values
