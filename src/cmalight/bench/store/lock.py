"""One driver a folder: a lock that the system releases when its owner dies, and that says who the owner is."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

_HEARTBEAT_SECONDS = 5.0
# A file system may know the locks of its own machine only: an owner elsewhere counts as alive while it moves its clock.
_SILENT_SECONDS = 60.0
_TRIES, _PAUSE_SECONDS = 21, 0.05
# What systems answer where a folder is on a file system that knows no locks, as some of clusters are.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_logger = logging.getLogger("cmalight.bench")


class FolderInUseError(RuntimeError):
    """Another driver works on the folder."""


@dataclass(frozen=True)
class Owner:
    pid: int
    host: str
    since: str


class Lock:
    """Held from `acquired` on; `beat` shows that the owner is alive."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next_beat = 0.0

    def beat(self) -> None:
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + _HEARTBEAT_SECONDS
            with contextlib.suppress(OSError):
                os.utime(self._path)


@contextlib.contextmanager
def acquired(folder: Path) -> Iterator[Lock]:
    """Raises FolderInUseError at once if another driver has it. The file stays, empty, when the lock is given back."""
    path = lock_path(folder)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        locked = _lock_soon(handle)
        previous = _owner(path)
        if locked is False:
            raise _in_use(folder, previous)
        if previous is not None:
            may_be_alive = locked is None or previous.host != platform.node()
            if may_be_alive and _is_recent(path):
                raise _in_use(folder, previous)
            _logger.warning(
                "the driver before (process %d on %s) ended without giving %s back: going on where it stopped",
                previous.pid,
                previous.host,
                folder,
            )
        _write(handle, json.dumps(asdict(Owner(os.getpid(), platform.node(), time.strftime("%Y-%m-%d %H:%M:%S")))))
        try:
            yield Lock(path)
        finally:
            with contextlib.suppress(OSError):
                _write(handle, "")
    finally:
        os.close(handle)


def owner_alive(folder: Path) -> Owner | None:
    """Who works on the folder now."""
    path = lock_path(folder)
    owner = _owner(path)
    if owner is None:
        return None
    if owner.host != platform.node():
        return owner if _is_recent(path) else None
    handle = os.open(path, os.O_RDONLY)
    try:
        locked = _try_lock(handle, shared=True)
        alive = _is_recent(path) if locked is None else not locked
        return owner if alive else None
    finally:
        os.close(handle)


def lock_path(folder: Path) -> Path:
    return folder / "lock"


def _in_use(folder: Path, owner: Owner | None) -> FolderInUseError:
    who = "another process" if owner is None else f"process {owner.pid} on {owner.host} since {owner.since}"
    return FolderInUseError(
        f"{folder} is in use by {who}: wait for it (`cmalight bench status {folder}` shows how far it is), "
        "or give another --out"
    )


def _owner(path: Path) -> Owner | None:
    try:
        return Owner(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _is_recent(path: Path) -> bool:
    """By the clock of the file system, which all machines share."""
    probe = path.with_name(f".clock.{os.getpid()}.tmp")
    try:
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime < _SILENT_SECONDS
    except OSError:
        return time.time() - path.stat().st_mtime < _SILENT_SECONDS
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def _write(handle: int, text: str) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0) if sys.platform != "win32" else os.write(handle, text.encode())


def _lock_soon(handle: int) -> bool | None:
    """`owner_alive` takes the lock for a moment, which is no driver."""
    for _ in range(_TRIES - 1):
        if (locked := _try_lock(handle)) is not False:
            return locked
        time.sleep(_PAUSE_SECONDS)
    return _try_lock(handle)


def _try_lock(handle: int, *, shared: bool = False) -> bool | None:
    """Released by the system when the process ends, however it ends; None on a file system without locks."""
    try:
        if sys.platform == "win32":  # pragma: no cover
            import msvcrt

            os.lseek(handle, 1 << 20, os.SEEK_SET)  # beyond the text, which stays readable
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True
