"""Checkpoints that a crash at any moment leaves whole: the last two are kept, and each knows whether it is intact."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cmalight import locks
from cmalight.files import remove_abandoned, whole_file
from cmalight.sealed import DamagedError, SealError, VersionError, seal, unreadable, unseal

KIND = "cmalight-checkpoint"
VERSION = 2


class CheckpointError(ValueError):
    """The file is not a checkpoint, is damaged, belongs to another run, or is in use by one."""


def previous_of(path: Path) -> Path:
    """Where the checkpoint before the last one is."""
    return path.with_name(path.name + ".previous")


@contextlib.contextmanager
def owned(path: Path) -> Iterator[locks.Lock]:
    """Keeps a checkpoint for one run at a time, and clears what a killed one left half-written.

    Raises:
        CheckpointError: another run has it.
    """
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is not a regular file: give the path of one.")
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(locks.acquired(path.with_name(path.name + ".lock")))
        except locks.InUseError as error:
            raise CheckpointError(
                f"{path} is the checkpoint of a run that is under way in {error.owner}: wait for it, "
                "or give another path."
            ) from error
        remove_abandoned(path.resolve().parent, path.resolve().name, after=-math.inf)
        yield lock


def save(content: dict[str, Any], path: Path) -> None:
    """Write a temporary file, force it to disk, and put it in place of the last one, which becomes the previous one.

    Raises:
        OSError: the disk is full, or the folder gone; the last checkpoint is still there.
    """
    data = seal(content, kind=KIND, version=VERSION)
    with whole_file(path, keep=previous_of(path)) as file:
        file.write(data)


def require_readable(content: dict[str, Any]) -> None:
    """Finds out before hours of training whether what is saved could be read back."""
    if failed := unreadable(content):
        raise CheckpointError(
            f"A checkpoint could not be read back: its parts {', '.join(failed)} hold more than plain values (numbers, "
            "text, lists, dicts) and tensors. Make get_extra_state() and the optimizer's state_dict() return only "
            "those, or leave out the checkpoint."
        )


def load_latest(path: Path) -> dict[str, Any] | None:
    """The content of the last checkpoint; None where there is none yet.

    A crash between the two renames of `save` leaves only the previous one, which is then the last.
    """
    if path.exists():
        try:
            return load(path)
        except CheckpointError as error:
            raise CheckpointError(f"{error} {advice(path)}") from error
    if previous_of(path).exists():
        return load(previous_of(path))
    return None


def load(path: Path) -> dict[str, Any]:
    """The content of a checkpoint file, verified."""
    try:
        return unseal(path.read_bytes(), kind=KIND, version=VERSION)
    except VersionError as error:
        raise CheckpointError(
            f"{path} has checkpoint format {error.found}, but this version of cmalight reads {VERSION}: "
            "use the version that wrote it, or update cmalight."
        ) from error
    except DamagedError as error:
        raise CheckpointError(f"{path} is damaged: its checksum does not fit its content.") from error
    except SealError as error:
        raise CheckpointError(f"{path} is damaged, or not a checkpoint of cmalight.") from error


def advice(path: Path) -> str:
    """What to do with a last checkpoint that cannot be used."""
    previous = previous_of(path)
    try:
        load(previous)
    except (CheckpointError, OSError):
        return "Remove it to begin anew, or give another path."
    return f"The checkpoint before it, {previous}, is intact: move it to {path} to go on from there, or remove both."
