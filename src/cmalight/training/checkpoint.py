"""The file from which a killed run resumes: written atomically, read without running code from it."""

from __future__ import annotations

import copy
import glob
import io
import logging
import math
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from cmalight.files import write_atomically

logger = logging.getLogger("cmalight")

KIND = "cmalight-checkpoint"
VERSION = 3
SECONDS_BETWEEN_SAVES = 5.0

_ADVICE = "Remove it to start again, or give another path."


class CheckpointError(ValueError):
    """The file is not a checkpoint, is damaged, belongs to another run, or is in use by one."""


class CheckpointFile:
    """The checkpoint of one run. It always holds the state between two epochs.

    Args:
        path: Absolute, without links.
        identity: What must be equal for a checkpoint to be of this run, by name.

    Attributes:
        trouble: Why the last state could not be written; empty where it was.
    """

    def __init__(self, path: Path, identity: Mapping[str, str]) -> None:
        self._path = path
        self._identity = dict(identity)
        self._waiting: dict[str, Any] | None = None
        self._saved_at = -math.inf
        self.trouble = ""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other runs away from the file, and writes at the end what waits to be written.

        Raises:
            CheckpointError: Another run has it, or the path is not that of a regular file.
        """
        lock_path = self._path.with_name(self._path.name + ".lock")
        for path in (self._path, lock_path):
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise CheckpointError(f"{path} is not a regular file: give the path of one.")
        try:
            lock = FileLock(lock_path).acquire(timeout=0)
        except Timeout as error:
            raise CheckpointError(
                f"{self._path} is the checkpoint of a run that is under way: wait for it, or give another path."
            ) from error
        with lock:
            for half_written in self._path.parent.glob(f".{glob.escape(self._path.name)}.*.tmp"):  # by a killed run
                half_written.unlink(missing_ok=True)
            try:
                yield
            finally:
                self.flush()

    def read(self) -> dict[str, Any] | None:
        """The state that was written last; None where there is no file yet.

        Raises:
            CheckpointError: The file cannot be used; it is left alone.
        """
        if not self._path.exists():
            return None
        try:
            with zipfile.ZipFile(self._path) as archive:
                damaged = archive.testzip()  # torch does not look at checksums
            content = None if damaged else torch.load(self._path, map_location="cpu", weights_only=True)
        except Exception as error:  # a file may make the reader raise anything
            raise CheckpointError(f"{self._path} is damaged, or no checkpoint of cmalight. {_ADVICE}") from error
        if damaged:
            raise CheckpointError(f"{self._path} is damaged: a checksum does not fit. {_ADVICE}")
        if not isinstance(content, dict) or content.get("format") != KIND:
            raise CheckpointError(f"{self._path} is not a checkpoint of cmalight. {_ADVICE}")
        if content.get("version") != VERSION:
            raise CheckpointError(
                f"{self._path} has checkpoint format {content.get('version')}, but this version of cmalight reads "
                f"{VERSION}. {_ADVICE}"
            )
        self._require_the_same_run(content)
        return content

    def load(self, apply: Callable[[dict[str, Any]], None]) -> bool:
        """Give the saved state, if there is one, to `apply`.

        Returns:
            Whether there was one.

        Raises:
            CheckpointError: The file cannot be used, or `apply` could not use what is in it.
        """
        content = self.read()
        if content is None:
            return False
        try:
            apply(content["state"])
        except Exception as error:  # what is in a file may make a model or an optimizer raise anything
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(".")
            raise CheckpointError(f"Cannot resume from {self._path}: {reason}. {_ADVICE}") from error
        return True

    def keep(self, state: dict[str, Any]) -> None:
        """Write the state between two epochs, or, shortly after the last write, a copy of it later."""
        if time.monotonic() - self._saved_at >= SECONDS_BETWEEN_SAVES:
            self._waiting = state
            self.flush()
        else:
            self._waiting = copy.deepcopy(state)

    def flush(self) -> None:
        """Write a state that waits. A full disk does not end the run: the next save tries again."""
        if self._waiting is None:
            return
        self._saved_at = time.monotonic()
        content = {"format": KIND, "version": VERSION, "identity": self._identity, "state": self._waiting}
        try:
            write_atomically(self._path, lambda file: torch.save(content, file))
        except (OSError, RuntimeError) as error:  # torch turns a failed write into a RuntimeError
            if not self.trouble:
                logger.warning(
                    "%s could not be written (%s). Training goes on; the next save tries again.", self._path, error
                )
            self.trouble = f"the checkpoint {self._path} could not be written ({error})"
        else:
            self._waiting, self.trouble = None, ""

    def require_readable(self, parts: Mapping[str, Any]) -> None:
        """Find out before hours of training whether these parts of a state could be read back.

        Raises:
            CheckpointError: They hold more than tensors and plain values.
        """
        for name, part in parts.items():
            buffer = io.BytesIO()
            try:
                torch.save(part, buffer)
                torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
            except Exception as error:
                raise CheckpointError(
                    f"A checkpoint could not be read back: the {name} holds more than tensors and plain values "
                    "(numbers, text, lists, dicts). Change that, or leave out the checkpoint."
                ) from error

    def _require_the_same_run(self, content: dict[str, Any]) -> None:
        saved = content.get("identity")
        saved = saved if isinstance(saved, dict) else {}
        different = [name for name in {**self._identity, **saved} if saved.get(name) != self._identity.get(name)]
        if different:
            was = "; ".join(_difference(name, saved.get(name), self._identity.get(name)) for name in different)
            raise CheckpointError(
                f"{self._path} is the checkpoint of another run: {was}. "
                "Give another path, or remove the file to start again."
            )


def _difference(name: str, saved: object, own: object) -> str:
    """In words; a digest, after #, says only that contents differ."""
    was, now = (str(value).partition(" #")[0] for value in (saved, own))
    return f"{name} has other contents" if was == now else f"{name} was {was}, now {now}"
