"""The file from which a killed run resumes: written atomically, read without running code from it.

A checkpoint belongs to a run if all that defines the run is equal, in words: `identity_of`.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import hashlib
import io
import logging
import math
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, TensorDataset

from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.state import ModuleState
from cmalight.files import write_atomically
from cmalight.training.data import length_of
from cmalight.training.history import EpochRecord, History

logger = logging.getLogger("cmalight")

KIND = "cmalight-checkpoint"
VERSION = 5
SECONDS_BETWEEN_SAVES = 5.0
TIME_FOR_SAVES = 0.05  # fraction of the run: a long history, or a large model, is saved less often

_ADVICE = "Remove it to start again, or give another path."
_PLAIN = bool | int | float | complex | str | bytes | None
_PARTS: dict[type, tuple[str, ...]] = {
    functools.partial: ("func", "args", "keywords"),
    CodeType: ("co_names", "co_consts"),
    FunctionType: ("__code__", "__defaults__", "__kwdefaults__", "__closure__"),
}


class CheckpointError(ValueError):
    """The file is not a checkpoint, is damaged, belongs to another run, or is in use by one."""


class CheckpointFile:
    """The checkpoint of one run: the state between two epochs, at an absolute path.

    `identity` is what must be equal for a checkpoint to belong to this run, by name. `problem` says why the last state
    could not be written.
    """

    def __init__(self, path: Path, identity: dict[str, str]) -> None:
        self.path = path
        self._identity = identity
        self._waiting: tuple[dict[str, Any], History, int] | None = None
        self._next_save = -math.inf
        self.problem = ""

    def __enter__(self) -> CheckpointFile:
        """Keep other runs away from the file; CheckpointError if one has it, or if it is no regular file."""
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
        """Give the saved state and history to `apply`; whether there is a file.

        CheckpointError: the file cannot be used, or `apply` cannot use what is in it; the file is left alone.
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
        content = cause = None
        try:
            with zipfile.ZipFile(self.path) as archive:
                if archive.testzip() is None:  # torch does not compare checksums
                    content = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:  # a file may make the reader raise anything
            cause = error
        if not isinstance(content, dict) or content.get("format") != KIND:
            raise CheckpointError(f"{self.path} is damaged, or no checkpoint of cmalight. {_ADVICE}") from cause
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
        try:
            buffer = io.BytesIO()
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
    """Put back what `pack_modules` gave for modules of the same build."""
    for module, values in zip(modules, saved["parameters"], strict=True):
        for name, parameter in module.named_parameters():
            if parameter.shape != values[name].shape:  # copy_ would broadcast
                raise ValueError("the saved weights belong to another model or loss")
            parameter.copy_(values[name])
    state = ModuleState(*modules)
    state.load_state_dict(saved["modules"])
    state.restore()


def identity_of(
    model: nn.Module,
    loss_fn: Any,
    optimizers: Sequence[Optimizer],
    batches: Any,
    validation: Any,
    settings: Mapping[str, Any],
) -> dict[str, str]:
    """What defines a run, one text per part. Limits are not in it, so a finished run may resume with larger ones.

    A loss counts by its name and its constants; what it computes with them is not seen. Tensors in memory count by
    their content, other data by length, batch size and sampler. The first of the optimizers has the options.
    """
    shapes = [(name, tuple(p.shape), p.dtype) for name, p in model.named_parameters()]
    shown = str(loss_fn) if isinstance(loss_fn, nn.Module) else _name(loss_fn)
    return {
        "model": f"{sum(p.numel() for p in model.parameters())} parameters #{_digest([str(model), str(shapes)])}",
        "loss": f"{shown} #{_digest(_constants(loss_fn))}",
        "optimizer": "/".join(dict.fromkeys(map(_name, optimizers))),
        **_options(optimizers),
        "data": _data(batches),
        "batches": _batching(batches),
        "validation data": _data(validation),
        **{name: str(value) for name, value in settings.items()},
    }


def _digest(parts: Iterable[Tensor | str]) -> str:
    """A short digest of tensors, by their bytes, and texts, in hexadecimal digits."""
    checksum = hashlib.blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, str):
            checksum.update(part.encode())
        elif part.numel():
            here = part.detach().cpu().contiguous()  # torch itself gives bytes only by way of NumPy
            checksum.update((ctypes.c_char * (here.numel() * here.element_size())).from_address(here.data_ptr()))
    return checksum.hexdigest()


def _options(optimizers: Sequence[Optimizer]) -> dict[str, str]:
    known = {name for optimizer in optimizers for name in optimizer.defaults} - {"params"}
    groups = optimizers[0].param_groups
    return {
        f"option {name}" + (f" of group {number}" if len(groups) > 1 else ""): str(value)
        for number, group in enumerate(groups)
        for name, value in group.items()
        if name in known
    }


def _data(batches: Any) -> str:
    if batches is None:
        return "none"
    inside = batches.dataset if isinstance(batches, DataLoader) else batches
    if isinstance(inside, TensorBatches | TensorDataset):
        return f"{[tuple(t.shape) for t in inside.tensors]} #{_digest(inside.tensors)}"
    if isinstance(inside, list | tuple):
        tensors = [leaf for leaf in tree_leaves(inside) if isinstance(leaf, Tensor)]
        return f"{len(inside)} batches #{_digest(tensors)}"
    return f"{_name(inside)} of {length_of(batches)} batches"


def _batching(batches: Any) -> str:
    if isinstance(batches, TensorBatches):
        return f"{batches.batch_size}, {batches.order}, seed {batches.seed}"
    return f"{batches.batch_size}, {_name(batches.sampler)}" if isinstance(batches, DataLoader) else _name(batches)


def _name(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))


def _constants(thing: Any, depth: int = 8) -> list[Tensor | str]:
    """Names and constants of a loss: defaults, closures, public attributes, numbers in its code.

    What training changes does not count: tensors that require a gradient, and buffers except the class weights of
    torch's losses.
    """
    if isinstance(thing, Tensor):
        return [] if thing.requires_grad else [thing]
    if isinstance(thing, _PLAIN):
        return [repr(thing)]
    kind = type(thing)
    parts: list[Any] = [getattr(thing, name, None) for name in _PARTS.get(kind, ())]
    if isinstance(thing, list | tuple):
        parts = list(thing)
    elif isinstance(thing, CellType):
        parts = [] if thing == CellType() else [thing.cell_contents]
    elif isinstance(thing, dict):
        parts = list(thing.items())
    elif isinstance(thing, nn.Module):
        buffers = list(thing.named_buffers()) if kind.__module__ == "torch.nn.modules.loss" else []
        parts = [_public(thing), buffers, kind.forward, *thing.children()]
    elif callable(thing) and not parts and not isinstance(thing, type):
        parts = [_public(thing), kind.__call__]
    return [_name(thing), *(found for part in parts for found in _constants(part, depth - 1))] if depth else []


def _public(thing: Any) -> list[tuple[str, Any]]:
    """The attributes that tell one loss from another: numbers and texts, also in containers."""
    attributes = getattr(thing, "__dict__", {}).items()
    public = [(name, value) for name, value in attributes if name != "training" and not name.startswith("_")]
    return [(name, value) for name, value in public if isinstance(value, _PLAIN | list | tuple | dict)]
