"""Runs a spec into a folder: plans it, finds what is there already, and drives the rest."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cmalight.bench.running import nursery
from cmalight.bench.running.board import Board
from cmalight.bench.running.display import make_display
from cmalight.bench.running.driver import Driver, Summary
from cmalight.bench.running.executors import check_address, opened, workers_at_once
from cmalight.bench.spec.planning import PlannedRun, plan
from cmalight.bench.spec.study import Definition, Spec
from cmalight.bench.store import folder_status
from cmalight.bench.store.lock import acquired
from cmalight.bench.store.machine import versions
from cmalight.bench.store.results import (
    DataOfResults,
    ResultError,
    read_result,
    remove_leftovers,
    result_files,
    runs_folder,
    set_aside,
)
from cmalight.bench.store.schema import WITHOUT_A_RESULT, DriverCall
from cmalight.files import check_folder

_COMPARED = ("cmalight", "torch")  # whose other versions are named
_logger = logging.getLogger("cmalight.bench")


def run(
    spec: Spec,
    folder: str | Path,
    *,
    executor: str = "local",
    workers: int | None = None,
    progress: bool = False,
    retry_failed: bool = False,
) -> Summary:
    """Every run of the spec that `folder` has no result of yet.

    Args:
        spec: what to compare.
        folder: of the results; made where it is missing.
        executor: "local", or "dask://HOST:PORT".
        workers: runs at once on this machine; by default as many as its cores have room for.
        progress: a live table on a terminal, messages of the logger "cmalight.bench" otherwise.
        retry_failed: run those again that failed, crashed, timed out or ran out of memory; what they left stays until
            then.

    Returns:
        How it ended.

    Raises:
        SpecError: for a spec that cannot be run.
        FolderInUseError: while another driver works on the folder.
        ResultError: where the folder's results are on different data.

    Example:
        >>> from cmalight import bench
        >>> spec = bench.Spec(
        ...     datasets=("diabetes",),
        ...     networks=(bench.Network("1x5", name="1x5"),),
        ...     solvers=(bench.Solver("auto", name="auto"), bench.Solver("adam", name="adam", options={"lr": 0.01})),
        ...     max_epochs=3,
        ... )
        >>> bench.run(spec, "results", workers=1).recorded
        {'done': 2}
    """
    folder = Path(folder)
    check_address(executor, workers)
    if executor == "local":
        nursery.prepare(spec.threads)
    runs = plan(spec, fetch=True)
    check_folder(runs_folder(folder))
    runs_folder(folder).mkdir(parents=True, exist_ok=True)
    with acquired(folder) as lock:
        remove_leftovers(folder)
        at_once = workers_at_once(executor, workers, spec.threads)
        folder_status.add_call(folder, DriverCall(spec.to_plain(), [one.key for one in runs], at_once))
        board = Board(runs, at_once, spec.time_limit)
        left, data = _left(folder, runs, board, retry_failed=retry_failed)
        if not left:
            return Summary(len(runs), dict(board.recorded), board.reused, {}, {})
        session = secrets.token_hex(8)
        display = make_display(progress)
        try:
            with opened(executor, workers=at_once, hear=board.hear, session=session) as backend:
                return Driver(folder, lock, board, display, backend, session, data).drive(left)
        finally:
            display.close()
            folder_status.clear_progress(folder)


def _left(
    folder: Path, runs: Sequence[PlannedRun], board: Board, *, retry_failed: bool
) -> tuple[list[PlannedRun], DataOfResults]:
    """The runs without a result that can be trusted, and the data that the results of the folder are of."""
    planned = {one.key: one for one in runs}
    names = {one.definition.data_name for one in runs}
    there: set[str] = set()
    data = DataOfResults()
    here, others = versions(), Counter[str]()
    for path in result_files(folder):
        one = planned.get(path.stem)
        try:
            content = read_result(path)
        except ResultError as error:
            if one is not None:
                _logger.warning("%s; it is now %s, and the run is repeated", error, set_aside(path))
            continue
        if one is not None and not (retry_failed and content["status"] in WITHOUT_A_RESULT):
            there.add(one.key)
            board.record(one, content["status"], reused=True)
            was = content["environment"].get("versions", {})
            others.update(
                f"{name} {was[name]}" for name in _COMPARED if was.get(name, here.get(name)) != here.get(name)
            )
        definition = Definition.from_plain(content["run"])
        if definition.data_name in names and (other := data.contradiction(definition, content, path)):
            raise ResultError(f"{other}: remove those on the data that is not wanted, and their runs are repeated")
    for package, count in sorted(others.items()):
        current = here.get(package.split()[0])
        _logger.warning("%d results that are reused are of %s, and this is %s", count, package, current)
    return [one for one in runs if one.key not in there], data
