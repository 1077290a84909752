"""Files that appear complete or not at all, and the folder of what can be made again."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: str | Path, content: bytes | str | Callable[[BinaryIO], object]) -> None:
    """Write a file under a temporary name beside its place, then rename it; a failure leaves the old file as it was.

    Args:
        path: Where the file goes; its folder exists. A symbolic link is followed. A device or a pipe, such as
            /dev/stdout, is written to directly.
        content: Bytes, text (written as UTF-8), or a function that writes to the open binary file it is given.

    Raises:
        OSError: The file cannot be written; the error names `path`.
    """
    target = Path(path).resolve()
    in_place = target.exists() and not target.is_file() and not target.is_dir()
    temporary = target if in_place else target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            if not in_place:
                file.flush()
                os.fsync(file.fileno())
        if not in_place:
            os.replace(temporary, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        if not in_place:
            temporary.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Return the folder named in CMALIGHT_CACHE, or the one of this package among the user's caches."""
    if chosen := os.environ.get("CMALIGHT_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cmalight"
