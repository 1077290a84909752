"""One driver per folder."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from cmalight import locks
from cmalight.locks import InUseError, Lock, Owner

_logger = logging.getLogger("cmalight.bench")


class FolderInUseError(RuntimeError):
    """Another driver works on the folder."""


@contextlib.contextmanager
def acquired(folder: Path) -> Iterator[Lock]:
    """Holds the folder's lock.

    Raises:
        FolderInUseError: at once, if another driver has it.
    """
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(locks.acquired(lock_path(folder)))
        except InUseError as error:
            raise FolderInUseError(
                f"{folder} is in use by {error.owner}: wait for it (its status says how far it is), or give another "
                "folder"
            ) from error
        if lock.left_by is not None:
            _logger.warning(
                "the driver before (process %d on %s) ended without giving %s back: going on where it stopped",
                lock.left_by.pid,
                lock.left_by.host,
                folder,
            )
        yield lock


def owner_alive(folder: Path) -> Owner | None:
    """Who works on the folder now."""
    return locks.owner_alive(lock_path(folder))


def lock_path(folder: Path) -> Path:
    """Whose file says who works on the folder."""
    return folder / "lock"
