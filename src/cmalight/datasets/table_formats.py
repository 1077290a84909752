"""Tables in their publishers' formats: delimited text, KEEL's .dat, a matrix with its targets in a second file.

pandas reads the numbers, each as the double nearest to its text: the same text gives the same doubles everywhere,
which is what makes a checksum of the values possible.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from cmalight.datasets.archives import members
from cmalight.datasets.entry import Meaning, Raw, library
from cmalight.errors import DataError
from cmalight.files import refuse_larger
from cmalight.tables.delimited import read_frame
from cmalight.tables.encoding import MOST_CATEGORIES, codes, indicators, ordered
from cmalight.tables.table import check_names, number_name, refuse_uncut, unknown_column

ColumnName = str | int
_MISSING = ("", "NA", "?", "<null>")
_LONGEST_HEADER_LINE = 1 << 20
_MOST_HEADER_LINES = 100_000


@dataclass(frozen=True)
class Delimited:
    """Delimited text; columns go by name with a header, by position without.

    Attributes:
        file: its name.
        target: the column to predict.
        member: of the file, where that is an archive.
        separator: between two cells.
        header: whether the first line has names.
        one_hot: columns that become one indicator column for each of their values, in their order, in their place.
        drop: columns that are left out.
        drop_missing: rows with a missing value are left out; otherwise they are an error.
        labels: the target is a class label of any kind; it becomes its rank, from 0.
        quoted: whether cells may stand in quotation marks.
    """

    file: str
    target: ColumnName
    member: str = ""
    separator: str = ","
    header: bool = False
    one_hot: tuple[ColumnName, ...] = ()
    drop: tuple[ColumnName, ...] = ()
    drop_missing: bool = False
    labels: bool = False
    quoted: bool = False

    def __post_init__(self) -> None:
        for key, columns in {"drop": self.drop, "one_hot": self.one_hot}.items():
            if self.target in columns:
                raise ValueError(f"{key} has {self.target!r}, which is the target; take it out of {key}")
        both = next((column for column in self.drop if column in self.one_hot), None)
        if both is not None:
            raise ValueError(f"both drop and one_hot have {both!r}; take it out of one of them")

    def read(self, files: Mapping[str, Path]) -> Raw:
        """The rows, encoded.

        Args:
            files: by the names that the entry has for them.

        Returns:
            What they hold.

        Raises:
            DataError: if they do not hold that.
        """
        path = files[self.file]
        (frame,) = [self._frame(stream, path) for _, stream in members(path, (self.member or self.file,))]
        return self._encoded(frame, path)

    def _frame(self, stream: IO[bytes], path: Path) -> Any:
        if self.header:
            self._check_columns(_first_line(stream, self.separator), path)
        how: dict[str, Any] = {"separator": self.separator, "header": self.header, "quoted": self.quoted}
        try:
            return _frame(stream, path, text=self._text(), **how)
        except DataError:
            self._name_the_odd_cell(path, how)
            raise

    def _check_columns(self, names: list[Any], path: Path) -> None:
        """A name that is not there is a mistake in what describes the table, not in the table."""
        refuse_uncut(path, names, self.separator)
        for column in (self.target, *self.one_hot, *self.drop):
            if names and column not in names:
                raise unknown_column(path, column, names)

    def _name_the_odd_cell(self, path: Path, how: dict[str, Any]) -> None:
        """Looks again, for a word where a number is needed."""
        pandas = library("pandas")
        for _, stream in members(path, (self.member or self.file,)):
            frame = _frame(stream, path, text=(), dtype="str", **how)
            for column in frame.columns.difference(self._text(), sort=False):
                odd = pandas.to_numeric(frame[column], errors="coerce").isna() & frame[column].notna()
                if odd.any():
                    row = int(odd.argmax())
                    raise DataError(
                        f"{path}: column {column!r}, row {row + 1} holds {frame[column][row]!r}, which is no number; "
                        "correct it, or name the column in one_hot or drop"
                    )

    def _text(self) -> tuple[ColumnName, ...]:
        """The columns whose values are names, not numbers; what is dropped may be anything."""
        return self.one_hot + self.drop + ((self.target,) if self.labels else ())

    def _encoded(self, frame: Any, path: Path) -> Raw:
        self._check_columns(list(frame.columns), path)
        frame = frame.drop(columns=list(self.drop))
        return encoded(
            frame, path, target=self.target, one_hot=self.one_hot, drop_missing=self.drop_missing, labels=self.labels
        )


@dataclass(frozen=True)
class Keel:
    """KEEL's .dat: a header with @attribute, @inputs and @outputs lines, then after @data the rows, comma-separated.

    Attributes:
        file: the archive's name.
        member: of it.
        one_hot: inputs that become one indicator column for each of their values.
    """

    file: str
    member: str
    one_hot: tuple[str, ...] = ()

    def read(self, files: Mapping[str, Path]) -> Raw:
        """The rows, encoded.

        Args:
            files: by the names that the entry has for them.

        Returns:
            What they hold.

        Raises:
            DataError: if they do not hold that.
        """
        path = files[self.file]
        (raw,) = [self._table(stream, path) for _, stream in members(path, (self.member,))]
        return raw

    def _table(self, stream: IO[bytes], path: Path) -> Raw:
        names, outputs = self._header(stream, path)
        if len(outputs) != 1 or outputs[0] not in names:
            raise DataError(f"{path} must name one of its attributes after @outputs, it names {outputs}")
        check_names(path, names)
        text = tuple(names.index(name) for name in self.one_hot if name in names)
        frame = _frame(stream, path, separator=",", header=False, text=text, quoted=False)
        if len(frame.columns) != len(names):
            raise DataError(f"{path} announces {len(names)} attributes, its rows have {len(frame.columns)}")
        frame.columns = names
        return encoded(frame, path, target=outputs[0], one_hot=self.one_hot)

    def _header(self, stream: IO[bytes], path: Path) -> tuple[list[str], list[str]]:
        names: list[str] = []
        outputs: list[str] = []
        for _ in range(_MOST_HEADER_LINES):
            line = _text(stream.readline(_LONGEST_HEADER_LINE), path).strip()
            keyword, _, rest = line.partition(" ")
            if keyword.lower() == "@attribute":
                names.append(rest.strip().split(" ")[0].split("{")[0].split("[")[0].strip("'"))
            elif keyword.lower() in ("@output", "@outputs"):
                outputs = [name.strip() for name in rest.split(",")]
            elif keyword.lower() == "@data":
                return names, outputs or names[-1:]
            elif line and not keyword.startswith(("@", "%")):
                break
        raise DataError(f"{path} has no @data line after its header: it is not a KEEL file, or it is cut short")


@dataclass(frozen=True)
class MatrixWithTargets:
    """Whole numbers separated by blanks in `data`, and the target of each row on its line of `targets`."""

    file: str
    data: str
    targets: str

    def read(self, files: Mapping[str, Path]) -> Raw:
        """The rows of both files."""
        path = files[self.file]
        tables = {
            name: _frame(stream, path, separator=" ", header=False, text=(), quoted=False, dtype="int16").to_numpy()
            for name, stream in members(path, (self.data, self.targets))
        }
        x, y = tables[self.data], tables[self.targets]
        if len(x) != len(y) or y.shape[1] != 1:
            raise DataError(f"{path}: {self.data} has {len(x)} rows, {self.targets} has {y.shape[0]} x {y.shape[1]}")
        return Raw(x, y[:, 0])


def encoded(
    frame: Any,
    path: Path,
    *,
    target: ColumnName,
    one_hot: tuple[ColumnName, ...] = (),
    drop_missing: bool = False,
    labels: bool = False,
) -> Raw:
    """Numbers from a frame: indicator columns for `one_hot`, everything else as it is, the target apart."""
    missing = frame.isna().any(axis=1).to_numpy()
    if missing.any() and not drop_missing:
        raise DataError(f"{path} lacks a value in row {int(missing.argmax()) + 1} (of {len(frame)}): it is damaged")
    frame = frame[~missing]
    if len(frame) == 0:
        raise DataError(f"{path} has no complete row")
    if len(frame.columns) < 2:
        raise DataError(f"{path} has a target and nothing to predict it from")
    found = {column: _names(frame[column]) for column in one_hot}
    categories = {column: ordered(names) for column, names in found.items()}
    for column, count in ((column, len(different)) for column, different in categories.items()):
        if count > MOST_CATEGORIES:
            raise DataError(
                f"{path}: one-hot would make {count} columns of {column!r}: drop it, or take it as a number"
            )
    width = len(frame.columns) - 1 - len(one_hot) + sum(len(different) for different in categories.values())
    refuse_larger(f"{path} as {width} columns", len(frame) * width * 8, error=DataError)
    x = np.empty((len(frame), width))
    at = 0
    for column in frame.columns.drop(target):
        different = categories.get(column)
        if different is None:
            x[:, at] = frame[column].to_numpy(np.float64)
        else:
            x[:, at : at + len(different)] = indicators(codes(found[column], different), len(different))
        at += 1 if different is None else len(different)
    classes: list[str] = []
    if labels:
        names = _names(frame[target])
        classes = ordered(names)
        y = codes(names, classes).astype(np.float64)
    else:
        y = frame[target].to_numpy(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError(f"{path} has a value that is not a finite number")
    return Raw(x, y, meaning=_meaning(frame.columns.drop(target), categories, target, classes))


def _meaning(
    columns: Any, categories: Mapping[ColumnName, list[str]], target: ColumnName, classes: list[str]
) -> Meaning:
    """A column without a name, in a file without a header, is called as those of an npz file are."""
    named = [(name if isinstance(name, str) else f"x{place}", name) for place, name in enumerate(columns)]
    described = tuple((shown, tuple(categories.get(name, ()))) for shown, name in named)
    return Meaning(described, target if isinstance(target, str) else "y", tuple(classes))


def _frame(
    stream: IO[bytes],
    path: Path,
    *,
    separator: str,
    header: bool,
    text: tuple[ColumnName, ...],
    quoted: bool,
    dtype: str = "float64",
) -> Any:
    """A pandas frame: columns in `text` as strings, all others as numbers."""
    pandas = library("pandas")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Of columns in `text` alone, which come out as strings in every piece of the file.
            warnings.simplefilter("ignore", pandas.errors.DtypeWarning)
            frame = read_frame(
                stream,
                path,
                separator=separator,
                header=header,
                dtype=defaultdict(lambda: dtype, dict.fromkeys(text, "str")),
                missing=_MISSING,
                quoted=quoted,
            )
    except DataError:
        raise
    except (ValueError, OverflowError, TypeError, Warning, pandas.errors.ParserError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path} is not the table it should be ({reason}): get it again") from error
    if not isinstance(frame.index, pandas.RangeIndex):
        raise DataError(f"{path} has rows with more values than its header has names")
    return frame


def _text(line: bytes, path: Path) -> str:
    if not line:
        raise DataError(f"{path} ends before its rows begin: it is cut short")
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start} of a line)") from error


def _first_line(stream: IO[bytes], separator: str) -> list[str]:
    """The names in a header, without taking it from the stream; none if it is too long to be looked at."""
    line, found, _ = cast("io.BufferedReader", stream).peek(_LONGEST_HEADER_LINE).partition(b"\n")
    if not found:
        return []
    try:
        text = line.decode("utf-8-sig").strip()
        return [name.strip() for row in csv.reader([text], delimiter=separator, skipinitialspace=True) for name in row]
    except (UnicodeDecodeError, csv.Error):  # which the reader will say
        return []


def _names(values: Any) -> list[str]:
    """The cells as categories: numbers in one spelling, if all are numbers."""
    plain = values.astype(str).str.strip()
    numbers = library("pandas").to_numeric(plain, errors="coerce")
    return plain.tolist() if numbers.isna().any() else [number_name(number) for number in numbers]
