"""Members of zip, tar and gzip files as streams.

Nothing is ever unpacked to disk, so no member can land outside a folder; hostile names are refused all the same.
A member that announces more than the limit is not opened, and every stream counts what it gives and stops there, since
announcements may lie: a small file cannot fill the memory.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from cmalight.errors import DataError
from cmalight.files import refuse_larger

MEGABYTE = 1 << 20
MOST_MEMBERS = 10_000
_BROKEN = (zlib.error, zipfile.BadZipFile, tarfile.TarError, EOFError, OSError)
# What a hostile header makes the standard library raise beside its own errors.
_CONFUSED = (ValueError, OverflowError, RuntimeError, NotImplementedError, KeyError, IndexError)


class _Bounded(io.RawIOBase):
    """A stream that ends in a DataError past the limit, and wherever the packed data is damaged."""

    def __init__(self, stream: IO[bytes], what: str) -> None:
        self._stream, self._what, self._given = stream, what, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(min(len(buffer), MEGABYTE))
        except DataError:
            raise
        except (*_BROKEN, *_CONFUSED) as error:
            raise DataError(f"{self._what} is damaged or cut short ({error}): get it again") from error
        self._given += len(data)
        refuse_larger(self._what, self._given, error=DataError)
        buffer[: len(data)] = data
        return len(data)


def members(path: Path, wanted: tuple[str, ...]) -> Iterator[tuple[str, IO[bytes]]]:
    """Each wanted member of the file at `path`, by its base name, in the order of the archive.

    A file that is no archive counts as the only member wanted. A stream is good until the next one is asked for.
    """
    missing = set(wanted)
    try:
        for name, stream in _members(path, wanted):
            if name in missing:
                missing.remove(name)
                yield name, stream
                if not missing:
                    return
    except DataError:
        raise
    except (*_BROKEN, *_CONFUSED) as error:
        raise DataError(f"{path} is damaged or not an archive of a known kind ({error}): get it again") from error
    raise DataError(f"{path} has no member {' and no '.join(sorted(missing))}: it is another file, or another version")


def _members(path: Path, wanted: tuple[str, ...]) -> Iterator[tuple[str, IO[bytes]]]:
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        if start.startswith(b"PK"):
            yield from _zip_members(file, path, wanted)
        elif start.startswith(b"\x1f\x8b"):
            yield from _gzip_members(file, path, wanted)
        elif len(wanted) == 1:
            yield wanted[0], io.BufferedReader(_Bounded(file, str(path)), MEGABYTE)
        else:
            raise DataError(f"{path} is neither a zip nor a tar.gz file: it should hold {', '.join(wanted)}")


def _zip_members(file: IO[bytes], path: Path, wanted: tuple[str, ...]) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        if len(infos) > MOST_MEMBERS:
            raise DataError(f"{path} has {len(infos)} members, more than any data set needs ({MOST_MEMBERS})")
        for info in infos:
            base = _base_name(info.filename, path)
            packed = base.endswith(".gz") and base[:-3] in wanted
            if info.is_dir() or not (base in wanted or packed):
                continue
            what = f"{info.filename} in {path}"
            refuse_larger(what, info.file_size, error=DataError)
            with archive.open(info) as stream:
                opened = io.BufferedReader(_Bounded(stream, what), MEGABYTE)
                yield (base[:-3], _gunzipped(opened, what)) if packed else (base, opened)


def _gzip_members(file: IO[bytes], path: Path, wanted: tuple[str, ...]) -> Iterator[tuple[str, IO[bytes]]]:
    stream = _gunzipped(file, str(path))
    if stream.peek(512)[257:262] != b"ustar":
        if len(wanted) > 1:
            raise DataError(f"{path} is a single packed file: it should hold {', '.join(wanted)}")
        yield wanted[0], stream
        return
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for count, info in enumerate(archive, start=1):
            if count > MOST_MEMBERS:
                raise DataError(f"{path} has more members than any data set needs ({MOST_MEMBERS})")
            base = _base_name(info.name, path)
            if base not in wanted:
                continue
            if not info.isreg():
                raise DataError(f"{info.name} in {path} is a link or a device, not a file: do not trust this archive")
            member = archive.extractfile(info)
            if member is not None:
                yield base, io.BufferedReader(_Bounded(member, f"{info.name} in {path}"), MEGABYTE)


def _gunzipped(file: IO[bytes], what: str) -> io.BufferedReader:
    return io.BufferedReader(_Bounded(gzip.GzipFile(fileobj=file, mode="rb"), what), MEGABYTE)  # type: ignore[arg-type]


def _base_name(name: str, path: Path) -> str:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in name.split("/")[0]:
        raise DataError(f"a member of {path} is called {name!r}, which leaves its folder: do not trust this archive")
    return parts.name
