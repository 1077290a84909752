"""How far a results folder is, for anybody who may read it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cmalight.bench.board import View
from cmalight.bench.lock import Owner, owner_alive
from cmalight.bench.planning import plan
from cmalight.bench.results import (
    LaterVersionError,
    ResultError,
    read_document,
    read_result,
    result_path,
    runs_folder,
    write_document,
)
from cmalight.bench.spec import Plain, Spec, spec_from_plain

_SPEC_FORMAT, _PROGRESS_FORMAT, _VERSION = "cmalight-bench-spec", "cmalight-bench-progress", 1


@dataclass(frozen=True)
class Counts:
    """What `cmalight bench status` says.

    recorded: how many runs have which status
    left: runs without a result that are not running; None where no spec says what was planned
    driver: who works on the folder now
    seconds_left: an estimate, the driver's while there is one
    """

    recorded: dict[str, int]
    damaged: tuple[str, ...]
    running: tuple[Plain, ...]
    left: int | None
    driver: Owner | None
    seconds_left: float | None


def status(folder: str | Path) -> Counts:
    folder = Path(folder)
    if not runs_folder(folder).is_dir():
        raise ResultError(f"{folder} is not a results folder: there is no {runs_folder(folder)}")
    specs, workers = read_specs(folder)
    planned = {one.key: one for spec in specs for one in plan(spec, check=False)}
    recorded: Counter[str] = Counter()
    damaged, seconds = [], 0.0
    for path in [result_path(folder, key) for key in planned] or sorted(runs_folder(folder).glob("*.json")):
        try:
            content = read_result(path)
        except FileNotFoundError:
            continue
        except LaterVersionError:
            raise
        except ResultError as error:
            damaged.append(str(error))
            continue
        recorded[content["status"]] += 1
        seconds += content["finished"] - content["started"]
    driver = owner_alive(folder)
    progress = _read_progress(folder) if driver is not None else {}
    running: tuple[Plain, ...] = tuple(progress.get("running", ()))
    left = len(planned) - sum(recorded.values()) - len(running) if planned else None
    seconds_left = progress.get("seconds_left")
    if seconds_left is None and left is not None and recorded:
        seconds_left = (left + len(running)) * seconds / sum(recorded.values()) / (workers or 1)
    return Counts(dict(recorded), tuple(damaged), running, left, driver, seconds_left)


def write_spec(folder: Path, specs: Sequence[Spec], workers: int | None) -> None:
    """What the folder is for: the specs of the last call."""
    content = {"specs": [spec.to_plain() for spec in specs], "workers": workers}
    write_document(folder / "spec.json", _SPEC_FORMAT, _VERSION, content)


def read_specs(folder: Path) -> tuple[list[Spec], int | None]:
    path = folder / "spec.json"
    try:
        content = read_document(path, _SPEC_FORMAT, _VERSION)
    except FileNotFoundError:
        return [], None
    return [spec_from_plain(plain, origin=str(path)) for plain in content["specs"]], content["workers"]


def write_progress(folder: Path, view: View) -> None:
    running = [{**asdict(told), "run": str(run)} for run, told in view.running]
    content = {"running": running, "seconds_left": view.seconds_left, "time": time.time()}
    write_document(folder / "progress.json", _PROGRESS_FORMAT, _VERSION, content)


def clear_progress(folder: Path) -> None:
    with suppress(OSError):
        (folder / "progress.json").unlink(missing_ok=True)


def _read_progress(folder: Path) -> Plain:
    try:
        return read_document(folder / "progress.json", _PROGRESS_FORMAT, _VERSION)
    except (OSError, ResultError):
        return {}
