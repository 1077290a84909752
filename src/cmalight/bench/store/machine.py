"""What a run should say about where it ran, and the limit on its memory."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from cmalight.bench.spec.study import cores

PACKAGES = ("cmalight", "torch", "numpy", "schedulefree", "prodigyopt")
_MEGABYTE = 1 << 20


def load_average() -> float | None:
    """Of the last minute."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def physical_memory() -> float | None:
    """Megabytes; what a control group allows, where that is less."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        allowed = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        allowed = total
    return min(total, allowed) / _MEGABYTE


def facts(*, threads: int, concurrency: int | None) -> dict[str, Any]:
    """concurrency: how many runs at once were allowed on this machine; None where nobody knows."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": cores(),
        "threads": threads,
        "concurrency": concurrency,
        "load": load_average(),
        "pid": os.getpid(),
        "versions": {"python": platform.python_version(), **versions()},
    }


def versions() -> dict[str, str]:
    """Of the packages that figures may depend on, as far as they are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


@contextmanager
def limited_memory(megabytes: float | None) -> Iterator[None]:
    """What is allocated inside may grow by so much, where the system can limit that; beyond it there is MemoryError."""
    if megabytes is None or sys.platform == "win32":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _allocated() + int(megabytes * _MEGABYTE)
    hard = before[1]
    try:
        resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    except (ValueError, OSError):  # macOS refuses it
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _allocated() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
