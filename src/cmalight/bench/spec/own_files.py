"""The files behind a user's own data set: which they are, so that changed data never meets an old result."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from cmalight.datasets import DataError, dataset_info
from cmalight.datasets.fetching import locate, obtain, sha256_of


def is_own(source: str) -> bool:
    return source.lower().endswith(".toml")


def fetch_own_files(source: str, *, trust: bool = False) -> None:
    """Downloads what is not here; DataError if that cannot be done."""
    obtain(dataset_info(source, trust=trust))


def own_files_digest(source: str, *, trust: bool = False) -> str | None:
    """Of the description and of the files; one whose sha256 is in the description need not be here yet."""
    if not is_own(source):
        return None
    entry = dataset_info(source, trust=trust)
    files = [path for file in entry.files if not file.sha256 and (path := locate(entry, file))]
    digests = "\n".join(sha256_of(path) for path in (Path(source), *files))
    return hashlib.sha256(digests.encode()).hexdigest()


def check_own_files(source: str, planned: str | None, *, trust: bool = False) -> None:
    """That the files here are those that the run was planned with, maybe on another machine."""
    if planned is None:
        return
    fetch_own_files(source, trust=trust)
    if own_files_digest(source, trust=trust) != planned:
        raise DataError(
            f"{source} and its data on {platform.node()} are not those that the runs were planned with: give every "
            "machine the same files, leave them as they are while it runs, and call the same command again"
        )
