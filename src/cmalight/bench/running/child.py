"""The process that trains: `python -m cmalight.bench.running.child`. Jobs come as JSON lines, reports leave as such.

It ends as soon as whoever started it is gone: a reader thread waits on the pipe that the jobs come through.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import sys
import threading
import time
from typing import IO, Any

_REPORT_SECONDS = 1.0


def main() -> None:
    out = _private_stdout()
    first = json.loads(sys.stdin.readline() or "{}")
    sys.path[:] = first.get("path", sys.path)
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()
    _serve(jobs, out)


def _private_stdout() -> IO[str]:
    """What a solver prints goes to stderr: the pipe is for reports alone."""
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


def _read_jobs(jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    os._exit(0)  # the driver is gone, and nobody would read a result


def _serve(jobs: queue.SimpleQueue[dict[str, Any]], out: IO[str]) -> None:
    from cmalight.bench.running.one_run import Job, Told, train, warm_up_torch
    from cmalight.files import without_infinities

    def say(**message: Any) -> None:
        out.write(json.dumps(without_infinities(message), allow_nan=False) + "\n")
        out.flush()

    last = 0.0

    def report(told: Told) -> None:
        nonlocal last
        if time.monotonic() - last >= _REPORT_SECONDS:
            last = time.monotonic()
            say(told=dataclasses.asdict(told))

    warm_up_torch()
    say(ready=True)
    while True:
        job = Job.from_plain(jobs.get())
        say(content=train(job, report, lambda: say(begins=True)))


if __name__ == "__main__":
    main()
