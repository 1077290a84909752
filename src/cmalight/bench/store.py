"""The results folder: one JSON file per run, and the specs it was made from.

    DIR/runs/KEY.json      one result, named by the hash of everything that defines the run
    DIR/specs/NAME.json    a spec that was run here, and the keys of its runs at that time
    DIR/lock               held by the driver that works on the folder

An archive FILE.tar.xz of such a folder is read wherever a folder is.
"""

from __future__ import annotations

import logging
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cmalight.bench.models import Frozen, Result
from cmalight.bench.spec import Spec
from cmalight.errors import needed
from cmalight.files import write_atomically

_logger = logging.getLogger("cmalight")
_ARCHIVE = ".tar.xz"


class FolderInUseError(RuntimeError):
    """Another driver works on the folder."""


class Planned(Frozen):
    """A spec that was run in a folder, and the keys that its runs had then."""

    spec: Spec
    keys: list[str]


def status(folder: str | Path) -> dict[str, int]:
    """How far a results folder is.

    Args:
        folder: That `bench run` wrote, or is writing.

    Returns:
        How many runs have which status, and how many of the last calls for it are "left".

    Raises:
        ValueError: If it is no results folder.
    """
    damaged: list[str] = []
    results = {result.run.key: result.status for result in read_results(Path(folder), damaged)}
    keys = {key for one in read_specs(Path(folder), damaged) for key in one.keys}
    counts = Counter[str](results[key] for key in keys & results.keys())
    others = len(results.keys() - keys)
    return {
        **dict(sorted(counts.items())),
        "left": len(keys - results.keys()),
        **({"others": others} if others else {}),
    }


def merge(folders: Sequence[str | Path], out: str | Path) -> int:
    """Join results folders; of two results of one run a finished one is kept, else the first.

    Args:
        folders: Results folders or archives.
        out: A folder, new or with results, or the name of an archive to write, NAME.tar.xz.

    Returns:
        How many results `out` has then.

    Raises:
        ValueError: If one is no results folder.
    """
    out = Path(out)
    damaged: list[str] = []
    sources = [*([out] if (out / "runs").is_dir() else []), *map(Path, folders)]
    found: dict[str, Result] = {}
    for source in sources:
        for result in read_results(source, damaged):
            known = found.get(result.run.key)
            if known is None or (known.is_failure and not result.is_failure):
                found[result.run.key] = result
    specs = {one.spec.name: one for source in sources for one in read_specs(source, damaged)}
    if out.name.endswith(_ARCHIVE):
        import tempfile

        with tempfile.TemporaryDirectory() as temporary:
            _write_all(Path(temporary), found, specs)
            write_atomically(out, lambda file: _pack(Path(temporary), file))
    else:
        _make_folder(out)
        with locked(out):
            _write_all(out, found, specs)
    return len(found)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a results folder; FolderInUseError if another driver does. A driver that was killed holds it no longer."""
    with needed("Results folders need filelock, which is not installed", "bench"):
        import filelock
    try:
        with filelock.FileLock(folder / "lock", timeout=0):
            for leftover in (folder / "runs").glob(".*.tmp"):  # of a driver that was killed
                leftover.unlink(missing_ok=True)
            yield
    except filelock.Timeout as error:
        raise FolderInUseError(f"{folder} is in use by another driver; wait, or choose another folder") from error


def is_locked(folder: str | Path) -> bool:
    """Whether a driver works on a folder now."""
    try:
        with locked(Path(folder)):
            return False
    except FolderInUseError:
        return True


def begin(folder: Path, spec: Spec, keys: Sequence[str]) -> None:
    """Make the folder, and write down the spec and the keys of all its runs."""
    _make_folder(folder)
    write_atomically(folder / "specs" / f"{spec.name}.json", Planned(spec=spec, keys=list(keys)).model_dump_json())


def write_result(folder: Path, result: Result) -> None:
    """Write one result, complete or not at all."""
    write_atomically(folder / "runs" / f"{result.run.key}.json", result.model_dump_json())


def read_results(folder: Path, damaged: list[str]) -> Iterator[Result]:
    """The readable results of a folder or an archive; `damaged` gets one line for each of the other files."""
    for name, content in _files(folder, "runs"):
        try:
            result = Result.model_validate_json(content)
            if f"{result.run.key}.json" != name:
                raise ValueError("it holds another run than its name says")
        except ValueError as error:
            why = f"{error.error_count()} errors" if isinstance(error, ValidationError) else str(error)
            damaged.append(f"{folder / 'runs' / name} is damaged and left out ({why})")
            _logger.warning("%s", damaged[-1])
            continue
        yield result


def read_specs(folder: Path, damaged: list[str]) -> list[Planned]:
    """The specs that were run in a folder; `damaged` gets one line for each file that cannot be read."""
    found = []
    for name, content in _files(folder, "specs"):
        try:
            found.append(Planned.model_validate_json(content))
        except ValidationError as error:
            damaged.append(f"{folder / 'specs' / name} is damaged and left out ({error.error_count()} errors)")
            _logger.warning("%s", damaged[-1])
    return found


def _files(folder: Path, part: str) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the JSON files in a part of a folder or an archive."""
    if folder.name.endswith(_ARCHIVE) and folder.is_file():
        with tarfile.open(folder, "r:xz") as archive:
            for member in archive:
                path = Path(member.name)
                file = archive.extractfile(member) if path.parent.name == part and path.suffix == ".json" else None
                if file is not None:
                    yield path.name, file.read()
        return
    if not (folder / "runs").is_dir():
        raise ValueError(f"{folder} is not a results folder: there is no {folder / 'runs'}")
    for path in sorted((folder / part).glob("*.json")):
        try:
            yield path.name, path.read_bytes()
        except OSError as error:
            yield path.name, f"{error}".encode()  # no JSON: named as damaged


def _pack(folder: Path, file: Any) -> None:
    with tarfile.open(fileobj=file, mode="w:xz") as archive:
        for path in sorted(folder.glob("*/*.json")):
            archive.add(path, path.relative_to(folder).as_posix())


def _write_all(out: Path, results: dict[str, Result], specs: dict[str, Planned]) -> None:
    _make_folder(out)
    for result in results.values():
        write_result(out, result)
    for one in specs.values():
        begin(out, one.spec, one.keys)


def _make_folder(folder: Path) -> None:
    for part in ("runs", "specs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
