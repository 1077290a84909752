"""Where a data set's files are: in CMALIGHT_DATA, in the cache, or at their publisher's, in this order."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cmalight.datasets.entries.entry import DataError, Entry, RemoteFile, library

DATA_VARIABLE = "CMALIGHT_DATA"
CACHE_VARIABLE = "CMALIGHT_CACHE"
LARGEST_DOWNLOAD = 2 << 30
TIMEOUT_SECONDS = 30
_CHUNK = 1 << 20
_logger = logging.getLogger("cmalight")


def data_folders() -> list[Path]:
    """The folders named in CMALIGHT_DATA, separated as in PATH."""
    return [Path(part).expanduser() for part in os.environ.get(DATA_VARIABLE, "").split(os.pathsep) if part]


def cache_folder() -> Path:
    """CMALIGHT_CACHE, or where this system keeps caches."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    return Path(library("platformdirs").user_cache_dir("cmalight", appauthor=False))


def files_folder() -> Path:
    """Where downloads go, and where a file may be put by hand."""
    return cache_folder() / "files"


def locate(entry: Entry, file: RemoteFile) -> Path | None:
    """The file, if it is on this machine."""
    folders = [*([entry.folder] if entry.folder else []), *data_folders(), files_folder()]
    for folder in folders:
        for name in (file.name, *file.other_names):
            if (folder / name).is_file():
                return folder / name
    return None


def obtain(entry: Entry, *, progress: bool | None = None) -> dict[str, Path]:
    """All files of a data set by name, downloaded where they are not here yet, their checksums verified."""
    found = {}
    for file in entry.files:
        path = locate(entry, file) or download(entry, file, progress=progress)
        _verify(entry, file, path)
        found[file.name] = path
    return found


def download(entry: Entry, file: RemoteFile, *, progress: bool | None = None) -> Path:
    """Tries the addresses in turn. The file appears in the cache when it is complete, and not before.

    An interrupted download leaves nothing behind and starts from the beginning the next time.
    """
    if not file.urls:
        raise DataError(
            f"{file.name} of {entry.name} is not here, and nothing says where to download it. {by_hand(file)}"
        )
    failures = []
    for url in file.urls:
        _logger.info("downloading %s from %s", file.name, url)
        try:
            return _retrieve(entry, file, url, progress=progress)
        except DataError as failure:
            failures.append(str(failure))
            _logger.info("%s", failure)
    raise DataError(f"{file.name} of {entry.name} could not be downloaded ({'; '.join(failures)}). {by_hand(file)}")


def by_hand(file: RemoteFile) -> str:
    """The way out for who has no connection, or an address that no longer works."""
    source = f"Get it from {file.urls[0]} and put" if file.urls else "Put"
    return f"{source} it as {file.name} into {files_folder()}, or into a folder named in {DATA_VARIABLE}"


def sha256_of(path: Path) -> str:
    sha = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_CHUNK):
            sha.update(block)
    return sha.hexdigest()


def _verify(entry: Entry, file: RemoteFile, path: Path) -> None:
    """Refuses a file with an unknown digest, unless the values have one, which then decides: archives get repacked."""
    if entry.values_sha256 or not file.sha256:
        return
    found = sha256_of(path)
    if found not in file.sha256:
        raise DataError(
            f"{path} has the sha256 {found[:16]}..., but {file.name} of {entry.name} has {file.sha256[0][:16]}...: "
            f"delete it. {by_hand(file)}"
        )


def _retrieve(entry: Entry, file: RemoteFile, url: str, *, progress: bool | None) -> Path:
    pooch, requests = library("pooch"), library("requests")
    strict = file.sha256[0] if len(file.sha256) == 1 and not entry.values_sha256 else None
    try:
        with _watched(file, progress) as watch, _quiet(pooch):
            downloader = pooch.HTTPDownloader(
                progressbar=watch,
                chunk_size=_CHUNK,
                timeout=TIMEOUT_SECONDS,
                headers={"Accept-Encoding": "identity"},
            )
            path = pooch.retrieve(url, known_hash=strict, fname=file.name, path=files_folder(), downloader=downloader)
    except requests.exceptions.HTTPError as error:
        raise DataError(f"{url} answers {error.response.status_code} {error.response.reason}") from error
    except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
        raise DataError(f"{url} cannot be reached, or the connection broke") from error
    except requests.exceptions.RequestException as error:
        raise DataError(f"{url} broke off ({type(error).__name__})") from error
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"what {url} sends has the wrong sha256") from error
    except OSError as error:
        raise DataError(f"{files_folder()} cannot be written to ({error.strerror})") from error
    return Path(path)


@contextlib.contextmanager
def _quiet(pooch: Any) -> Iterator[None]:
    """pooch prints what it does; we log it."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Watch:
    """What pooch calls a progress bar: it stops a download that is larger than any data set, and may draw a bar."""

    def __init__(self, file: RemoteFile, bar: Any = None) -> None:
        self.total = 0
        self._file, self._bar, self._done = file, bar, 0
        self._task = bar.add_task(file.name, total=file.size) if bar else None

    def update(self, amount: int) -> None:
        self._done += amount
        if self._done > LARGEST_DOWNLOAD + _CHUNK:
            raise DataError(f"more than {LARGEST_DOWNLOAD >> 20} MB came for {self._file.name}")
        if self._bar:
            self._bar.update(self._task, total=self.total or None, completed=self._done)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        """pooch calls it; the bar is closed by `_watched`."""


@contextlib.contextmanager
def _watched(file: RemoteFile, progress: bool | None) -> Iterator[_Watch]:
    """A bar on a terminal (or where asked for) if rich is installed, none otherwise."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield _Watch(file)
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
    except ImportError:
        yield _Watch(file)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Watch(file, bar)
