"""From an entry to its arrays: cached ones if they are good, else files, parsed, checked and cached."""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path

from cmalight.datasets import cache
from cmalight.datasets.entry import PART, Entry, Raw
from cmalight.datasets.fetching import cache_folder, files_folder, locate, obtain
from cmalight.errors import DataError

_logger = logging.getLogger("cmalight")


def raw_data(entry: Entry, *, progress: bool | None = None) -> Raw:
    """The arrays of a data set, from wherever they are quickest to be had."""
    if entry.is_embedded:
        return _checked(entry, entry.source.read({}))
    cached = cache.load(cached_path(entry), recipe=_recipe(entry), stamp=_stamp(entry))
    if cached is not None:
        return cached
    raw = _parsed(entry, progress=progress)
    try:
        cache.save(cached_path(entry), raw, recipe=_recipe(entry), stamp=_stamp(entry) or "")
    except OSError as error:
        _logger.warning("%s could not be cached in %s (%s)", entry.name, cache_folder(), error.strerror)
    return raw


def fetch_files(entry: Entry, *, progress: bool | None = None) -> list[Path]:
    """Brings a data set here, makes sure that it is the right one, and returns where it is: its files, or the cache."""
    if entry.is_embedded:
        return []
    raw_data(entry, progress=progress)
    files = [path for file in entry.files if (path := locate(entry, file))]
    return files or [cached_path(entry)]


def where(entry: Entry) -> str:
    """Where a data set is now, in the words of the command's table.

    Args:
        entry: the data set.

    Returns:
        A word or a path.
    """
    if entry.is_embedded:
        return "embedded"
    located = [locate(entry, file) for file in entry.files]
    in_cache = [path is not None and path.is_relative_to(files_folder()) for path in located]
    if all(in_cache) or (None in located and cached_path(entry).is_file()):
        return "cached"
    return "to download" if None in located else "local file"


def cached_path(entry: Entry) -> Path:
    """One file per data set; a user's own carry their folder's mark, since two may share a name."""
    mark = f"-{hashlib.sha256(str(entry.folder.resolve()).encode()).hexdigest()[:12]}" if entry.folder else ""
    name = entry.name.partition(PART)[0]  # a part is taken from the whole
    return cache_folder() / "parsed" / f"{re.sub(r'[^A-Za-z0-9.-]', '_', name)}{mark}.bin"


def _recipe(entry: Entry) -> str:
    files = tuple((file.name, file.urls, file.sha256) for file in entry.files)
    parts = (entry.source, entry.task, entry.rows, entry.features, entry.test_rows, entry.values_sha256, files)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _stamp(entry: Entry) -> str | None:
    """Tells whether the files that are here are those that were parsed; None if they are not all here."""
    stamps = []
    for file in entry.files:
        path = locate(entry, file)
        if path is None:
            return None
        status = path.stat()
        stamps.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return "; ".join(stamps)


def _parsed(entry: Entry, *, progress: bool | None) -> Raw:
    here_before = {file.name for file in entry.files if locate(entry, file)}
    files = obtain(entry, progress=progress)
    try:
        return _checked(entry, entry.source.read(files), files)
    except Exception:
        for name in files.keys() - here_before:
            files[name].unlink(missing_ok=True)
        raise


def _checked(entry: Entry, raw: Raw, files: dict[str, Path] | None = None) -> Raw:
    """What was read, if it has the shape and the values that it must have."""
    read = f"{entry.name}, read from {', '.join(str(path) for path in files.values())}," if files else entry.name
    rows, features = len(raw.x), _width(raw)
    if len(raw.y) != rows or raw.y.ndim != 1:
        raise DataError(f"{read} has {rows} rows of inputs and targets of shape {raw.y.shape}: one per row is needed")
    if entry.rows not in (None, rows):
        raise DataError(f"{read} has {rows} rows instead of {entry.rows}: it is another version, or cut short")
    if entry.features not in (None, features):
        raise DataError(f"{read} has {features} features instead of {entry.features}: it is another version")
    if entry.test_rows and (raw.x_test is None or len(raw.x_test) != entry.test_rows):
        raise DataError(f"{read} lacks its test part of {entry.test_rows} rows")
    if entry.values_sha256 and raw.digest() != entry.values_sha256:
        raise DataError(
            f"{read} has the right shape but other values than the published ones: get it again, or say that you trust "
            "it (`trust`)"
        )
    return raw


def _width(raw: Raw) -> int:
    width = 1
    for size in raw.x.shape[1:]:
        width *= size
    return width
