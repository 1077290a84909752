"""The kernel as a shared library: built at first use, and kept in a private folder of the user's cache.

A build takes seconds and needs a C++ compiler; it depends on the source, the compiler, its flags and the processor,
whose digest is the name of the library. Nothing is loaded that another user could have written.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from cmalight.compiled import interface
from cmalight.compiled.interface import CannotCompile

SOURCE = Path(__file__).with_name("kernel.cpp")
_FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-fPIC", "-shared", "-w")
_PATIENCE_SECONDS = 300.0
_logger = logging.getLogger("cmalight")


def kernel() -> ctypes.CDLL:
    """The kernel: from this process, from the cache, or built now.

    Returns:
        The library, with the types of its functions declared.

    Raises:
        CannotCompile: The kernel cannot be built or loaded; the text says why in one line.
    """
    found = _kernel_or_reason()
    if isinstance(found, str):
        raise CannotCompile(found)
    return found


@functools.cache
def _kernel_or_reason() -> ctypes.CDLL | str:
    """Failures are remembered, and said once: a build that fails may take as long as one that succeeds."""
    if sys.platform == "win32":
        return "the kernel is not built on Windows"
    try:
        return _found_or_built()
    except CannotCompile as error:
        reason = str(error)
    except (OSError, AttributeError) as error:  # AttributeError: the compiler built something else
        reason = f"the kernel cannot be built or loaded: {' '.join(str(error).split())}"
    _logger.warning("Epochs are not compiled: %s", reason)
    return reason


def _found_or_built() -> ctypes.CDLL:
    command = build_command()
    folder = _private_folder()
    if folder is None:
        return _declared(_built(command, None))
    path = folder / f"kernel-{_key(command)}.so"
    with _locked(path.with_suffix(".lock")):
        return _declared(_load(path) or _built(command, path))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process builds, and the others wait for it. The lock ends with its process."""
    import fcntl  # not on Windows

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # some network file systems have no locks: each process may build then
            file = stack.enter_context(open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _built(command: list[str], path: Path | None) -> ctypes.CDLL:
    """Build the library, keep it at `path`, and load it from there, or, if that fails, from where it was built."""
    with tempfile.TemporaryDirectory(prefix="cmalight-") as place:  # readable and writable by the user alone
        built = build(Path(place) / "kernel.so", command)
        if path is not None:
            _keep(built, path)
        return (path and _load(path)) or ctypes.CDLL(str(built))


def build_command() -> list[str]:
    """The compiler and its flags: CXX, or the first compiler there is.

    Returns:
        Its words, without source and output.

    Raises:
        CannotCompile: There is no compiler.
    """
    wanted = os.environ.get("CXX", "").strip()
    try:
        choices = [shlex.split(wanted)] if wanted else [["g++"], ["clang++"], ["c++"]]
    except ValueError as error:
        raise CannotCompile(f"CXX={wanted!r} cannot be read: {error}") from error
    for words in choices:
        if (found := shutil.which(words[0])) is not None:
            arm = platform.machine().lower() in ("arm64", "aarch64")
            native = ("-mcpu=native",) if arm else ("-march=native", "-mprefer-vector-width=512")
            return [found, *words[1:], *_FLAGS, *native]
    raise CannotCompile(f"there is no C++ compiler ({wanted or 'g++, clang++, c++'}): install one, or set CXX")


def build(path: Path, command: list[str]) -> Path:
    """Compile the kernel.

    Args:
        path: Where the library is written.
        command: As `build_command` gives it.

    Returns:
        The path.

    Raises:
        CannotCompile: The compiler failed.
    """
    said = ""
    for libraries in (("-lmvec", "-lm"), ("-lm",)):  # glibc's vector functions are not on every system
        try:
            done = subprocess.run(
                [*command, str(SOURCE), "-o", str(path), *libraries],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PATIENCE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotCompile(f"{command[0]} failed: {error}") from error
        if done.returncode == 0 and path.exists():
            return path
        said = done.stderr
    lines = [line for line in said.splitlines() if "error" in line] or said.splitlines() or ["it wrote no library"]
    raise CannotCompile(f"{command[0]} failed: {lines[0].strip()}")


def _key(command: list[str]) -> str:
    compiler = Path(command[0]).resolve()
    about = compiler.stat()
    parts = (SOURCE.read_text(encoding="utf-8"), command, str(compiler), about.st_size, about.st_mtime_ns, _processor())
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _processor() -> str:
    """What code for this processor may use that another may not have."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8", errors="replace").splitlines() if about.exists() else []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.platform()} {platform.machine()} {platform.processor()} {features}"


def _private_folder() -> Path | None:
    """The folder of libraries; None, and a message, if others could write to it or to one of its parents."""
    cache = Path("cmalight")
    try:
        if chosen := os.environ.get("CMALIGHT_CACHE"):
            cache = Path(chosen).expanduser()
        elif sys.platform == "darwin":
            cache = Path.home() / "Library" / "Caches" / "cmalight"
        else:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cmalight"
        folder = (cache / "compiled").resolve()
        for one in reversed((folder, *folder.parents)):  # `mkdir(parents=True)` gives the mode to the last one only
            one.mkdir(mode=0o700, exist_ok=True)
        if all(_is_safe(one, is_parent=one != folder) for one in (folder, *folder.parents)):
            return folder
        reason = "others can write to it or to a folder above it"
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        reason = getattr(error, "strerror", None) or str(error)
    _logger.warning("The compiled kernel is not kept in %s: %s.", cache, reason)
    return None


def _is_safe(folder: Path, *, is_parent: bool) -> bool:
    about = folder.stat()
    others = stat.S_IWOTH if _is_private_group(about.st_gid) else stat.S_IWGRP | stat.S_IWOTH
    # With the sticky bit, as on /tmp, others cannot rename what is the user's.
    is_closed = not about.st_mode & others or (is_parent and bool(about.st_mode & stat.S_ISVTX))
    return about.st_uid in (0, os.getuid()) and is_closed


def _is_private_group(number: int) -> bool:
    """Whether a group is the user's alone. Under umask 002 the folders of the user's cache belong to it."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def _load(path: Path) -> ctypes.CDLL | None:
    """The library, if it is there and is what was written."""
    try:
        if _digest(path) != path.with_suffix(".sha256").read_text(encoding="ascii"):
            return None
        return ctypes.CDLL(str(path))
    except (OSError, ValueError):
        return None


def _keep(built: Path, path: Path) -> None:
    """Move a library and its digest to their place, each at once; only a message if that fails."""
    try:
        with tempfile.TemporaryDirectory(prefix="build-", dir=path.parent) as place:
            for name, content in ((path.with_suffix(".sha256"), _digest(built).encode()), (path, built.read_bytes())):
                aside = Path(place) / name.name
                aside.write_bytes(content)
                aside.chmod(0o600)
                os.replace(aside, name)
    except OSError as error:
        _logger.warning("The compiled kernel is not kept in %s: %s.", path.parent, error.strerror or error)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    for name in ("cmalight_workspace", "cmalight_check", "cmalight_run"):
        function = getattr(library, name)
        function.argtypes, function.restype = [ctypes.POINTER(interface.Job)], ctypes.c_int64
    library.cmalight_layout.argtypes, library.cmalight_layout.restype = [], ctypes.c_int64
    if library.cmalight_layout() != interface.layout():
        raise CannotCompile("the kernel has another interface than this package")
    library.cmalight_use.argtypes, library.cmalight_use.restype = [ctypes.c_void_p] * 2, None
    library.cmalight_use(*_products_of_torch())
    return library


def _products_of_torch() -> list[int | None]:
    """The addresses of `sgemm` and `dgemm` in the library that torch brings along, if this torch exports them."""
    try:
        found = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
        return [ctypes.cast(getattr(found, name), ctypes.c_void_p).value for name in ("sgemm_", "dgemm_")]
    except (OSError, AttributeError):
        return [None, None]
