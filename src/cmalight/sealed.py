"""File contents that say what they are and whether they are intact, and are read without running anything in them."""

from __future__ import annotations

import ctypes
import hashlib
import io
import warnings
from typing import Any
from zipfile import is_zipfile

import torch
from torch import Tensor


class SealError(ValueError):
    """The content cannot be read; the caller says what that means for its files."""


class ForeignError(SealError):
    """It is something else, or cut off beyond recognition."""


class VersionError(SealError):
    """It is of a version that is not known here."""

    def __init__(self, found: object) -> None:
        super().__init__(f"version {found!r}")
        self.found = found


class DamagedError(SealError):
    """Its checksum does not fit."""


def seal(content: dict[str, Any], *, kind: str, version: int) -> bytes:
    """Plain values and tensors as bytes, with a kind, a version and a checksum around them."""
    data = _saved(content)
    return _saved(
        {
            "format": kind,
            "version": version,
            "sha256": hashlib.sha256(data).hexdigest(),
            "content": torch.frombuffer(bytearray(data), dtype=torch.uint8),
        }
    )


def unseal(data: bytes, *, kind: str, version: int) -> dict[str, Any]:
    """What `seal` was given; a SealError for anything that is not exactly that."""
    outer = _loaded(data, ForeignError("not readable"))
    if not isinstance(outer, dict) or outer.get("format") != kind:
        raise ForeignError(f"not {kind}")
    if outer.get("version") != version:
        raise VersionError(outer.get("version"))
    content = outer.get("content")
    inner = bytes_of(content) if isinstance(content, Tensor) else b""
    if hashlib.sha256(inner).hexdigest() != outer.get("sha256"):
        raise DamagedError("checksum")
    plain: dict[str, Any] = _loaded(inner, DamagedError("not readable"))
    return plain


def bytes_of(tensor: Tensor) -> bytes:
    """The bytes of a tensor's elements; torch itself has this only by way of NumPy."""
    tensor = tensor.detach().cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _saved(value: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _loaded(data: bytes, complaint: SealError) -> Any:
    if not is_zipfile(io.BytesIO(data)):  # torch's older formats are not ours
        raise complaint
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on formats, of no use to who has a damaged file
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # damaged and hostile bytes make the reader raise almost anything
        raise complaint from error
