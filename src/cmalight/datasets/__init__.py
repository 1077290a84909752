"""The data set registry: the paper's tables, image sets, small embedded ones, generated ones, and the user's own.

    data = load_dataset("bikes")                                  # a DataSplit of float32 tensors
    data = load_dataset("teacher:rows=1000000,features=50")       # generated, nothing to download
    data = load_dataset("my.toml")                                # a [dataset] table, see docs/datasets.md

Files are looked for in the folders of CMALIGHT_DATA, then in the cache (CMALIGHT_CACHE, or the system's place for
caches), then downloaded into it.
"""

from __future__ import annotations

import re
from pathlib import Path

try:
    import numpy  # noqa: F401
except ImportError as missing:
    raise ImportError('data sets need numpy, which is not installed: pip install "cmalight[data]"') from missing

from cmalight.datasets.entries.big_tables import BIG_TABLES
from cmalight.datasets.entries.embedded import GENERATED_NAMES, SHIPPED, generated_entry
from cmalight.datasets.entries.entry import Entry, Raw, RemoteFile, Source
from cmalight.datasets.entries.pictures import PICTURES
from cmalight.datasets.entries.small_tables import SMALL_TABLES
from cmalight.datasets.image_formats import Cifar, Idx
from cmalight.datasets.loading import fetch_files, raw_data, where
from cmalight.datasets.own import own_entry
from cmalight.datasets.splitting import DataSplit, split
from cmalight.datasets.table_formats import Delimited, Keel
from cmalight.errors import DataError, unknown_name

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

_BUILT_IN = (*SMALL_TABLES, *BIG_TABLES, *PICTURES, *SHIPPED)
_DATA_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".data", ".parquet", ".npz", ".zip", ".gz")
_registered: dict[str, Entry] = {}


def load_dataset(name_or_path: str | Path, *, seed: int = 0, test_share: float = 0.25) -> DataSplit:
    """A data set, split and scaled.

    Args:
        name_or_path: a name of `datasets()`, a generated problem with its numbers, or a TOML file.
        seed: of the random split; image sets come with a test part of their own and ignore it.
        test_share: of the rows, for the test part; image sets ignore it, too.

    Returns:
        Tensors for training and testing.

    Raises:
        DataError: if it cannot be had, or is not what it should be.
    """
    entry = dataset_info(name_or_path)
    return split(entry, raw_data(entry), seed=seed, test_share=test_share)


def datasets() -> list[Entry]:
    """Every data set there is a name for: the paper's, images, embedded, generated, and those registered."""
    generated = [entry for name in GENERATED_NAMES if (entry := generated_entry(name))]
    return [*_BUILT_IN, *generated, *_registered.values()]


def dataset_info(name_or_path: str | Path) -> Entry:
    """What is known of a data set; upper and lower case, blanks, dashes and underscores make no difference.

    Args:
        name_or_path: a name of `datasets()`, a generated problem with its numbers, or a TOML file.

    Returns:
        Its entry.

    Raises:
        DataError: if there is none of that name, or the file describes none.
    """
    if isinstance(name_or_path, Path) or Path(name_or_path).suffix.lower() in (".toml", *_DATA_SUFFIXES):
        path = Path(name_or_path)
        if path.suffix.lower() in _DATA_SUFFIXES:
            raise DataError(
                f"{path} is data without a description: write a [dataset] table in TOML, see docs/datasets.md"
            )
        return own_entry(path)
    generated = generated_entry(name_or_path)
    if generated is not None:
        return generated
    known = {_squashed(entry.name): entry for entry in datasets()}
    found = known.get(_squashed(name_or_path))
    if found is None:
        raise DataError(unknown_name("data set", name_or_path, [entry.name for entry in known.values()]))
    return found


def fetch(name_or_path: str | Path, *, progress: bool | None = None) -> list[Path]:
    """Makes sure that a data set is here, complete and parsed.

    Args:
        name_or_path: as in `load_dataset`.
        progress: a bar on stderr; by default if that is a terminal.

    Returns:
        Where its files are; nothing if it is embedded.

    Raises:
        DataError: if it cannot be had, or is not what it should be.
    """
    return fetch_files(dataset_info(name_or_path), progress=progress)


def register(entry: Entry) -> Entry:
    """Adds a data set of one's own under its name, for this process; registering it again replaces it.

    Args:
        entry: the data set.

    Returns:
        The entry.

    Raises:
        ValueError: if the name is that of a data set that comes with the package.
    """
    key = _squashed(entry.name)
    if not key or key in {_squashed(known) for known in (*(one.name for one in _BUILT_IN), *GENERATED_NAMES)}:
        raise ValueError(f"{entry.name!r} is the name of a data set that comes with the package: choose another")
    _registered[key] = entry
    return entry


def _squashed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
