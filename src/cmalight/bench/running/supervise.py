"""What runs on a worker of any executor: a child process for the training, watched from here.

A solver that hangs is killed, one that takes its process down is noticed, and neither harms the worker itself.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import queue
import signal
import subprocess
import threading
import time
import weakref
from typing import IO

from cmalight.bench.running.nursery import new_process, path_for_children
from cmalight.bench.running.one_run import (
    CRASHED,
    DIVERGED,
    DONE,
    NOT_STARTED,
    TIMED_OUT,
    Job,
    Report,
    Told,
    without_figures,
)
from cmalight.bench.spec.study import Plain

_TAIL = 2000
_START_SECONDS = 600.0  # importing torch from a slow shared disk takes minutes
_LOADING_SECONDS = 3600.0
_END_SECONDS = 10.0
_TICK = 0.5

_own = threading.local()
_children: weakref.WeakSet[Child] = weakref.WeakSet()
_stopping = threading.Event()


def execute(job: Job, report: Report) -> Plain:
    """The content of the run's result; a child of this thread trains, and is kept for the next run if all went well."""
    child: Child | None = getattr(_own, "child", None)
    if child is None or not child.is_fit_for(job):
        if child is not None:
            child.kill()
        child = _own.child = Child(job.definition.threads, job.session)
    return child.run(job, report)


def stop_children() -> None:
    """Ends the runs that are under way in this process; no new one begins until `allow_children`."""
    _stopping.set()
    for child in list(_children):
        child.kill()


def allow_children() -> None:
    _stopping.clear()


class Child:
    """A process that trains, with nothing of an earlier one; `run` may be called again and again while it lives."""

    def __init__(self, threads: int, session: str = "") -> None:
        self.threads = threads
        self.session = session
        self._process = new_process(threads)
        self._messages: queue.SimpleQueue[Plain | None] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(self._process.stdout, self._messages), daemon=True).start()
        self._printed = bytearray()
        self._listener = threading.Thread(target=_keep_end, args=(self._process.stderr, self._printed), daemon=True)
        self._listener.start()
        self._started = False
        self._ended = False
        _children.add(self)
        if _stopping.is_set():
            self.kill()
        self._send({"path": path_for_children()})

    def is_fit_for(self, job: Job) -> bool:
        """Whatever it imported or loaded for another call of a driver may have changed since."""
        made_for = (self.threads, self.session)
        alive = not self._ended and self._process.poll() is None
        return alive and made_for == (job.definition.threads, job.session)

    def run(self, job: Job, report: Report) -> Plain:
        """The run's result. A child that was left in mid-run would answer the next job with it, so it is ended."""
        try:
            return self._run(job, report)
        except BaseException:
            self.kill()
            raise

    def _run(self, job: Job, report: Report) -> Plain:
        begun, begins = time.time(), False
        self._printed.clear()
        self._send(job.to_plain())
        deadline = time.monotonic() + (_LOADING_SECONDS if self._started else _START_SECONDS)
        while time.monotonic() < deadline:
            try:
                message = self._messages.get(timeout=_TICK)
            except queue.Empty:
                if self._process.poll() is not None:  # a process of its own may hold the pipe open
                    return self._crashed(job, begun, begins)
                continue
            if message is None:
                return self._crashed(job, begun, begins)
            if "content" in message:
                return self._finished(job, message["content"])
            if "ready" in message:
                self._started = True
                deadline = time.monotonic() + _LOADING_SECONDS
            if "begins" in message:
                begins = True
                report(Told(job.key, 0, None, 0.0))
                deadline = math.inf if job.planned.killed_after is None else time.monotonic() + job.planned.killed_after
            if "told" in message:
                report(Told(**message["told"]))
        self.kill()
        if not begins:
            late = f"packages and data were not loaded after {time.time() - begun:.0f} s on {platform.node()}"
            return without_figures(job, NOT_STARTED, late, started=begun)
        hung = f"it did not end, and was killed after {job.planned.killed_after:g} s"
        return without_figures(job, TIMED_OUT, hung, started=begun)

    def _finished(self, job: Job, content: Plain) -> Plain:
        """What went wrong in a run, or a user's own code, may have left something behind: the next one is apart."""
        if content["status"] not in (DONE, DIVERGED) or job.definition.runs_own_code:
            self.kill()
        return content

    def _crashed(self, job: Job, begun: float, begins: bool) -> Plain:
        """A process that ended before its run began says nothing about the solver."""
        cause, words = _cause(self._exit_code()), self._last_words()
        message = f"its process ended without a result ({cause})"
        if not begins:
            last = words.strip().splitlines()[-1:] or ["it said nothing"]
            message = f"its process on {platform.node()} ended before the run began ({cause}: {last[0]})"
        content = without_figures(job, CRASHED if begins else NOT_STARTED, message, started=begun)
        content["error"]["traceback"] = words
        self.kill()
        return content

    def _last_words(self) -> str:
        self._listener.join(_TICK)  # a process of its own may hold the pipe open
        return bytes(self._printed).decode(errors="replace")

    def _send(self, message: Plain) -> None:
        try:
            _pipe(self._process.stdin).write(json.dumps(message) + "\n")
            _pipe(self._process.stdin).flush()
        except (OSError, ValueError):
            return  # it is dead, which reading from it will show

    def _exit_code(self) -> int | None:
        try:
            return self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Ends it for good; may be called again, and from another thread."""
        self._ended = True
        if self._process.pid is not None:
            with contextlib.suppress(OSError):
                self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # in a system call that does not end; it goes with it
                self._process.wait(_END_SECONDS)
        with contextlib.suppress(OSError):  # one that is not born yet ends by this
            _pipe(self._process.stdin).close()


def _read(stream: IO[str] | None, messages: queue.SimpleQueue[Plain | None]) -> None:
    with contextlib.suppress(ValueError), _pipe(stream) as lines:  # the last line may be cut off by a kill
        for line in lines:
            messages.put(json.loads(line))
    messages.put(None)


def _keep_end(stream: IO[str] | None, end: bytearray) -> None:
    """Of what is printed, however much it is: a file could fill the disk."""
    with _pipe(stream) as lines:
        while part := os.read(lines.fileno(), 1 << 16):
            end += part
            del end[:-_TAIL]


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise RuntimeError("the child was started without pipes")
    return stream


def _cause(code: int | None) -> str:
    if code is None:
        return "it cannot be ended"
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", perhaps because the machine ran out of memory" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"
