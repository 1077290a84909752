"""The driver's loop: hands runs to an executor, writes down what comes back, and loses nothing on the way."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cmalight.bench.running.board import Board, View
from cmalight.bench.running.display import Display
from cmalight.bench.running.executors import Backend
from cmalight.bench.running.one_run import (
    ATTEMPTS,
    CRASHED,
    NO_DATA,
    NOT_IMPORTABLE,
    NOT_STARTED,
    STATUSES,
    Job,
    different_data,
    without_figures,
)
from cmalight.bench.spec.planning import PlannedRun
from cmalight.bench.spec.study import Plain
from cmalight.bench.store import folder_status
from cmalight.bench.store.results import DataOfResults, write_result
from cmalight.bench.store.schema import WITHOUT_A_RESULT, FolderProgress, Running
from cmalight.locks import Lock

_TICK = 0.5
_PROGRESS_SECONDS = 1.0
_GOES_ON = "what is finished is kept, and the same command goes on from there"
# What a message calls that which a run lacks, by its status.
_LEFT_FOR_LATER = {
    NO_DATA: "data set {0.dataset}",
    NOT_IMPORTABLE: "solver {0.solver.name} on network {0.network.name}",
    NOT_STARTED: "a process for {0}",
}
_logger = logging.getLogger("cmalight.bench")


@dataclass(frozen=True)
class Summary:
    """How the runs of a spec ended.

    Attributes:
        total: how many runs the spec has.
        recorded: how many runs have which status, those of earlier calls included.
        reused: how many of them are of earlier calls.
        not_written: runs that ended, but whose files could not be written; the next call runs them again.
        left_out: what could not be had (a data set, a solver that a machine does not have, ...) with the reason; the
            runs that need it are left for the next call.
    """

    total: int
    recorded: dict[str, int]
    reused: int
    not_written: dict[str, str]
    left_out: dict[str, str]

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to run."""
        return sum(self.recorded.values()) == self.total

    @property
    def failed(self) -> int:
        """How many runs `retry_failed` would run again."""
        return sum(self.recorded.get(status, 0) for status in WITHOUT_A_RESULT)


@dataclass
class Driver:
    """Submits, waits, writes.

    session: the name of this call, so that no process goes on with what it imported for another
    data: of the results that there are
    """

    folder: Path
    lock: Lock
    board: Board
    display: Display
    backend: Backend
    session: str
    data: DataOfResults
    ended: queue.SimpleQueue[tuple[PlannedRun, int, Future[Plain]]] = field(default_factory=queue.SimpleQueue)
    waiting: dict[str, tuple[PlannedRun, Plain]] = field(default_factory=dict)
    not_written: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def drive(self, left: Sequence[PlannedRun]) -> Summary:
        """Until every run that can be had has a result."""
        try:
            for one in left:
                self._submit(one, attempt=1)
            self._wait_for(len(left))
        except BaseException:  # Ctrl-C, say
            self._keep_what_is_finished()
            raise
        self._write_waiting()
        recorded = dict(self.board.recorded)
        return Summary(len(self.board.runs), recorded, self.board.reused, self.not_written, self.left_out)

    def _wait_for(self, open_runs: int) -> None:
        next_progress = 0.0
        while open_runs:
            with suppress(queue.Empty):
                open_runs -= self._concluded(*self.ended.get(timeout=_TICK))
            self.lock.beat()
            view = self.board.view()
            self.display.tick(view)
            if time.monotonic() >= next_progress:
                next_progress = time.monotonic() + _PROGRESS_SECONDS
                self._publish(view)

    def _submit(self, one: PlannedRun, attempt: int) -> None:
        job = Job(
            one,
            self.backend.memory_limit,
            self.backend.workers if self.backend.on_one_machine else None,
            self.session,
            self.data.digest(one.definition),
        )
        future = self.backend.executor.submit(self.backend.work, job, self.backend.report)
        future.add_done_callback(lambda done: self.ended.put((one, attempt, done)))

    def _concluded(self, one: PlannedRun, attempt: int, future: Future[Plain]) -> bool:
        """Whether the run is over; one that crashed gets a second chance."""
        content = {"attempts": attempt, **self._content(one, future)}
        again = content["status"] in (CRASHED, NOT_STARTED) and content["attempts"] < ATTEMPTS
        self.board.ends(one.key, for_good=not again)
        if again:
            _logger.warning("%s crashed (%s) and is tried once more", one, content["error"]["message"])
            self._submit(one, attempt + 1)
        elif content["status"] in _LEFT_FOR_LATER:
            self._leave(_LEFT_FOR_LATER[content["status"]].format(one), content["error"]["message"])
        elif self.data.contradiction(one.definition, content, where=one):
            host = content["environment"].get("host", "a worker")
            self._leave(_LEFT_FOR_LATER[NO_DATA].format(one), different_data(one.dataset, host))
        else:
            self._record(one, content)
        return not again

    def _content(self, one: PlannedRun, future: Future[Plain]) -> Plain:
        try:
            content = future.result()
        except CancelledError as error:
            raise RuntimeError(
                f"the executor gave up its runs, as a Dask scheduler does when it ends: {_GOES_ON}"
            ) from error
        except BrokenExecutor as error:
            raise RuntimeError(f"the executor broke: {error}; {_GOES_ON}") from error
        except self.backend.lost_worker as error:
            job = Job(one)
            message = f"its worker was lost ({type(error).__name__}: {error})"
            return without_figures(job, CRASHED, message, environment={})  # this machine is not the one it ran on
        except Exception as error:
            raise RuntimeError(
                f"a worker could not execute {one} ({type(error).__name__}: {error}): has it the same versions of "
                f"cmalight and its packages as this machine, and room for another process? {_GOES_ON}"
            ) from error
        if content.get("key") != one.key:
            raise RuntimeError(f"a worker answered {one} with the result of another run; {_GOES_ON}")
        return content

    def _leave(self, what: str, why: str) -> None:
        if what not in self.left_out:
            self.left_out[what] = why
            _logger.warning("%s cannot be had, its runs are left for later: %s", what, why)

    def _keep_what_is_finished(self) -> None:
        """The results that are here already, when the driver is stopped."""
        with suppress(queue.Empty):
            while True:
                one, attempt, future = self.ended.get_nowait()
                with suppress(Exception, CancelledError):
                    content = {"attempts": attempt, **future.result()}
                    is_final = content["key"] == one.key and content["status"] in set(STATUSES) - {CRASHED}
                    if is_final and not self.data.contradiction(one.definition, content, where=one):
                        self.waiting[one.key] = (one, content)
        self._write_waiting()

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
            self.board.record(one, content["status"])
            self.display.recorded(one, content, self.board.view())

    def _publish(self, view: View) -> None:
        with suppress(OSError):
            running = [Running(run=str(run), **asdict(told)) for run, told in view.running]
            folder_status.write_progress(self.folder, FolderProgress(running=running, seconds_left=view.seconds_left))
