"""How far a results folder is, for anybody who may read it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cmalight.bench.store.lock import owner_alive
from cmalight.bench.store.results import (
    LaterVersionError,
    ResultError,
    read_document,
    read_result,
    result_files,
    write_document,
)
from cmalight.bench.store.schema import DriverCall, DriverCalls, FolderProgress, Running, checked
from cmalight.locks import Owner

_logger = logging.getLogger("cmalight.bench")
_NO_PROGRESS = FolderProgress(running=[], seconds_left=None)
_SPEC_FORMAT, _PROGRESS_FORMAT, _VERSION = "cmalight-bench-spec", "cmalight-bench-progress", 1


@dataclass(frozen=True)
class Counts:
    """What `cmalight bench status` says.

    Attributes:
        recorded: how many runs have which status.
        damaged: the files that cannot be used.
        running: the runs that are under way.
        left: runs of all calls for the folder that have no result and are not running; None where no call is known.
        driver: who works on the folder now.
        seconds_left: an estimate, the driver's while there is one.
    """

    recorded: dict[str, int]
    damaged: tuple[str, ...]
    running: tuple[Running, ...]
    left: int | None
    driver: Owner | None
    seconds_left: float | None


def status(folder: str | Path) -> Counts:
    """How far a results folder is; it reads the folder alone: neither the data nor the solvers need be here.

    Args:
        folder: of the results.

    Returns:
        What is recorded, damaged, under way and left.

    Raises:
        ResultError: if it is no results folder.
    """
    folder = Path(folder)
    files = result_files(folder)
    calls = read_calls(folder)
    recorded: Counter[str] = Counter()
    there, damaged, seconds = set(), [], 0.0
    for path in files:
        try:
            content = read_result(path)
        except ResultError as error:
            damaged.append(str(error))
            continue
        there.add(content["key"])
        recorded[content["status"]] += 1
        seconds += content["finished"] - content["started"]
    driver = owner_alive(folder)
    progress = _read_progress(folder) if driver is not None else _NO_PROGRESS
    running = tuple(one for one in progress.running if one.key not in there)
    planned = {key for call in calls for key in call.keys}
    left = len(planned - there - {one.key for one in running}) if calls else None
    seconds_left = progress.seconds_left
    if seconds_left is None and left is not None and recorded:
        seconds_left = (left + len(running)) * seconds / sum(recorded.values()) / (calls[-1].workers or 1)
    return Counts(dict(recorded), tuple(damaged), running, left, driver, seconds_left)


def add_call(folder: Path, call: DriverCall) -> None:
    """Write down what was asked for."""
    write_calls(folder, joined_calls([*read_calls(folder), call]))


def joined_calls(calls: Sequence[DriverCall]) -> list[DriverCall]:
    """Without those whose runs are all in a later one."""
    kept: list[DriverCall] = []
    for call in calls:
        keys = set(call.keys)
        kept = [one for one in kept if not keys.issuperset(one.keys)]
        kept.append(call)
    return kept


def write_calls(folder: Path, calls: Sequence[DriverCall]) -> None:
    """In place of those that are known."""
    write_document(folder / "spec.json", _SPEC_FORMAT, _VERSION, {"calls": [asdict(call) for call in calls]})


def read_calls(folder: Path) -> list[DriverCall]:
    """Those that are known: results are good without them, so a damaged file is only worth a warning."""
    path = folder / "spec.json"
    try:
        return checked(DriverCalls, read_document(path, _SPEC_FORMAT, _VERSION)).calls
    except FileNotFoundError:
        return []
    except LaterVersionError:
        raise
    except ValueError as error:
        _logger.warning("%s cannot be used, so earlier calls for the folder are not known (%s)", path, error)
        return []


def write_progress(folder: Path, progress: FolderProgress) -> None:
    """What the driver knows, for those who look at the folder."""
    write_document(folder / "progress.json", _PROGRESS_FORMAT, _VERSION, {**asdict(progress), "time": time.time()})


def clear_progress(folder: Path) -> None:
    """Of a driver that has ended."""
    with suppress(OSError):
        (folder / "progress.json").unlink(missing_ok=True)


def _read_progress(folder: Path) -> FolderProgress:
    """A damaged one is as good as none: the next comes in a second."""
    try:
        return checked(FolderProgress, read_document(folder / "progress.json", _PROGRESS_FORMAT, _VERSION))
    except (OSError, ValueError):
        return _NO_PROGRESS
