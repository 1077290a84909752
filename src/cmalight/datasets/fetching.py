"""Where a data set's files are: in CMALIGHT_DATA, in the cache, or at their publisher's, in this order."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urljoin

from cmalight.datasets.entry import Entry, RemoteFile, library
from cmalight.errors import DataError
from cmalight.files import refuse_larger, remove_abandoned, whole_file

DATA_VARIABLE = "CMALIGHT_DATA"
CACHE_VARIABLE = "CMALIGHT_CACHE"
TIMEOUT_SECONDS = 30
SLOWNESS_SECONDS = 30.0  # over which a download has to keep the lowest rate
LOWEST_RATE = 10_000  # bytes per second
_MOST_REDIRECTIONS = 10
_CHUNK = 1 << 20
_logger = logging.getLogger("cmalight")
Show = Callable[[int, int | None], None]  # bytes done, and of how many


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


def cached_file(file: RemoteFile) -> Path:
    """Where a download goes.

    Args:
        file: what defines it (name, addresses, checksums) marks the file, so that two of one name never meet.

    Returns:
        A path in the cache, whether there is a file or not.
    """
    mark = hashlib.sha256(repr((file.name, file.urls, file.sha256)).encode()).hexdigest()[:16]
    return files_folder() / f"{mark}-{file.name}"


def locate(entry: Entry, file: RemoteFile) -> Path | None:
    """The file, if it is on this machine."""
    folders = [*([entry.folder] if entry.folder else []), *data_folders()]
    places = [folder / name for folder in folders for name in (file.name, *file.other_names)]
    return next((path for path in (*places, cached_file(file)) if path.is_file()), None)


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
    """The way out without a connection, or with an address that no longer works."""
    source = f"Get it from {file.urls[0]} and put" if file.urls else "Put"
    return f"{source} it as {file.name} into a folder named in {DATA_VARIABLE}, or as {cached_file(file)}"


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
            f"delete it, or say that you trust it (`trust`). {by_hand(file)}"
        )


def _retrieve(entry: Entry, file: RemoteFile, url: str, *, progress: bool | None) -> Path:
    requests, urllib3 = library("requests"), library("urllib3")
    path = cached_file(file)
    known = () if entry.values_sha256 else file.sha256
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent)
        with _watched(file, progress) as show:
            _Transfer(url, path, known, show).run()
    except requests.exceptions.HTTPError as error:
        raise DataError(f"{url} answers {error.response.status_code} {error.response.reason}") from error
    except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
        raise DataError(f"{url} cannot be reached, or the connection broke") from error
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
        raise DataError(f"{url} broke off ({type(error).__name__})") from error
    except OSError as error:
        raise DataError(f"{path.parent} cannot be written to ({error.strerror})") from error
    return path


class _Transfer:
    """One download in a thread of its own, so that no server, however slow in whatever it does, is waited for long."""

    def __init__(self, url: str, path: Path, known: tuple[str, ...], show: Show) -> None:
        self._url, self._path, self._known, self._show = url, path, known, show
        self._done = 0
        self._given_up = threading.Event()
        self._response: Any = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        try:
            before = 0
            while True:
                thread.join(SLOWNESS_SECONDS)
                if not thread.is_alive():
                    break
                if self._done - before < LOWEST_RATE * SLOWNESS_SECONDS:
                    raise DataError(
                        f"{self._url} sends less than {LOWEST_RATE // 1000} kB per second, "
                        f"over {SLOWNESS_SECONDS:g} seconds: too slow to wait for"
                    )
                before = self._done
        finally:
            self._given_up.set()
            if thread.is_alive() and self._response is not None:
                with contextlib.suppress(RuntimeError):  # the answer ended at this very moment
                    self._response.raw.shutdown()  # wakes a thread that waits for the next byte
                thread.join(TIMEOUT_SECONDS)
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # which holds this frame, and through it all that the caller has

    def _work(self) -> None:
        try:
            self._download()
        except BaseException as failure:
            self._failure = failure

    def _download(self) -> None:
        with _answer(self._url) as response:
            if self._given_up.is_set():
                return
            response.raise_for_status()
            self._response = response
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() and length.isascii() else None
            refuse_larger(f"what {self._url} sends", total or 0, error=DataError)
            with whole_file(self._path) as file:
                digest = self._receive(response.raw, total, file)
                if self._known and digest not in self._known:
                    raise DataError(f"what {self._url} sends has the wrong sha256")

    def _receive(self, raw: Any, total: int | None, file: BinaryIO) -> str:
        """Writes what comes, unpacked if the server packs it unasked, and returns its sha256."""
        sha = hashlib.sha256()
        while block := raw.read1(_CHUNK, decode_content=True):
            if self._given_up.is_set():
                raise DataError(f"{self._url} was given up")
            self._done += len(block)
            refuse_larger(f"what {self._url} sends", self._done, error=DataError)
            sha.update(block)
            file.write(block)
            self._show(self._done, total)
        if total is not None and raw.tell() < total:
            raise DataError(f"{self._url} broke off after {raw.tell()} of {total} bytes")
        return sha.hexdigest()


def _answer(url: str) -> Any:
    """The answer at the end of the redirections; requests would read what comes with each of them into memory."""
    requests = library("requests")
    session = requests.Session()
    redirection, session.get_redirect_target = session.get_redirect_target, lambda _: None
    for _ in range(_MOST_REDIRECTIONS):
        response = session.get(url, stream=True, timeout=TIMEOUT_SECONDS, headers={"Accept-Encoding": "identity"})
        target = redirection(response)
        if target is None:
            return response
        response.close()
        url = urljoin(url, target)
    raise requests.exceptions.TooManyRedirects(f"more than {_MOST_REDIRECTIONS} redirections")


@contextlib.contextmanager
def _watched(file: RemoteFile, progress: bool | None) -> Iterator[Show]:
    """A bar on a terminal (or where asked for) if rich is installed, none otherwise."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield _show_nothing
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
    except ImportError:
        yield _show_nothing
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(file.name, total=file.size)
        yield lambda done, total: bar.update(task, total=total, completed=done)


def _show_nothing(done: int, total: int | None) -> None:
    """Nobody watches."""
