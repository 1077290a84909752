"""Parsed data on disk: one file per data set, memory-mapped when it is loaded, never trusted without its checksums.

Layout: 8 bytes of magic, the header's length in 8 bytes, the header (JSON), its sha256 in 32 bytes, then the arrays,
each at a multiple of 64 bytes. The header has the format's version, how and from what the data was parsed, and for
each array its name, type, shape and sha256. Arrays are plain numbers: nothing in the file could be executed.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np

from cmalight.datasets.entry import Array, Meaning, Raw, digest_of
from cmalight.errors import DataError
from cmalight.files import remove_abandoned, whole_file

VERSION = 2
_MAGIC = b"CMALDATA"
_ALIGNMENT = 64
_LONGEST_HEADER = 1 << 24
_TYPES = ("uint8", "int16", "int32", "int64", "float32", "float64")
_logger = logging.getLogger("cmalight")


def save(path: Path, raw: Raw, *, recipe: str, stamp: str) -> None:
    """Writes `raw` atomically: other processes see the old file, or the whole new one.

    Args:
        path: of the file; its folder is made.
        raw: the arrays.
        recipe: says how the data was parsed.
        stamp: says which files it was parsed from.
    """
    arrays = {name: narrowed(array) for name, array in raw.arrays().items()}
    described = [
        {"name": name, "type": array.dtype.name, "shape": list(array.shape), "sha256": digest_of([("", array)])}
        for name, array in arrays.items()
    ]
    meaning = None if raw.meaning is None else asdict(raw.meaning)
    content = {"version": VERSION, "recipe": recipe, "stamp": stamp, "arrays": described, "meaning": meaning}
    header = json.dumps(content).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    with whole_file(path) as file:
        file.write(_MAGIC + len(header).to_bytes(8, "little") + header + hashlib.sha256(header).digest())
        for array in arrays.values():
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(_bytes(array))


def load(path: Path, *, recipe: str, stamp: str | None) -> Raw | None:
    """The arrays, mapped into memory; None if there is no file, or one that is old, made otherwise, or damaged.

    A `stamp` of None takes what was parsed from any files: they need not be here any more.
    """
    try:
        with path.open("rb") as file:
            header = _header(file)
            if header["version"] != VERSION or header["recipe"] != recipe or stamp not in (None, header["stamp"]):
                return None
            offset = file.tell()
        arrays: dict[str, Array] = {}
        for described in header["arrays"]:
            offset += -offset % _ALIGNMENT
            array = _mapped(path, described, offset)
            arrays[described["name"]] = array
            offset += array.nbytes
        raw = Raw(**arrays, meaning=_meaning(header["meaning"]))
        if raw.y.shape != raw.x.shape[:1]:
            raise DataError(f"it has {raw.x.shape} inputs and {raw.y.shape} targets")
        if raw.meaning is not None and raw.x.shape[1:] != (raw.meaning.width,):
            raise DataError(f"it has {raw.x.shape} inputs and names for {raw.meaning.width}")
        return raw
    except FileNotFoundError:
        return None
    except Exception as error:  # a header with a right checksum may still say anything
        _logger.warning("the cached data in %s is damaged (%s) and will be built anew", path, error)
        return None


def _meaning(plain: dict[str, Any] | None) -> Meaning | None:
    if plain is None:
        return None
    columns = tuple((str(name), tuple(str(one) for one in categories)) for name, categories in plain["columns"])
    return Meaning(columns, str(plain["target"]), tuple(str(name) for name in plain["classes"]))


def narrowed(array: Array) -> Array:
    """The same values in the smallest type that holds each of them exactly."""
    if array.dtype.kind not in "iuf":
        raise DataError(f"data must be numbers, not {array.dtype}")
    for name in ("uint8", "int16", "int32", "float32"):
        kind = np.dtype(name)
        if kind.itemsize < array.dtype.itemsize and _holds(kind, array):
            return np.ascontiguousarray(array, dtype=kind)
    name = "float64" if array.dtype.kind == "f" and array.dtype.itemsize > 8 else array.dtype.name
    if name not in _TYPES:
        name = "float32" if array.dtype.kind == "f" else "int64"
    return np.ascontiguousarray(array, dtype=name)


def _holds(kind: np.dtype[Any], array: Array) -> bool:
    """Whether the type has every value; judged on the first rows before the whole array is looked at."""
    with np.errstate(all="ignore"):
        for part in (array[:256], array):
            if not np.array_equal(part.astype(kind), part):
                return False
    return True


def _header(file: IO[bytes]) -> dict[str, Any]:
    start = file.read(len(_MAGIC) + 8)
    length = int.from_bytes(start[len(_MAGIC) :], "little")
    if not start.startswith(_MAGIC) or length > _LONGEST_HEADER:
        raise DataError("not a file of this cache")
    header, digest = file.read(length), file.read(32)
    if hashlib.sha256(header).digest() != digest:
        raise DataError("its header does not match its checksum")
    content = json.loads(header)
    if not isinstance(content, dict):
        raise DataError("its header is not a table")
    return content


def _mapped(path: Path, described: dict[str, Any], offset: int) -> Array:
    if described["type"] not in _TYPES:
        raise DataError(f"{described['type']} is no type of this cache")
    array: Array = np.memmap(
        path, dtype=described["type"], mode="r", offset=offset, shape=tuple(int(n) for n in described["shape"])
    )
    if digest_of([("", array)]) != described["sha256"]:
        raise DataError(f"its {described['name']} does not match its checksum")
    return array


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
