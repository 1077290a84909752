"""Libraries built from C++ text, and kept in the user's cache from one process to the next."""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cmalight.compiled.layout import CannotCompile
from cmalight.files import ABANDONED_AFTER, remove_abandoned
from cmalight.locks import InUseError, acquired

_logger = logging.getLogger("cmalight")
_FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-fPIC", "-shared", "-w")
_PATIENCE_SECONDS = 120.0
# What was not used for so long goes when something new is built; and, beyond a total size, what was not for longest.
_UNUSED_SECONDS = 90 * 86400.0
_MOST_BYTES = 256 << 20
_BUILD = ".build."
_loaded: dict[str, ctypes.CDLL] = {}


class NoCompiler(CannotCompile):
    """There is none on this machine."""


def compiler() -> str:
    """The C++ compiler: CXX, or the first there is.

    Raises:
        NoCompiler: there is none.
    """
    return _command()[0]


def _command() -> tuple[str, ...]:
    """The compiler, and what else CXX names, as in `ccache g++`."""
    wanted = os.environ.get("CXX", "").strip()
    try:
        choices = [shlex.split(wanted)] if wanted else [["g++"], ["clang++"], ["c++"]]
    except ValueError:  # a quotation that does not end
        choices = [[wanted]]
    for words in choices:
        if (found := shutil.which(words[0])) is not None:
            return found, *words[1:]
    if wanted:
        raise NoCompiler(f"there is no C++ compiler: CXX is {wanted!r}, which is not found: install it, or set another")
    raise NoCompiler("there is no C++ compiler: install g++ or clang, or set CXX")


def compiler_identity() -> str:
    """Another one after an update, or with other arguments."""
    parts: list[object] = [_FLAGS, _native_flags()]
    for word in _command():
        path = Path(shutil.which(word) or word).resolve()
        about = path.stat() if path.is_file() else None
        parts.append((word, str(path), about and (about.st_size, about.st_mtime_ns)))
    return repr(parts)


def library(text: str) -> ctypes.CDLL:
    """The library built from `text`: from this process, from the cache, or built now.

    Args:
        text: C++ without includes of anything that is not the compiler's own, so that the text, the compiler, its
            flags and the processor are all that the library depends on.

    Raises:
        CannotCompile: it could not be built.
    """
    key = key_of(text)
    if key not in _loaded:
        folder, found = cache_folder(), None
        if folder is not None:
            try:
                found = _from(folder, key, text)
            except OSError as error:
                _say_once(_not_kept(folder, error))
        _loaded[key] = _built_aside(text) if found is None else found
    return _loaded[key]


def is_ready(text: str) -> bool:
    """Whether it need not be built."""
    key = key_of(text)
    return key in _loaded or ((folder := cache_folder()) is not None and _is_intact(folder / f"{key}.so"))


def remember(description: str) -> None:
    """That what is described so was built here, for who wants to guess whether it was before it is written."""
    if (folder := cache_folder()) is not None:
        with suppress(OSError):
            _mark(folder, description).touch()


def is_remembered(description: str) -> bool:
    """A guess; whether the library is there and intact is seen when it is wanted."""
    return (folder := cache_folder()) is not None and _mark(folder, description).exists()


def _mark(folder: Path, description: str) -> Path:
    try:
        identity = compiler_identity()
    except NoCompiler:
        identity = ""
    return folder / f"{hashlib.sha256((description + identity + processor()).encode()).hexdigest()[:32]}.built"


def key_of(text: str) -> str:
    """A name for what is built from the text here."""
    return hashlib.sha256(repr((text, compiler_identity(), processor())).encode()).hexdigest()[:32]


def cache_folder() -> Path | None:
    """Where libraries are kept; None, with a message once, where there is no folder that is the user's alone."""
    chosen = os.environ.get("CMALIGHT_CACHE")
    folder = (Path(chosen).expanduser() if chosen else _system_cache() / "cmalight") / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _is_own(folder):
            return folder
        _say_once(f"{folder} belongs to, or can be written by, others: what is compiled is not kept")
    except OSError as error:
        _say_once(_not_kept(folder, error))
    return None


def _from(folder: Path, key: str, text: str) -> ctypes.CDLL:
    """By the one process that has the lock, if it is not there yet."""
    path = folder / f"{key}.so"
    found = _intact(path)
    if found is None:
        with _alone(path):
            found = _intact(path) or _kept(text, path)
    return found


def _intact(path: Path) -> ctypes.CDLL | None:
    """The library, if it is there, the user's own and what was written."""
    if not _is_intact(path):
        return None
    try:
        found = ctypes.CDLL(str(path))
    except OSError:
        return None
    with suppress(OSError):
        os.utime(path)  # when it was used last
    return found


def _is_intact(path: Path) -> bool:
    try:
        expected = path.with_suffix(".sha256").read_text(encoding="ascii").strip()
        return _is_own(path) and _checksum(path.stem, path.read_bytes()) == expected
    except (OSError, ValueError):
        return False


def _checksum(key: str, content: bytes) -> str:
    """Of the key, too: an entry under another's name is not that one."""
    return hashlib.sha256(key.encode() + content).hexdigest()


def _kept(text: str, path: Path) -> ctypes.CDLL:
    _remove_abandoned_builds(path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_BUILD, suffix=".tmp") as place:
        made = Path(place) / "step.so"
        built = _built(text, made)
        try:
            checksum = made.with_suffix(".sha256")
            checksum.write_text(_checksum(path.stem, made.read_bytes()), encoding="ascii")
            for one in (checksum, made):  # the checksum first: without it nothing is loaded
                one.chmod(0o600)  # whatever the umask allows others
                target = path.with_suffix(one.suffix)
                target.unlink(missing_ok=True)  # one that was damaged may be mapped: who has it keeps what it has
                one.replace(target)
        except OSError as error:
            _say_once(_not_kept(path, error))
    _remove_unused(path.parent)
    return built


def _built_aside(text: str) -> ctypes.CDLL:
    """For this process alone."""
    try:
        with tempfile.TemporaryDirectory() as place:
            return _built(text, Path(place) / "step.so")
    except OSError as error:
        raise CannotCompile(f"{tempfile.gettempdir()} cannot be used ({error.strerror or error})") from error


def _not_kept(path: Path, error: OSError) -> str:
    return f"{path} cannot be used ({error.strerror or error}): what is compiled is not kept"


def _remove_abandoned_builds(folder: Path) -> None:
    """Of processes that were killed while they built."""
    remove_abandoned(folder)
    for place in folder.glob(f"{_BUILD}*.tmp"):
        with suppress(OSError):  # another process may clear up too
            if place.stat().st_mtime < time.time() - ABANDONED_AFTER:
                shutil.rmtree(place, ignore_errors=True)


def _remove_unused(folder: Path) -> None:
    """A library that another process has loaded stays with that process; what one is about to load is built anew."""
    found = []
    for path in (*folder.glob("*.so"), *folder.glob("*.built")):
        with suppress(OSError):  # another process may have removed it
            found.append((path.stat().st_mtime, path.stat().st_size, path))
    found.sort(reverse=True)
    room, unused_since = _MOST_BYTES, time.time() - _UNUSED_SECONDS
    for used, size, path in found:
        room -= size
        if room < 0 or used < unused_since:
            with suppress(OSError, InUseError), acquired(path.with_suffix(".lock")):
                path.unlink()
                path.with_suffix(".sha256").unlink(missing_ok=True)


def _built(text: str, path: Path) -> ctypes.CDLL:
    source = path.with_suffix(".cpp")
    source.write_text(text, encoding="utf-8")
    # What a compiler has no vector forms of functions for is linked without them.
    for extra in (("-lmvec", "-lm"), ("-lm",)):
        command = [*_command(), *_FLAGS, *_native_flags(), str(source), "-o", str(path), *extra]
        code, said = _run(command)
        if code == 0:
            return ctypes.CDLL(str(path))
        if "mvec" not in said:
            break
    if "No space left" in said:
        raise OSError(errno.ENOSPC, "no space left", str(path.parent))
    if code < 0:
        raise CannotCompile(f"{command[0]} was ended by the signal {-code}")
    lines = [line for line in said.splitlines() if "error" in line] or said.splitlines() or ["no message"]
    raise CannotCompile(f"{command[0]} says: {lines[0].strip()}")


def _run(command: list[str]) -> tuple[int, str]:
    """Its exit code and what it said; in a session of its own, which a Ctrl-C that means this process does not end."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    )
    try:
        _, said = process.communicate(timeout=_PATIENCE_SECONDS)
    except BaseException as error:
        _end(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise CannotCompile(f"{command[0]} was not done after {_PATIENCE_SECONDS:.0f} s") from error
        raise
    return process.returncode, said


def _end(process: subprocess.Popen[str]) -> None:
    """With those that it has started."""
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Waits while another process builds the same."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with acquired(path.with_suffix(".lock")):
                yield
            return
        except InUseError as error:
            if time.monotonic() > until:
                raise CannotCompile(f"{error}, for longer than a compiler takes") from error


def _is_own(path: Path) -> bool:
    """Whether nobody else can have put something there."""
    if sys.platform == "win32":
        return path.exists()
    about = path.stat()
    return about.st_uid == os.getuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _system_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _native_flags() -> tuple[str, ...]:
    arm = platform.machine().lower() in ("arm64", "aarch64")
    return ("-mcpu=native",) if arm else ("-march=native", "-mprefer-vector-width=512")


@functools.cache
def processor() -> str:
    """What the code of one machine may use that another may not have."""
    flags = ""
    if (about := Path("/proc/cpuinfo")).exists():
        lines = about.read_text(encoding="utf-8", errors="replace").splitlines()
        flags = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.system()} {platform.machine()} {platform.processor()} {flags}"


@functools.cache
def _say_once(message: str) -> None:
    _logger.warning("%s.", message)
