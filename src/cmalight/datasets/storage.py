"""Where the file of a data set is, and its values in the cache: read once, checked, then kept as arrays."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import replace
from pathlib import Path

import filelock
import numpy as np
import pooch  # type: ignore[import-untyped]
import requests

from cmalight.datasets.entry import Array, Entry, Raw
from cmalight.errors import DataError
from cmalight.files import cache_folder, write_atomically

_TIMEOUT_SECONDS = 30
_CHUNK = 1 << 20
_NARROW = (np.uint8, np.int16, np.int32, np.float32)
_logger = logging.getLogger("cmalight")


def raw_data(entry: Entry) -> Raw:
    """Return the values of a data set as its source gives them, from the cache if they are there."""
    if not entry.file:
        return _checked(entry, entry.source.read(Path()), entry.name)
    path = locate(entry)
    cached = _load(values_path(entry, path))
    if cached is not None:
        return cached
    path, raw = _downloaded(entry) if path is None else (path, read_file(entry, path))
    arrays = {name: _narrowed(array) for name, array in raw.arrays().items()}
    narrow = replace(raw, **arrays)  # type: ignore[arg-type]
    try:
        _save(values_path(entry, path), narrow)
    except OSError as error:
        _logger.warning("%s could not be cached in %s (%s)", entry.name, cache_folder(), error.strerror)
    return narrow


def read_file(entry: Entry, path: Path) -> Raw:
    """Return the values in the file of a data set, checked; DataError says what to do about a wrong file."""
    if entry.sha256 and not entry.values_sha256 and pooch.file_hash(str(path)) != entry.sha256:
        raise DataError(f"{path} has another sha256 than {entry.file} of {entry.name}; delete it and get it again")
    try:
        raw = entry.source.read(path)
    except Exception as error:  # a damaged file may make a reader raise anything
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise DataError(
            f"{path} cannot be read as {entry.file} of {entry.name} ({reason}): it is damaged, cut short, or another "
            "file or version; delete it and get it again"
        ) from error
    return _checked(entry, raw, f"{path} of {entry.name}")


def where(entry: Entry) -> str:
    """Return where a data set is now: "embedded", "your own", "local file", "cached" or "to download".

    Args:
        entry: What `dataset_info` returned.

    Returns:
        One of these.
    """
    if not entry.file:
        return "embedded" if entry.rows is not None else "your own"
    path = locate(entry)
    if path is not None:
        return "cached" if path.is_relative_to(cache_folder()) else "local file"
    return "cached" if values_path(entry, None).is_file() else "to download"


def locate(entry: Entry) -> Path | None:
    """Return the file of a data set if it is on this machine: in a folder of CMALIGHT_DATA, or in the cache."""
    folders = [Path(part).expanduser() for part in os.environ.get("CMALIGHT_DATA", "").split(os.pathsep) if part]
    places = [folder / name for folder in folders for name in (entry.file, *entry.other_names)]
    return next((path for path in (*places, _download_path(entry)) if path.is_file()), None)


def _download_path(entry: Entry) -> Path:
    return cache_folder() / "files" / entry.name.partition(":")[0] / entry.file


def _downloaded(entry: Entry) -> tuple[Path, Raw]:
    """Try the addresses in turn until one sends the right values; a wrong file is deleted."""
    path = _download_path(entry)
    pooch.get_logger().setLevel(logging.WARNING)
    how = pooch.HTTPDownloader(timeout=_TIMEOUT_SECONDS, chunk_size=_CHUNK)
    failures = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_name(f"{path.name}.lock")):
            for url in entry.urls:
                if not path.is_file():
                    _logger.info("downloading %s from %s", entry.file, url)
                try:
                    pooch.retrieve(url, None, fname=path.name, path=path.parent, downloader=how)
                    return path, read_file(entry, path)
                except requests.RequestException as error:
                    code = getattr(error.response, "status_code", None)
                    said = f"answers {code}" if code else "cannot be reached, or the connection broke"
                    failures.append(f"{url}: {said}")
                except DataError as error:
                    path.unlink(missing_ok=True)
                    failures.append(f"{url} sends a wrong file: {error}")
    except OSError as error:
        raise DataError(f"{path.parent} cannot be written to ({error.strerror}); set CMALIGHT_CACHE") from error
    raise DataError(
        f"{entry.file} of {entry.name} could not be downloaded ({'; '.join(failures)}). Get it from {entry.urls[0]} "
        f"and put it as {entry.file} into a folder named in CMALIGHT_DATA"
    )


def values_path(entry: Entry, path: Path | None) -> Path:
    """Name the cache by the checksum of the values; if that is not known, by the size and time of the file."""
    key = entry.values_sha256 or ""
    if not key and path is not None:
        key = f"{path.resolve()} {path.stat().st_size} {path.stat().st_mtime_ns}"
    mark = hashlib.sha256(f"{entry.source!r} {key}".encode()).hexdigest()[:16]
    return cache_folder() / "values" / f"{entry.name.partition(':')[0]}-{mark}.npz"


def _save(path: Path, raw: Raw) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Array] = {**raw.arrays(), "feature_names": np.array(raw.feature_names, dtype=str)}
    write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def _load(path: Path) -> Raw | None:
    """Return what `_save` wrote; None if there is no such file or it is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:  # compares the checksums
            named = dict(arrays)
        return Raw(feature_names=tuple(map(str, named.pop("feature_names"))), **named)
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged file may make NumPy raise anything
        _logger.warning("the cached values in %s are damaged (%s) and will be read anew", path, error)
        return None


def _narrowed(array: Array) -> Array:
    """Return the same values in the smallest type that holds each of them exactly."""
    with np.errstate(invalid="ignore", over="ignore"):
        for kind in _NARROW:
            if np.array_equal(array[:256].astype(kind), array[:256]) and np.array_equal(array.astype(kind), array):
                return array.astype(kind)
    return array


def _checked(entry: Entry, raw: Raw, place: str) -> Raw:
    """Return what was read if it has the shape and the values it must have."""
    rows, features = len(raw.x), int(np.prod(raw.x.shape[1:]))
    if raw.y.shape != (rows,) or rows == 0:
        raise DataError(f"{place} has {rows} rows and targets of shape {raw.y.shape}; expected one per row")
    if entry.rows not in (None, rows) or entry.features not in (None, features):
        raise DataError(
            f"{place} has {rows} rows of {features} features; expected {entry.rows} of {entry.features}: the file "
            "is another version, or cut short"
        )
    if not all(np.isfinite(array).all() for array in raw.arrays().values()):
        raise DataError(f"{place} has a value that is missing or not a finite number; drop or replace it")
    if entry.values_sha256 not in (None, raw.digest()):
        raise DataError(f"{place} has the right shape but other values than the published ones; get the file again")
    return raw
