"""Files in their publishers' formats: delimited text, KEEL's .dat, a matrix with its targets, CIFAR's binary version.

pandas (3.1 or newer) reads each number as the double nearest to its text, so a checksum of the values is possible.
Nothing is unpacked to disk, and no pickle is opened.
"""

from __future__ import annotations

import csv
import gzip
import tarfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
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
            frame = read_numbers(stream, path, separator=self.separator, header=self.header, text=text)
        absent = [column for column in (self.target, *text) if column not in frame.columns]
        if absent:
            raise DataError(f"{path} has no column {absent[0]!r}: it is another file or another version")
        frame = frame.drop(columns=list(self.drop))
        return encode(frame.dropna() if self.drop_missing else frame, path, target=self.target, one_hot=self.one_hot)


@dataclass(frozen=True)
class Keel:
    """KEEL's .dat: lines with @attribute and @outputs, then after @data comma-separated rows."""

    member: str
    one_hot: tuple[str, ...] = ()

    def read(self, path: Path) -> Raw:
        """Read the table."""
        with members(path, self.member) as (stream,):
            names, target = self._header(stream, path)
            text = tuple(names.index(name) for name in self.one_hot if name in names)
            frame = read_numbers(stream, path, separator=",", text=text)
        if len(frame.columns) != len(names):
            raise DataError(f"{path} announces {len(names)} attributes, but its rows have {len(frame.columns)}")
        return encode(frame.set_axis(names, axis=1), path, target=target, one_hot=self.one_hot)

    def _header(self, stream: IO[bytes], path: Path) -> tuple[list[str], str]:
        names: list[str] = []
        target = ""
        for line in stream:
            keyword, _, rest = line.decode("utf-8", errors="replace").strip().partition(" ")
            if keyword.lower() == "@attribute":
                names.append(rest.split()[0].split("{")[0].split("[")[0].strip("'"))
            elif keyword.lower() in ("@output", "@outputs"):
                target = rest.strip()
            elif keyword.lower() == "@data":
                if target in names and len(set(names)) == len(names):
                    return names, target
                raise DataError(f"{path}: expected different attributes, one of them after @outputs; got {names}")
        raise DataError(f"{path} has no @data line: it is not a KEEL file, or it is cut short")


@dataclass(frozen=True)
class Matrix:
    """Whole numbers separated by blanks in the member `data`, and the target of each row in the member `targets`."""

    data: str
    targets: str

    def read(self, path: Path) -> Raw:
        """Read both members."""
        with members(path, self.data, self.targets) as streams:
            x, y = (read_numbers(one, path, separator=" ", dtype="int16").to_numpy() for one in streams)
        if y.shape != (len(x), 1):
            raise DataError(f"{path}: {self.data} has {len(x)} rows, but {self.targets} has the shape {y.shape}")
        return Raw(x, y[:, 0], feature_names=_numbered(x.shape[1]))


@dataclass(frozen=True)
class Cifar:
    """CIFAR's binary version: for each image `label_bytes` labels, the last of which is taken, then 3072 pixels."""

    train: tuple[str, ...]
    test: str
    classes: int
    label_bytes: int = 1

    def read(self, path: Path) -> Raw:
        """Read the batches."""
        names = (*self.train, self.test)
        with members(path, *names) as streams:
            parts = [self._batch(one.read(), f"{name} in {path}") for name, one in zip(names, streams, strict=True)]
        x, y = (np.concatenate([part[i] for part in parts[:-1]]) for i in (0, 1))
        return Raw(x, y, *parts[-1])

    def _batch(self, data: bytes, place: str) -> tuple[Array, Array]:
        record = self.label_bytes + int(np.prod(_CIFAR_SHAPE))
        if not data or len(data) % record:
            raise DataError(f"{place} has {len(data)} bytes, not a multiple of {record}: it is cut short")
        rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, record)
        labels = rows[:, self.label_bytes - 1]
        if labels.max() >= self.classes:
            raise DataError(f"{place} has the label {labels.max()}; expected 0 to {self.classes - 1}")
        return rows[:, self.label_bytes :].reshape(-1, *_CIFAR_SHAPE), labels


@contextmanager
def members(path: Path, *names: str) -> Iterator[list[IO[bytes]]]:
    """Open members of a zip or tar file by their base names, or one file that is plain or gzipped itself."""
    try:
        with ExitStack() as stack:
            found = _found(path, names, stack)
            missing = [name for name in names if name not in found]
            if missing:
                raise DataError(f"{path} has no {missing[0]}: it is another file or another version")
            yield [found[name] for name in names]
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{path} is damaged or cut short ({error}): delete it and get it again") from error


def _found(path: Path, names: tuple[str, ...], stack: ExitStack) -> dict[str, Any]:
    found: dict[str, Any] = {}
    file = stack.enter_context(path.open("rb"))
    start = file.read(2)
    file.seek(0)
    if start == b"PK":
        archive = stack.enter_context(zipfile.ZipFile(file))
        if damaged := archive.testzip():
            raise DataError(f"{path} is damaged: the checksum of {damaged} is wrong; delete it and get it again")
        for info in archive.infolist():
            base = PurePosixPath(info.filename).name
            if base in names:
                found[base] = stack.enter_context(archive.open(info))
            elif base.removesuffix(".gz") in names:
                packed = stack.enter_context(archive.open(info))
                found[base.removesuffix(".gz")] = stack.enter_context(gzip.GzipFile(fileobj=packed))
    elif start == b"\x1f\x8b" and tarfile.is_tarfile(path):
        tar = stack.enter_context(tarfile.TarFile.gzopen(str(path), fileobj=file))
        for one in tar:
            stream = tar.extractfile(one) if PurePosixPath(one.name).name in names and one.isreg() else None
            if stream is not None:
                found[PurePosixPath(one.name).name] = stream
    elif len(names) == 1:
        found[names[0]] = stack.enter_context(gzip.GzipFile(fileobj=file)) if start == b"\x1f\x8b" else file
    return found


def read_numbers(
    stream: IO[bytes],
    path: Path,
    *,
    separator: str,
    header: bool = False,
    text: tuple[ColumnName, ...] = (),
    dtype: str = "float64",
) -> pd.DataFrame:
    """Read delimited text: the columns in `text` as strings, all others as numbers."""
    try:
        frame = pd.read_csv(
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
    except (ValueError, OverflowError, TypeError) as error:  # pandas' own errors are ValueErrors
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path} is not the table it should be ({reason}): get it again") from error
    return frame


def encode(frame: pd.DataFrame, path: Path, *, target: ColumnName, one_hot: tuple[ColumnName, ...] = ()) -> Raw:
    """Make numbers of a frame: indicator columns for `one_hot`, everything else as it is, the target apart."""
    missing = frame.isna().any(axis=1).to_numpy()
    if missing.any():
        raise DataError(f"{path} lacks a value in row {int(missing.argmax()) + 1} of {len(frame)}: it is damaged")
    if len(frame) == 0 or len(frame.columns) < 2:
        raise DataError(f"{path} has {len(frame)} rows and {len(frame.columns)} columns; expected more")
    blocks: list[Array] = []
    names: list[str] = []
    for place, column in enumerate(frame.columns.drop([target])):
        name = column if isinstance(column, str) else f"x{place}"
        if column in one_hot:
            categories, codes = np.unique(_category_values(frame[column]), return_inverse=True)
            blocks.append((codes[:, np.newaxis] == np.arange(len(categories))).astype(np.float64))
            names.extend(f"{name}={category}" for category in categories)
        else:
            blocks.append(frame[[column]].to_numpy(np.float64))
            names.append(name)
    return Raw(np.hstack(blocks), frame[target].to_numpy(np.float64), feature_names=tuple(names))


def _category_values(column: Any) -> Array:
    """Return numbers if all are numbers, so that 2 comes before 10 and `2 ` equals `2`; words without blanks else."""
    numbers = pd.to_numeric(column, errors="coerce")
    values: Array = column.str.strip().to_numpy(object) if numbers.isna().any() else numbers.to_numpy()
    return values


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"x{i}" for i in range(count))
