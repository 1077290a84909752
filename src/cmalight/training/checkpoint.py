"""Checkpoints that a crash at any moment leaves whole: the last two are kept, and each knows whether it is intact."""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
from pathlib import Path
from typing import Any

import torch

FORMAT = "cmalight-checkpoint"
VERSION = 1


class CheckpointError(ValueError):
    """The file is not a checkpoint, is damaged, or belongs to another run."""


def previous_of(path: Path) -> Path:
    """Where the checkpoint before the last one is."""
    return path.with_name(path.name + ".previous")


def save(content: dict[str, Any], path: Path) -> None:
    """Write a temporary file, force it to disk, and put it in place of the last one, which becomes the previous one."""
    inner = io.BytesIO()
    torch.save(content, inner)
    data = inner.getvalue()
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            torch.save(
                {
                    "format": FORMAT,
                    "version": VERSION,
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "content": torch.frombuffer(bytearray(data), dtype=torch.uint8),
                },
                file,
            )
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            path.replace(previous_of(path))
        temporary.replace(path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def load_latest(path: Path) -> dict[str, Any] | None:
    """The content of the last checkpoint; None where there is none yet.

    A crash between the two renames of `save` leaves only the previous one, which is then the last.
    """
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
    outer = _read(path, path)
    if not isinstance(outer, dict) or outer.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of cmalight.")
    if outer.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has checkpoint format {outer.get('version')}, but this version of cmalight reads {VERSION}: "
            "use the version that wrote it, or update cmalight."
        )
    content = outer.get("content")
    data = bytes_of(content) if isinstance(content, torch.Tensor) else b""
    if hashlib.sha256(data).hexdigest() != outer.get("sha256"):
        raise CheckpointError(f"{path} is damaged: its checksum does not fit its content.")
    inner: dict[str, Any] = _read(io.BytesIO(data), path)
    return inner


def bytes_of(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor's elements; torch itself has this only by way of NumPy."""
    tensor = tensor.detach().cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _read(source: Path | io.BytesIO, path: Path) -> Any:
    try:
        return torch.load(source, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # a damaged file makes the reader fail in any way at all
        raise CheckpointError(f"{path} is damaged, or not a checkpoint of cmalight.") from error


def _advice(path: Path) -> str:
    previous = previous_of(path)
    try:
        load(previous)
    except (CheckpointError, OSError):
        return "Remove it to begin anew, or give another path."
    return f"The checkpoint before it, {previous}, is intact: move it to {path} to go on from there, or remove both."


def _sync_folder(folder: Path) -> None:
    """Makes the renames last; a system that cannot open folders does without."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
