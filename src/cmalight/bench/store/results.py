"""The files of a results folder: written whole or not at all, verified when they are read, and never unpickled."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cmalight.bench.spec.study import DataName, Definition
from cmalight.bench.store.schema import Result, checked
from cmalight.files import remove_abandoned, whole_file, without_infinities

FORMAT = "cmalight-run"
VERSION = 1
_BEFORE_CONTENT = b'"content": '
_logger = logging.getLogger("cmalight.bench")


class ResultError(ValueError):
    """A file is not a result, or is damaged; a folder is not one of results."""


class LaterVersionError(ValueError):
    """A file that is good, but not for this version: it is never left out or set aside."""


def runs_folder(folder: Path) -> Path:
    """Where the files of the runs are."""
    return folder / "runs"


def result_path(folder: Path, key: str) -> Path:
    """Of the run with that key."""
    return runs_folder(folder) / f"{key}.json"


def result_files(folder: Path) -> list[Path]:
    """All of a results folder, in the order of their names; ResultError if it is none."""
    if not runs_folder(folder).is_dir():
        raise ResultError(f"{folder} is not a results folder: there is no {runs_folder(folder)}")
    return sorted(runs_folder(folder).glob("*.json"))


def good_results(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Those that can be trusted; a damaged one is named in a warning and left out."""
    for path in result_files(folder):
        try:
            yield path, read_result(path)
        except ResultError as error:
            _logger.warning("%s; it is left out", error)


class DataOfResults:
    """What data results are on: in a folder a name stands for one data set, and the first result of it decides."""

    def __init__(self) -> None:
        self._first: dict[DataName, tuple[str, object]] = {}

    def digest(self, run: Definition) -> str | None:
        """The `data_sha256` of the first result on data of this name."""
        return self._first.get(run.data_name, (None, None))[0]

    def contradiction(self, run: Definition, content: dict[str, Any], where: object) -> str | None:
        """That the result at `where` is on other data than the first, in words; None if it is not."""
        digest = content.get("data_sha256")
        if digest is None:
            return None
        known, first = self._first.setdefault(run.data_name, (digest, where))
        if known == digest:
            return None
        return f"{first} and {where} are results on different data, though both call it {run.dataset}"


def write_result(folder: Path, key: str, content: dict[str, Any]) -> Path:
    """The result of a run, on the disk when this returns."""
    path = result_path(folder, key)
    write_document(path, FORMAT, VERSION, content)
    return path


def read_result(path: Path) -> dict[str, Any]:
    """The content of a run's file, verified."""
    content = read_document(path, FORMAT, VERSION)
    try:
        result = checked(Result, content)
    except ValueError as error:
        raise ResultError(f"{path} is damaged: it does not hold what a result holds ({error})") from error
    if result.key != path.stem:
        raise ResultError(f"{path} is damaged: it holds another run than its name says")
    return content


def write_document(path: Path, form: str, version: int, content: dict[str, Any]) -> None:
    """A temporary file, forced to disk, then renamed; numbers that are not finite become null."""
    inner = json.dumps(without_infinities(content), allow_nan=False).encode()
    head = json.dumps({"format": form, "version": version, "sha256": hashlib.sha256(inner).hexdigest()}).encode()
    with whole_file(path) as file:
        file.write(head[:-1] + b", " + _BEFORE_CONTENT + inner + b"}\n")


def read_document(path: Path, form: str, version: int) -> dict[str, Any]:
    """What `write_document` wrote; ResultError where it is not intact."""
    try:
        data = path.read_bytes()
    except IsADirectoryError as error:
        raise ResultError(f"{path} is damaged: it is a folder") from error
    except FileNotFoundError as error:
        if path.is_symlink():
            raise ResultError(f"{path} is damaged: it is a link to what is not there") from error
        raise
    try:
        outer = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path} is damaged: it is not JSON, or only its beginning") from error
    if not isinstance(outer, dict) or outer.get("format") != form:
        raise ResultError(f"{path} is not a {form} file of cmalight")
    if outer.get("version") != version:
        raise LaterVersionError(
            f"{path} has version {outer.get('version')} of the format {form}, but this version of cmalight reads "
            f"{version}: update cmalight, or use another folder"
        )
    content = outer.get("content")
    if not (isinstance(content, dict) and _fits(outer.get("sha256"), data, content)):
        raise ResultError(f"{path} is damaged: its checksum does not fit its content")
    return content


def _fits(sha256: object, data: bytes, content: dict[str, Any]) -> bool:
    """By the bytes as they were written; by the values where a tool has laid the file out anew."""
    start = data.find(_BEFORE_CONTENT) + len(_BEFORE_CONTENT)
    written = memoryview(data)[start : data.rfind(b"}")]
    if sha256 == hashlib.sha256(written).hexdigest():
        return True
    return sha256 == hashlib.sha256(json.dumps(content).encode()).hexdigest()


def set_aside(path: Path) -> Path:
    """Moves a damaged file where nothing reads it, and returns where that is."""
    folder = path.parent.parent / "damaged"
    folder.mkdir(exist_ok=True)
    number = 0
    while os.path.lexists(target := folder / f"{path.stem}.{number}{path.suffix}"):
        number += 1
    path.replace(target)
    return target


def remove_leftovers(folder: Path) -> None:
    """The temporary files of a driver that was killed while it wrote; only the owner of the lock may call this."""
    for place in (folder, runs_folder(folder)):
        remove_abandoned(place, after=-math.inf)
