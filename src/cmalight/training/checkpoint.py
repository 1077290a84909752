"""Checkpoints that a crash at any moment leaves whole: the last two are kept, and each knows whether it is intact."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cmalight.files import sync_folder
from cmalight.sealed import DamagedError, SealError, VersionError, seal, unseal

KIND = "cmalight-checkpoint"
VERSION = 1


class CheckpointError(ValueError):
    """The file is not a checkpoint, is damaged, or belongs to another run."""


def previous_of(path: Path) -> Path:
    """Where the checkpoint before the last one is."""
    return path.with_name(path.name + ".previous")


def save(content: dict[str, Any], path: Path) -> None:
    """Write a temporary file, force it to disk, and put it in place of the last one, which becomes the previous one."""
    data = seal(content, kind=KIND, version=VERSION)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            path.replace(previous_of(path))
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def load_latest(path: Path) -> dict[str, Any] | None:
    """The content of the last checkpoint; None where there is none yet.

    A crash between the two renames of `save` leaves only the previous one, which is then the last.
    """
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is not a regular file: give the path of one.")
    if path.exists():
        try:
            return load(path)
        except CheckpointError as error:
            raise CheckpointError(f"{error} {_advice(path)}") from error
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


def _advice(path: Path) -> str:
    previous = previous_of(path)
    try:
        load(previous)
    except (CheckpointError, OSError):
        return "Remove it to begin anew, or give another path."
    return f"The checkpoint before it, {previous}, is intact: move it to {path} to go on from there, or remove both."
