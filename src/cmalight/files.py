"""Files that are written whole or not at all, and read only where what they unpack to fits a limit."""

from __future__ import annotations

import contextlib
import errno
import glob
import math
import os
import secrets
import stat
import time
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

LIMIT_VARIABLE = "CMALIGHT_MAX_BYTES"
DEFAULT_LIMIT = 1 << 30
_LARGEST_DESCRIPTION = 1 << 20  # of a TOML file
ABANDONED_AFTER = 3600.0  # seconds; whoever writes a file touches it more often


def check_outputs(outputs: Mapping[str, Path], inputs: Collection[Path]) -> None:
    """Finds out before the work what would make the writing fail after it; leaves nothing behind.

    Args:
        outputs: by the name of the option that asked for it.
    """
    taken = {path.resolve(): f"the input {path}" for path in inputs}
    for option, path in outputs.items():
        if path.resolve() in taken:
            raise ValueError(f"{option} would overwrite {taken[path.resolve()]}; give another path")
        taken[path.resolve()] = f"{option} {path}"
        _check_place(option, path)


def _check_place(option: str, path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{option} {path} is a directory; name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{option} {path}: there is no directory {path.parent}; make it first")
    if _is_device(path):
        return
    remove_abandoned(path.resolve().parent, path.resolve().name)
    _try_to_write(path, path)


def check_folder(folder: Path) -> None:
    """The same for files in a folder, which may have to be made."""
    place = next(one for one in (folder, *folder.resolve().parents) if one.exists())
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
    _try_to_write(place / "any", folder)


def _try_to_write(path: Path, asked_for: Path) -> None:
    probe = _temporary_beside(path)
    try:
        probe.write_bytes(b"can be written")
    except OSError as error:
        raise _about(asked_for, error) from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Each goes to a file beside its place; all are put in place once all are on the disk."""
    ready: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            place = path if _is_device(path) else _temporary_beside(path)
            if place != path:
                ready[place] = path.resolve()
            try:
                with place.open("wb") as file:
                    file.write(content)
                    file.flush()
                    if place != path:
                        os.fsync(file.fileno())
            except OSError as error:
                raise _about(path, error) from error
        for place, path in ready.items():
            place.replace(path)
    finally:
        for place in ready:
            place.unlink(missing_ok=True)


def unpacking_limit() -> int:
    """How many bytes a file may unpack to, or take as numbers in memory, before it is refused.

    Returns:
        The number in the environment variable CMALIGHT_MAX_BYTES, or 1 GiB.

    Raises:
        ValueError: the variable does not hold a positive number.
    """
    given = os.environ.get(LIMIT_VARIABLE, "")
    if not given:
        return DEFAULT_LIMIT
    try:
        limit = int(float(given))  # 4e9 is easier to write than ten digits
    except (ValueError, OverflowError):
        limit = 0
    if limit <= 0:
        raise ValueError(f"{LIMIT_VARIABLE} is {given!r}; expected a positive number of bytes, such as 4e9")
    return limit


def refuse_larger(what: str | Path, size: int, *, error: type[Exception] = ValueError) -> None:
    """Refuses what would take more than `unpacking_limit()` bytes, before it is unpacked.

    Args:
        what: the file, as the message names it.
        size: the bytes it would take, or those it has taken so far.
        error: the type to raise.

    Raises:
        Exception: of the type `error`, if the size is above the limit.
    """
    limit = unpacking_limit()
    if size > limit:
        raise error(
            f"{what} would take {_megabytes(size)} MB or more when it is read, above the limit of "
            f"{_megabytes(limit)} MB; if you trust it, raise that: {LIMIT_VARIABLE}={size} in the environment"
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g}" if size < 10**8 else str(size // 10**6)


@contextlib.contextmanager
def whole_file(path: Path, *, keep: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write to, which appears at `path` when the block ends without an error, and not before.

    Args:
        path: where it is to be; its folder is there already. What is there now stays until then.
        keep: where what is there now goes; it is overwritten otherwise.

    Yields:
        A binary file in the same folder, opened for writing.

    Raises:
        OSError: it could not be written; the message names `path`.
    """
    temporary, target = _temporary_beside(path), path.resolve()
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and target.exists():
            target.replace(keep)
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise _about(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_abandoned(folder: Path, name: str = "", *, after: float = ABANDONED_AFTER) -> None:
    """Removes what processes that were killed while they wrote left in a folder.

    Args:
        folder: its temporary files that nobody has written to for so long go; it need not exist.
        name: only those of the file of that name: the folder may be one that others use.
        after: seconds; -inf where nobody else can be writing.
    """
    oldest = time.time() - after
    for path in folder.glob(f".{glob.escape(name)}.*.tmp" if name else ".*.tmp"):
        with contextlib.suppress(OSError):  # another process may clear up too
            if path.stat().st_mtime < oldest:
                path.unlink()


def read_toml(path: Path, *, error: type[ValueError]) -> dict[str, Any]:
    """The tables of a TOML file.

    Args:
        path: of the file.
        error: the type to raise.

    Raises:
        ValueError: of the type `error`, if it is larger than a description can be, not text, or not TOML.
        OSError: it cannot be read.
    """
    if path.stat().st_size > _LARGEST_DESCRIPTION:
        raise error(f"{path} is larger than {_LARGEST_DESCRIPTION >> 20} MB, too large for a description: is it data?")
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except UnicodeDecodeError as wrong:
        raise error(f"{path} is not text in UTF-8 ({wrong.reason}): save it as such") from wrong
    except (tomllib.TOMLDecodeError, RecursionError) as wrong:
        raise error(f"{path} is not TOML: {wrong}") from wrong


def without_infinities(value: Any) -> Any:
    """The same for JSON, which has no NaN and no infinity: they become None, in dicts and lists, too."""
    if isinstance(value, dict):
        return {key: without_infinities(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_infinities(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sync_folder(folder: Path) -> None:
    """Makes renames in it last; a system that cannot open folders does without."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _temporary_beside(path: Path) -> Path:
    """In the folder of what a link points to, so that the last step is a rename within one disk."""
    target = path.resolve()
    return target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def _is_device(path: Path) -> bool:
    """/dev/stdout and pipes are written to directly: there is nothing to put in place."""
    return path.exists() and not stat.S_ISREG(path.stat().st_mode)


def _about(path: Path, error: OSError) -> OSError:
    return OSError(error.errno, error.strerror or str(error), str(path))
