"""A results folder as one compressed file, to publish: written by `merge`, read wherever a folder is."""

from __future__ import annotations

import io
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cmalight.bench.store.results import ResultError, result_files, runs_folder
from cmalight.files import refuse_larger, whole_file

SUFFIX = ".tar.xz"
_MEMBER = re.compile(r"(runs/[0-9a-f]{1,64}\.json|spec\.json)")


def is_archive(path: str | Path) -> bool:
    """By its name."""
    return Path(path).name.endswith(SUFFIX)


def pack(folder: Path, archive: Path) -> None:
    """The results of a folder and its spec as one file, the same bytes for the same results.

    Args:
        folder: of the results.
        archive: the file, whose name ends in .tar.xz.
    """
    paths = [*result_files(folder), *(path for path in [folder / "spec.json"] if path.is_file())]
    with whole_file(archive) as file, tarfile.open(fileobj=file, mode="w:xz", preset=9) as packed:
        for path in paths:
            info = tarfile.TarInfo(path.relative_to(folder).as_posix())
            info.size = path.stat().st_size
            packed.addfile(info, io.BytesIO(path.read_bytes()))


@contextmanager
def as_folder(source: str | Path) -> Iterator[Path]:
    """The folder itself, or a temporary one with what an archive holds.

    Args:
        source: a results folder, or a file that `pack` wrote.

    Yields:
        A results folder, to be read.

    Raises:
        ResultError: if the file is no such archive.
    """
    path = Path(source)
    if not is_archive(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="cmalight-") as place:
        _unpack(path, Path(place))
        yield Path(place)


def _unpack(path: Path, folder: Path) -> None:
    runs_folder(folder).mkdir()
    taken = 0
    try:
        with tarfile.open(path, mode="r:xz") as packed:
            for member in packed:
                content = packed.extractfile(member) if member.isreg() and _MEMBER.fullmatch(member.name) else None
                if content is None:
                    raise ResultError(f"{path} has a member {member.name!r}, which results have not: do not trust it")
                taken += member.size
                refuse_larger(str(path), taken, error=ResultError)
                (folder / member.name).write_bytes(content.read())
    except (tarfile.TarError, EOFError, ValueError, OSError) as error:
        if isinstance(error, ResultError | FileNotFoundError):
            raise
        raise ResultError(f"{path} is damaged, or not an archive of results ({error}): get it again") from error
