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
from pathlib import Path

import filelock
import torch

from cmalight.compiled import interface
from cmalight.compiled.interface import CannotCompile
from cmalight.files import cache_folder, write_atomically

SOURCE = Path(__file__).with_name("kernel.cpp")
_FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-fPIC", "-shared", "-w")
_PATIENCE_SECONDS = 300.0
_logger = logging.getLogger("cmalight")


def kernel() -> ctypes.CDLL:
    """The kernel, from this process, from the cache, or built now; CannotCompile says in one line why there is none."""
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
        return _declared(_found_or_built())
    except CannotCompile as error:
        reason = str(error)
    # Errors of files and locks, of CXX, of a kernel of another version, of a build that takes too long.
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError) as error:
        reason = f"the kernel cannot be built or loaded: {' '.join(str(error).split())}"
    _logger.warning("Epochs are not compiled: %s", reason)
    return reason


def _found_or_built() -> ctypes.CDLL:
    command = build_command()
    with contextlib.ExitStack() as stack:
        folder = _private_folder()
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cmalight-")))
        path = folder / f"kernel-{_key(command)}.so"
        if not path.exists():
            stack.enter_context(filelock.FileLock(path.with_suffix(".lock"), timeout=_PATIENCE_SECONDS))
        if not path.exists():  # one process builds, and the others wait for it
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
            write_atomically(path, build(place / path.name, command).read_bytes())
        return ctypes.CDLL(str(path))


def build_command() -> list[str]:
    """The compiler, CXX or the first one there is, and its flags; CannotCompile if there is none."""
    wanted = shlex.split(os.environ.get("CXX", ""))
    for words in [wanted] if wanted else [["g++"], ["clang++"], ["c++"]]:
        if (found := shutil.which(words[0])) is not None:
            arm = platform.machine().lower() in ("arm64", "aarch64")
            native = ("-mcpu=native",) if arm else ("-march=native", "-mprefer-vector-width=512")
            return [found, *words[1:], *_FLAGS, *native]
    given = " ".join(wanted) or "g++, clang++, c++"
    raise CannotCompile(f"there is no C++ compiler ({given}): install one, or set CXX")


def build(path: Path, command: list[str]) -> Path:
    """Compile the kernel into a library at `path`, by the command of `build_command`; CannotCompile if that fails."""
    for libraries in (("-lmvec", "-lm"), ("-lm",)):  # glibc's vector functions are not on every system
        done = subprocess.run(
            [*command, str(SOURCE), "-o", str(path), *libraries],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        if done.returncode == 0 and path.exists():
            return path
    lines = done.stderr.splitlines()
    said = [line for line in lines if "error" in line] or lines or ["it wrote no library"]
    raise CannotCompile(f"{command[0]} failed: {said[0].strip()}")


def _key(command: list[str]) -> str:
    """What the code depends on: source, compiler, flags, and what this processor has that another may not have."""
    compiler, processor = Path(command[0]).resolve().stat(), Path("/proc/cpuinfo")
    lines = processor.read_text(encoding="utf-8", errors="replace").splitlines() if processor.exists() else []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    machine = f"{platform.platform()} {platform.machine()} {platform.processor()} {features}"
    parts = (SOURCE.read_text(encoding="utf-8"), command, compiler.st_size, compiler.st_mtime_ns, machine)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _private_folder() -> Path | None:
    """The folder of libraries; None, and a message, if others could write to it or put another in its place."""
    try:
        folder = (cache_folder() / "compiled").resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        is_private = about.st_uid == os.getuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if is_private and not any(map(_is_open, folder.parents)):
            return folder
        reason = f"others can write to {folder} or to a folder above it"
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        reason = str(error)
    _logger.warning("The compiled kernel is not kept in the cache: %s.", reason)
    return None


def _is_open(folder: Path) -> bool:
    """Whether anyone may rename what is in a folder; with the sticky bit, as on /tmp, only the owner may."""
    about = folder.stat()
    is_writable = bool(about.st_mode & stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX
    return is_writable or about.st_uid not in (0, os.getuid())


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    for name in ("cmalight_workspace", "cmalight_check", "cmalight_run"):
        function = getattr(library, name)
        function.argtypes, function.restype = [ctypes.POINTER(interface.Job)], ctypes.c_int64
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
