"""The data set registry: the paper's tables, image sets, small embedded ones, generated ones, and the user's own.

    data = load_dataset("bikes")                                  # a DataSplit of float32 tensors
    data = load_dataset("cifar10:rows=4000")                      # the first so many rows of each of its parts
    data = load_dataset("teacher:rows=1000000,features=50")       # generated, nothing to download
    data = load_dataset("my.toml")                                # a [dataset] table, see docs/guides/datasets.md

Files are looked for in the folders of CMALIGHT_DATA, then in the cache (CMALIGHT_CACHE, or the system's place for
caches), then downloaded into it.
"""

from __future__ import annotations

import re
from pathlib import Path

from cmalight.errors import DataError, needed, unknown_name

with needed("data sets need numpy, which is not installed", "data"):
    import numpy  # noqa: F401

from cmalight.datasets.built_in import built_in
from cmalight.datasets.data_split import DataSplit, split
from cmalight.datasets.embedded import GENERATED_NAMES, generated_entry
from cmalight.datasets.entry import PART, Entry, Raw, RemoteFile, Source
from cmalight.datasets.image_formats import Cifar, Idx
from cmalight.datasets.loading import fetch_files, raw_data, where
from cmalight.datasets.own import own_entry
from cmalight.datasets.table_formats import Delimited, Keel

__all__ = [
    "Cifar",
    "DataError",
    "DataSplit",
    "Delimited",
    "Entry",
    "Idx",
    "Keel",
    "Raw",
    "RemoteFile",
    "Source",
    "dataset_info",
    "datasets",
    "fetch",
    "load_dataset",
    "register",
    "where",
]

_BUILT_IN = built_in()
_DATA_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".data", ".parquet", ".npz", ".zip", ".gz")
_registered: dict[str, Entry] = {}


def load_dataset(
    name_or_path: str | Path, *, seed: int = 0, test_share: float = 0.25, trust: bool = False
) -> DataSplit:
    """A data set, split and scaled.

    Args:
        name_or_path: a name of `datasets()`, a generated problem with its numbers, `NAME:rows=N`, or a TOML file.
        seed: of the random split; image sets come with a test part of their own and ignore it.
        test_share: of the rows, for the test part; image sets ignore it, too.
        trust: take the file that is there, whatever its checksum; rows and columns must still be right.

    Returns:
        Tensors for training and testing.

    Raises:
        DataError: if it cannot be had, or is not what it should be.

    Example:
        >>> from cmalight.datasets import load_dataset
        >>> data = load_dataset("diabetes")
        >>> data.task, data.x_train.shape, data.y_test.shape
        ('regression', torch.Size([331, 10]), torch.Size([111, 1]))
    """
    entry = dataset_info(name_or_path, trust=trust)
    return split(entry, raw_data(entry), seed=seed, test_share=test_share)


def datasets() -> list[Entry]:
    """Every data set there is a name for: the paper's, images, embedded, generated, and those registered.

    Returns:
        Their entries.
    """
    generated = [entry for name in GENERATED_NAMES if (entry := generated_entry(name))]
    return [*_BUILT_IN, *generated, *_registered.values()]


def dataset_info(name_or_path: str | Path, *, trust: bool = False) -> Entry:
    """What is known of a data set; upper and lower case, blanks, dashes and underscores make no difference.

    Args:
        name_or_path: a name of `datasets()`, a generated problem with its numbers, `NAME:rows=N`, or a TOML file.
        trust: leave out the checksums that its files and values must have.

    Returns:
        Its entry.

    Raises:
        DataError: if there is none of that name, or the file describes none.
    """
    entry = _found(name_or_path)
    return entry.trusted() if trust else entry


def _found(name_or_path: str | Path) -> Entry:
    if isinstance(name_or_path, Path) or Path(name_or_path).suffix.lower() in (".toml", *_DATA_SUFFIXES):
        path = Path(name_or_path)
        if path.suffix.lower() in _DATA_SUFFIXES:
            raise DataError(
                f"{path} is data without a description: write a [dataset] table in TOML, see docs/guides/datasets.md"
            )
        return own_entry(path)
    generated = generated_entry(name_or_path)
    if generated is not None:
        return generated
    whole, is_part, rows = str(name_or_path).partition(PART)
    if is_part:
        if not (rows.isascii() and rows.isdecimal() and int(rows)):
            raise DataError(f"Invalid number of rows in {name_or_path!r}: expected a whole number >= 1 after {PART!r}")
        return _found(whole).first(int(rows))
    known = {_squashed(entry.name): entry for entry in datasets()}
    found = known.get(_squashed(name_or_path))
    if found is None:
        raise DataError(unknown_name("data set", name_or_path, [entry.name for entry in known.values()]))
    return found


def fetch(name_or_path: str | Path, *, progress: bool | None = None, trust: bool = False) -> list[Path]:
    """Makes sure that a data set is here, complete and parsed.

    Args:
        name_or_path: as in `load_dataset`.
        progress: a bar on stderr; by default if that is a terminal.
        trust: as in `load_dataset`.

    Returns:
        Where its files are; nothing if it is embedded.

    Raises:
        DataError: if it cannot be had, or is not what it should be.
    """
    return fetch_files(dataset_info(name_or_path, trust=trust), progress=progress)


def register(entry: Entry) -> Entry:
    """Adds a data set of your own under its name, for this process; registering it again replaces it.

    Args:
        entry: the data set.

    Returns:
        The entry.

    Raises:
        ValueError: if the name is that of a data set that comes with the package.

    Example:
        >>> import numpy as np
        >>> from cmalight.datasets import Entry, Raw, load_dataset, register
        >>> class Sine:
        ...     def read(self, files):
        ...         x = np.linspace(0, 6, 1000)
        ...         return Raw(x[:, np.newaxis], np.sin(x))  # rows of features, one target per row
        >>> entry = register(Entry(name="sine", task="regression", source=Sine()))
        >>> len(load_dataset("sine").x_train)
        750
    """
    key = _squashed(entry.name)
    if not key or key in {_squashed(known) for known in (*(one.name for one in _BUILT_IN), *GENERATED_NAMES)}:
        raise ValueError(f"{entry.name!r} is the name of a data set that comes with the package: choose another")
    _registered[key] = entry
    return entry


def _squashed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
