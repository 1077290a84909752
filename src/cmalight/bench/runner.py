"""The driver: plans, hands runs to an executor, writes down what comes back, and loses nothing on the way."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cmalight.bench import folder_status
from cmalight.bench.board import Board, View
from cmalight.bench.display import Display, make_display
from cmalight.bench.executors import Backend, check_address, opened
from cmalight.bench.lock import Lock, acquired
from cmalight.bench.planning import PlannedRun, plan
from cmalight.bench.results import (
    LaterVersionError,
    ResultError,
    read_result,
    remove_leftovers,
    result_path,
    runs_folder,
    set_aside,
    write_result,
)
from cmalight.bench.spec import Plain, Spec
from cmalight.bench.supervise import execute
from cmalight.bench.training import CRASHED, NO_DATA, Job, Report, without_figures

_TICK = 0.5
_PROGRESS_SECONDS = 1.0
_ATTEMPTS = 2
_logger = logging.getLogger("cmalight.bench")

Work = Callable[[Job, Report], Plain]


@dataclass(frozen=True)
class Summary:
    """How it ended.

    recorded: how many runs have which status, those of earlier calls included
    not_written: runs that ended, but whose files could not be written; the next call runs them again
    without_data: data sets that could not be had, with the reason; their runs are left
    """

    total: int
    recorded: dict[str, int]
    reused: int
    not_written: dict[str, str]
    without_data: dict[str, str]

    @property
    def is_complete(self) -> bool:
        return sum(self.recorded.values()) == self.total


def run(
    spec: Spec,
    folder: str | Path,
    *,
    executor: str = "local",
    workers: int | None = None,
    progress: bool = False,
) -> Summary:
    """Every run of the spec that `folder` has no result of yet.

    executor: "local", or "dask://HOST:PORT"
    workers: runs at once on this machine; by default as many as its cores have room for
    progress: a live table on a terminal, messages of the logger "cmalight.bench" otherwise
    """
    folder = Path(folder)
    check_address(executor, workers)
    runs = plan(spec)
    _make_place(folder)
    with acquired(folder) as lock:
        remove_leftovers(folder)
        folder_status.write_spec(folder, [spec], workers)
        board = Board(runs, workers, spec.time_limit)
        left = _left(folder, runs, board)
        if not left:
            return Summary(len(runs), dict(board.recorded), board.reused, {}, {})
        display = make_display(progress)
        try:
            with opened(executor, workers=workers, threads=spec.threads, hear=board.hear) as backend:
                board.workers = backend.workers
                return Driver(folder, lock, board, display, backend).drive(left)
        finally:
            display.close()
            folder_status.clear_progress(folder)


def _make_place(folder: Path) -> None:
    """Finds out before the work whether its results can be written."""
    runs_folder(folder).mkdir(parents=True, exist_ok=True)
    probe = runs_folder(folder) / ".probe.tmp"
    try:
        probe.write_bytes(b"can be written")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def _left(folder: Path, runs: Sequence[PlannedRun], board: Board) -> list[PlannedRun]:
    """The runs without a result that can be trusted."""
    left = []
    for one in runs:
        path = result_path(folder, one.key)
        if not path.exists():
            left.append(one)
            continue
        try:
            board.record(read_result(path)["status"], None)
        except LaterVersionError:
            raise
        except ResultError as error:
            _logger.warning("%s; it is now %s, and the run is repeated", error, set_aside(path))
            left.append(one)
    return left


@dataclass
class Driver:
    """Submits, waits, writes."""

    folder: Path
    lock: Lock
    board: Board
    display: Display
    backend: Backend
    work: Work = execute
    ended: queue.SimpleQueue[tuple[PlannedRun, int, Future[Plain]]] = field(default_factory=queue.SimpleQueue)
    waiting: dict[str, tuple[PlannedRun, Plain]] = field(default_factory=dict)
    not_written: dict[str, str] = field(default_factory=dict)
    without_data: dict[str, str] = field(default_factory=dict)

    def drive(self, left: Sequence[PlannedRun]) -> Summary:
        for one in left:
            self._submit(one, attempt=1)
        open_runs, next_progress = len(left), 0.0
        while open_runs:
            with suppress(queue.Empty):
                open_runs -= self._concluded(*self.ended.get(timeout=_TICK))
            self.lock.beat()
            view = self.board.view()
            self.display.tick(view)
            if time.monotonic() >= next_progress:
                next_progress = time.monotonic() + _PROGRESS_SECONDS
                self._publish(view)
        self._write_waiting()
        recorded = dict(self.board.recorded)
        return Summary(len(self.board.runs), recorded, self.board.reused, self.not_written, self.without_data)

    def _submit(self, one: PlannedRun, attempt: int) -> None:
        job = Job(
            one.key,
            one.source,
            one.definition,
            one.killed_after,
            self.backend.memory_limit,
            self.backend.workers if self.backend.on_one_machine else None,
        )
        future = self.backend.executor.submit(self.work, job, self.backend.report)
        future.add_done_callback(lambda done: self.ended.put((one, attempt, done)))

    def _concluded(self, one: PlannedRun, attempt: int, future: Future[Plain]) -> bool:
        """Whether the run is over; one that crashed gets a second chance."""
        content = self._content(one, future)
        again = content["status"] == CRASHED and attempt < _ATTEMPTS
        self.board.ends(one.key, for_good=not again)
        if again:
            _logger.warning("%s crashed (%s) and is tried once more", one, content["error"]["message"])
            self._submit(one, attempt + 1)
            return False
        if content["status"] == NO_DATA:
            self._skip(one, content)
            return True
        self._record(one, {**content, "attempts": attempt})
        return True

    def _content(self, one: PlannedRun, future: Future[Plain]) -> Plain:
        try:
            return future.result()
        except CancelledError as error:
            raise RuntimeError(
                "the executor gave up its runs, as a Dask scheduler does when it ends: what is finished is kept; "
                "the same command goes on from there"
            ) from error
        except BrokenExecutor as error:
            raise RuntimeError(f"the executor broke: {error}; the same command goes on from there") from error
        except Exception as error:  # a worker of a cluster that died with the run, for one
            job = Job(one.key, one.source, one.definition)
            message = f"its worker was lost ({type(error).__name__}: {error})"
            return without_figures(job, CRASHED, message, environment={})  # this machine is not the one it ran on

    def _skip(self, one: PlannedRun, content: Plain) -> None:
        if one.dataset not in self.without_data:
            self.without_data[one.dataset] = str(content["error"]["message"])
            _logger.warning("%s cannot be had, its runs are left out: %s", one.dataset, content["error"]["message"])

    def _record(self, one: PlannedRun, content: Plain) -> None:
        self.waiting[one.key] = (one, content)
        self._write_waiting()

    def _write_waiting(self) -> None:
        """What a full disk did not take is kept and tried again with the next result."""
        for key, (one, content) in list(self.waiting.items()):
            try:
                write_result(self.folder, key, content)
            except OSError as error:
                if key not in self.not_written:
                    _logger.warning("%s could not be written (%s); it is kept and tried again", one, error)
                self.not_written[key] = str(error)
                continue
            del self.waiting[key]
            self.not_written.pop(key, None)
            self.board.record(content["status"], content["finished"] - content["started"])
            self.display.recorded(one, content, self.board.view())

    def _publish(self, view: View) -> None:
        with suppress(OSError):
            folder_status.write_progress(self.folder, view)
