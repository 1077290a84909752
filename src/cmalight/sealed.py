"""File contents that say what they are and whether they are intact, and are read without running anything in them."""

from __future__ import annotations

import ctypes
import hashlib
import io
import itertools
import warnings
from typing import Any
from zipfile import ZIP_STORED, ZipFile, is_zipfile

import torch
from torch import Tensor, nn

_DEEPEST = 100


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
    """Plain values and tensors as bytes, with a kind, a version and a checksum around them.

    What `unseal` would refuse, such as objects of own classes, is not looked for here (see `unreadable`).
    """
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
    """What `seal` was given.

    Takes a few times the memory that `data` has, whatever is in it.

    Raises:
        SealError: it is not exactly that.
    """
    outer = _loaded(data, ForeignError("not readable"))
    if not isinstance(outer, dict) or not _is(outer.get("format"), kind):
        raise ForeignError(f"not {kind}")
    if not _is(outer.get("version"), version):
        raise VersionError(outer.get("version"))
    content = outer.get("content")
    inner = bytes_of(content) if isinstance(content, Tensor) else b""
    if not _is(outer.get("sha256"), hashlib.sha256(inner).hexdigest()):
        raise DamagedError("checksum")
    plain = _loaded(inner, DamagedError("not readable"))
    if not isinstance(plain, dict):
        raise DamagedError(f"it holds a {type(plain).__name__}")
    return plain


def unreadable(content: dict[str, Any]) -> list[str]:
    """The keys whose values could be written, but not read back without running code from a file."""
    failed = []
    for name, value in content.items():
        try:
            _loaded(_saved({name: value}), ForeignError(name))
        except Exception:  # what cannot be pickled raises as it likes
            failed.append(name)
    return failed


def _is(found: object, expected: str | int) -> bool:
    """Equal, and of the same type: a tensor compares with anything, element by element."""
    return type(found) is type(expected) and found == expected


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
        _refuse_packed(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on formats, of no use for a damaged file
            value = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        _refuse_inflated(value, most=4 * len(data))
    except Exception as error:  # damaged and hostile bytes make the reader raise almost anything
        raise complaint from error
    return value


def _refuse_packed(data: bytes) -> None:
    """torch stores the parts of its files as they are: none is compressed, and no two share their bytes."""
    with ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
    if any(part.compress_type != ZIP_STORED or part.file_size != part.compress_size for part in parts):
        raise ValueError("it has compressed parts")
    if sum(part.file_size for part in parts) > len(data):
        raise ValueError("its parts take more than the whole")


def _refuse_inflated(value: object, *, most: int) -> None:
    """A value may hold one list many times in another, and a tensor one number many times: more than there is room for.

    Also what is nested too deeply, or holds itself, and tensors other than plain ones.
    """
    measured: dict[int, tuple[int, int]] = {}  # of every container, its members with all in them, and its depth

    def measure(thing: object, depth: int) -> tuple[int, int]:
        if isinstance(thing, Tensor):
            _refuse_odd(thing)
        if not isinstance(thing, dict | list | tuple | set | frozenset):
            return 1, 0
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        if id(thing) not in measured:
            members = itertools.chain(thing.keys(), thing.values()) if isinstance(thing, dict) else thing
            sizes = [measure(member, depth + 1) for member in members]
            measured[id(thing)] = 1 + sum(size for size, _ in sizes), 1 + max((d for _, d in sizes), default=0)
        return measured[id(thing)]

    size, depth = measure(value, 0)
    if size > most or depth > _DEEPEST:
        raise ValueError("it is nested too deeply, or too often")


def _refuse_odd(tensor: Tensor) -> None:
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise ValueError(f"it has a tensor that is a {tensor.layout} {type(tensor).__name__} on {tensor.device}")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError("it has a tensor with more numbers than are stored")
