"""One owner of a file or a folder: a lock that the system releases when its owner dies, and that says who that is."""

from __future__ import annotations

import contextlib
import errno
import json
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


@dataclass(frozen=True)
class Owner:
    """The process that has a lock.

    Attributes:
        pid: its number.
        host: its machine.
        since: when it took the lock.
    """

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class InUseError(RuntimeError):
    """Another process has the lock.

    Attributes:
        owner: as people read it.
    """

    def __init__(self, path: Path, owner: Owner | None) -> None:
        self.owner = "another process" if owner is None else str(owner)
        super().__init__(f"{path} is held by {self.owner}")


class Lock:
    """Held from `acquired` on.

    Attributes:
        left_by: the owner before, if it died without giving the lock back.
    """

    def __init__(self, path: Path, left_by: Owner | None) -> None:
        self.left_by = left_by
        self._path = path
        self._next_beat = 0.0

    def beat(self) -> None:
        """Shows that the owner is alive."""
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + _HEARTBEAT_SECONDS
            with contextlib.suppress(OSError):
                os.utime(self._path)


@contextlib.contextmanager
def acquired(path: Path) -> Iterator[Lock]:
    """Takes the lock, and gives it back at the end.

    Args:
        path: of a file for the lock alone, in a folder that is there; it is removed in the end.

    Raises:
        InUseError: at once, if another process has it.
    """
    handle = _open_and_lock(path)
    try:
        left_by = _take_over(path, handle)
        try:
            yield Lock(path, left_by)
        finally:
            with contextlib.suppress(OSError):  # Windows removes no open file
                _write(handle.number, "")
                path.unlink()
    finally:
        os.close(handle.number)


def owner_alive(path: Path) -> Owner | None:
    """Who has the lock now.

    Args:
        path: as for `acquired`.
    """
    owner = _owner(path)
    if owner is None:
        return None
    if owner.host != platform.node():
        return owner if _is_recent(path) else None
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        locked = _try_lock(handle, shared=True)
        alive = _is_recent(path) if locked is None else not locked
        return owner if alive else None
    finally:
        os.close(handle)


@dataclass(frozen=True)
class _Handle:
    number: int
    has_lock: bool  # False where the file system knows none


def _open_and_lock(path: Path) -> _Handle:
    """Of the file that is at the path: the owner before may have removed the one that was opened."""
    while True:
        number = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            locked = _lock_soon(number)
            if locked is False:
                raise InUseError(path, _owner(path))
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(number), path.stat()):
                    return _Handle(number, has_lock=bool(locked))
        except BaseException:
            os.close(number)
            raise
        os.close(number)


def _take_over(path: Path, handle: _Handle) -> Owner | None:
    """Writes down the new owner; gives the one before, if it died."""
    previous = _owner(path)
    if previous is not None:
        may_be_alive = not handle.has_lock or previous.host != platform.node()
        if may_be_alive and _is_recent(path):
            raise InUseError(path, previous)
    with contextlib.suppress(OSError):  # a full disk: the lock holds, but does not say whose it is
        _write(
            handle.number, json.dumps(asdict(Owner(os.getpid(), platform.node(), time.strftime("%Y-%m-%d %H:%M:%S"))))
        )
    return previous


def _owner(path: Path) -> Owner | None:
    try:
        owner = Owner(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    texts = isinstance(owner.host, str) and isinstance(owner.since, str)
    return owner if texts and isinstance(owner.pid, int) else None


def _is_recent(path: Path) -> bool:
    """By the clock of the file system, which all machines share."""
    probe = path.with_name(f".clock.{os.getpid()}.tmp")
    try:
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime < _SILENT_SECONDS
    except OSError:
        return path.exists() and time.time() - path.stat().st_mtime < _SILENT_SECONDS
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def _write(handle: int, text: str) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0) if sys.platform != "win32" else os.write(handle, text.encode())


def _lock_soon(handle: int) -> bool | None:
    """`owner_alive` takes the lock for a moment, which is no owner."""
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
