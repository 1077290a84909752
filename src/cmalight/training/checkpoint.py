"""The file from which a killed run resumes: written atomically, read without running code from it."""

from __future__ import annotations

import glob
import io
import logging
import math
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import nn

from cmalight.evaluation.state import ModuleState
from cmalight.files import write_atomically
from cmalight.training.history import EpochRecord, History

logger = logging.getLogger("cmalight")

KIND = "cmalight-checkpoint"
VERSION = 5
SECONDS_BETWEEN_SAVES = 5.0
TIME_FOR_SAVES = 0.05  # of the run: a long history, or a large model, is saved less often

_ADVICE = "Remove it to start again, or give another path."


class CheckpointError(ValueError):
    """The file is not a checkpoint, is damaged, belongs to another run, or is in use by one."""


class CheckpointFile:
    """The checkpoint of one run: the state between two epochs, at an absolute path.

    `identity` is what must be equal for a checkpoint to belong to this run, by name. `problem` says why the last state
    could not be written.
    """

    def __init__(self, path: Path, identity: Mapping[str, str]) -> None:
        self.path = path
        self._identity = dict(identity)
        self._waiting: tuple[dict[str, Any], History, int] | None = None
        self._next_save = -math.inf
        self.problem = ""

    def __enter__(self) -> CheckpointFile:
        """Keep other runs away from the file.

        Raises:
            CheckpointError: Another run has it, or the path is not that of a regular file.
        """
        lock_path = self.path.with_name(self.path.name + ".lock")
        for path in (self.path, lock_path):
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise CheckpointError(f"{path} is not a regular file: give the path of one.")
        self._lock = FileLock(lock_path)
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise CheckpointError(
                f"{self.path} is the checkpoint of a run that is under way: wait for it, or give another path."
            ) from error
        for half_written in self.path.parent.glob(f".{glob.escape(self.path.name)}.*.tmp"):  # by a killed run
            half_written.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Write what waits to be written, and let the file go."""
        try:
            self._save()
        finally:
            self._lock.release()

    def load(self, apply: Callable[[dict[str, Any], History], None]) -> bool:
        """Give the saved state and history, if there is a file, to `apply`.

        Returns:
            Whether there was one.

        Raises:
            CheckpointError: The file cannot be used, or `apply` could not use what is in it; the file is left alone.
        """
        if not self.path.exists():
            return False
        content = self._read()
        try:
            apply(content["state"], History(EpochRecord(**row) for row in content["history"]))
        except Exception as error:  # what is in a file may make a model or an optimizer raise anything
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(".")
            raise CheckpointError(f"Cannot resume from {self.path}: {reason}. {_ADVICE}") from error
        return True

    def _read(self) -> dict[str, Any]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                damaged = archive.testzip()  # torch does not compare checksums
            content = None if damaged else torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:  # a file may make the reader raise anything
            raise CheckpointError(f"{self.path} is damaged, or no checkpoint of cmalight. {_ADVICE}") from error
        if not isinstance(content, dict) or content.get("format") != KIND:
            raise CheckpointError(
                f"{self.path} is {'damaged' if damaged else 'not a checkpoint of cmalight'}. {_ADVICE}"
            )
        if (version := content.get("version")) != VERSION:
            raise CheckpointError(
                f"{self.path} has checkpoint format {version}, but this version of cmalight reads {VERSION}. {_ADVICE}"
            )
        self._require_the_same_run(content["identity"])
        return content

    def keep(self, state: dict[str, Any], history: History) -> None:
        """Write a copy of the state between two epochs now, or later if the last write was just before."""
        self._waiting = state, history, len(history)  # a history only grows
        if time.monotonic() >= self._next_save:
            self._save()

    def _save(self) -> None:
        """Write a state that waits. A full disk does not end the run: the next save tries again."""
        if self._waiting is None:
            return
        started = time.monotonic()
        state, history, epochs = self._waiting
        content = {"format": KIND, "version": VERSION, "identity": self._identity}
        content |= {"state": state, "history": [vars(record) for record in history[:epochs]]}
        try:
            write_atomically(self.path, lambda file: torch.save(content, file))
        except (OSError, RuntimeError) as error:
            problem = f"the checkpoint {self.path} could not be written: {_reason(error)}"
            if not self.problem:
                logger.warning("%s. Training goes on; the next save tries again.", problem)
            self.problem = problem
        else:
            self._waiting, self.problem = None, ""
        ended = time.monotonic()
        self._next_save = ended + max(SECONDS_BETWEEN_SAVES, (ended - started) / TIME_FOR_SAVES)

    def require_readable(self, state: dict[str, Any]) -> None:
        """Find out before hours of training whether such a state could be read back."""
        buffer = io.BytesIO()
        try:
            torch.save(state, buffer)
            buffer.seek(0)
            torch.load(buffer, weights_only=True)
        except Exception as error:
            raise CheckpointError(
                "A checkpoint could not be read back: the optimizer, or extra state of model or loss, holds more than "
                "tensors and plain values (numbers, text, lists, dicts). Change that, or leave out the checkpoint."
            ) from error

    def _require_the_same_run(self, saved: Mapping[str, str]) -> None:
        """A digest, after #, says only that contents differ."""
        different = []
        for name in {**self._identity, **saved}:
            before, now = str(saved.get(name)), str(self._identity.get(name))
            if before.partition(" #")[0] != now.partition(" #")[0]:
                different.append(f"{name} was {before.partition(' #')[0]}, now {now.partition(' #')[0]}")
            elif before != now:
                different.append(f"{name} has other contents")
        if different:
            raise CheckpointError(
                f"{self.path} is the checkpoint of another run: {'; '.join(different)}. "
                "Give another path, or remove the file to start again."
            )


def _reason(error: OSError | RuntimeError) -> str:
    """The system's words for a failed write, which torch's writer hides behind an error about its position."""
    cause = error if isinstance(error, OSError) else error.__context__
    return cause.strerror or str(cause) if isinstance(cause, OSError) else str(error)


def pack_modules(modules: Sequence[nn.Module]) -> dict[str, Any]:
    """A copy of all parameters, buffers and extra state, as tensors and plain values."""
    parameters = [{name: p.detach().clone() for name, p in module.named_parameters()} for module in modules]
    return {"parameters": parameters, "modules": ModuleState(*modules).state_dict()}


@torch.no_grad()
def unpack_modules(modules: Sequence[nn.Module], saved: dict[str, Any]) -> None:
    """Put back what `pack_modules` gave for modules of the same build.

    Raises:
        ValueError: The parameters have other names or shapes; nothing is changed then.
    """
    here = [dict(module.named_parameters()) for module in modules]
    shapes, found = (
        [{n: tuple(p.shape) for n, p in one.items()} for one in side] for side in (here, saved["parameters"])
    )
    if shapes != found:
        raise ValueError("the saved weights belong to another model")
    for one, values in zip(here, saved["parameters"], strict=True):
        for name, parameter in one.items():
            parameter.copy_(values[name])
    state = ModuleState(*modules)
    state.load_state_dict(saved["modules"])
    state.restore()
