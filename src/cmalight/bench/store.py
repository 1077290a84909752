"""The results folder: one JSON file per run, and the specs it was made from.

    DIR/runs/KEY.json      one result, named by the hash of everything that defines the run
    DIR/specs/NAME.json    a spec that was run here, and the keys of its runs at that time
    DIR/lock               held by the driver that works on the folder

An archive FILE.tar.xz of such a folder is read wherever a folder is.
"""

from __future__ import annotations

import logging
import lzma
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import filelock
from pydantic import ValidationError

from cmalight.bench.models import Frozen, Result
from cmalight.bench.spec import Spec
from cmalight.files import write_atomically

_logger = logging.getLogger("cmalight")
_ARCHIVE = ".tar.xz"
Model = TypeVar("Model", bound=Frozen)


class FolderInUseError(RuntimeError):
    """Another driver works on the folder."""


class Planned(Frozen):
    """A spec that was run in a folder, and the keys that its runs had then."""

    spec: Spec
    keys: list[str]


def status(folder: str | Path) -> dict[str, int]:
    """The progress of a results folder.

    Args:
        folder: That `bench run` wrote, or is writing.

    Returns:
        How many runs have which status, how many of the last calls for it are "left", and how many results are of
        other calls ("others").
    """
    results = {result.run.key: result.status for result in read_results(folder)}
    keys = {key for one in read_specs(folder) for key in one.keys}
    counts = Counter[str](sorted(results[key] for key in keys & results.keys()))
    others = len(results.keys() - keys)
    return {**counts, "left": len(keys - results.keys()), **({"others": others} if others else {})}


def merge(folders: Sequence[str | Path], out: str | Path) -> int:
    """Merge results folders; of two results of one run it keeps a finished one, otherwise the first.

    Args:
        folders: Results folders or archives.
        out: A folder, new or with results.

    Returns:
        How many results `out` has then.

    Raises:
        ValueError: If a source is no results folder, or `out` has the name of an archive.
    """
    out = Path(out)
    if out.name.endswith(_ARCHIVE):
        raise ValueError(f"{out} is the name of an archive; merge into a folder, and pack that with tar")
    sources = [*([out] if (out / "runs").is_dir() else []), *folders]
    found: dict[str, Result] = {}
    for result in (one for source in sources for one in read_results(source)):
        known = found.setdefault(result.run.key, result)
        if known.is_failure and not result.is_failure:
            found[result.run.key] = result
    specs = {one.spec.name: one for source in sources for one in read_specs(source)}
    with locked(out):
        for one in specs.values():
            begin(out, one.spec, one.keys)
        for result in found.values():
            write_result(out, result)
    return len(found)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make and hold a results folder; FolderInUseError if another driver holds it. A killed driver does not."""
    for part in ("runs", "specs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder / "lock", timeout=0):
            for leftover in (folder / "runs").glob(".*.tmp"):  # left by a killed driver
                leftover.unlink(missing_ok=True)
            yield
    except filelock.Timeout as error:
        raise FolderInUseError(
            f"another `bench run` or `merge` uses {folder}; wait, or choose another folder"
        ) from error


def begin(folder: Path, spec: Spec, keys: Sequence[str]) -> None:
    """Write down the spec and the keys of all its runs, in a folder that is held."""
    write_file(folder / "specs" / f"{spec.name}.json", Planned(spec=spec, keys=list(keys)).model_dump_json())


def write_result(folder: Path, result: Result) -> None:
    """Write one result, complete or not at all."""
    write_file(folder / "runs" / f"{result.run.key}.json", result.model_dump_json())


def write_file(path: Path, text: str) -> None:
    """Write a file, complete or not at all; a symbolic link is replaced, because a folder may come from others."""
    if path.is_symlink():
        path.unlink()
    write_atomically(path, text)


def read_results(folder: str | Path) -> Iterator[Result]:
    """The results of a folder or an archive; a damaged file is named in a warning and left out."""
    return _read(Path(folder), "runs", Result, lambda result: result.run.key)


def read_specs(folder: str | Path) -> Iterator[Planned]:
    """The specs that were run in a folder; a damaged file is named in a warning and left out."""
    return _read(Path(folder), "specs", Planned, lambda planned: planned.spec.name)


def _read(folder: Path, part: str, model: type[Model], name_of: Callable[[Model], str]) -> Iterator[Model]:
    for name, content in _files(folder, part):
        try:
            found = model.model_validate_json(content)
            if f"{name_of(found)}.json" != name:
                raise ValueError("it holds another one than its name says")
            yield found
        except ValueError as error:
            why = f"{error.error_count()} errors" if isinstance(error, ValidationError) else error
            _logger.warning("%s is damaged and left out (%s)", folder / part / name, why)


def _files(folder: Path, part: str) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the JSON files in a part of a folder or an archive."""
    if folder.name.endswith(_ARCHIVE) and folder.is_file():
        try:
            yield from _packed(folder, part)
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise ValueError(f"{folder} is damaged, cut short or no archive of results ({error})") from error
        return
    if not (folder / "runs").is_dir():
        raise ValueError(f"{folder} is not a results folder: there is no {folder / 'runs'}")
    for path in sorted((folder / part).glob("*.json")):
        try:
            yield path.name, path.read_bytes()
        except OSError as error:  # a dangling link, a folder
            _logger.warning("%s cannot be read and is left out (%s)", path, error.strerror)


def _packed(archive: Path, part: str) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive, "r:xz") as packed:
        for member in packed:
            path = Path(member.name)
            file = packed.extractfile(member) if member.isreg() and path.suffix == ".json" else None
            if file is not None and path.parent.name == part:
                yield path.name, file.read()
