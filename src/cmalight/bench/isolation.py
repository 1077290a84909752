"""A run in a process of its own: if it raises, aborts or hangs, only its own result says so.

Processes are forked from multiprocessing's fork server, which has imported torch already. Nothing here knows of folders
or drivers, so `isolated` runs under any `concurrent.futures.Executor`, on any machine.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from cmalight.bench.code import code_digest
from cmalight.bench.models import Machine, Result, Run

# Imports only, so that forking is safe; torch imports some of them in the first step of an optimizer.
_PRELOADED = ["cmalight.bench.training", "torch._dynamo", "sklearn.datasets"]
_LOG_BYTES = 20_000
_OTHER_CODE = "the code here is not the code that the runs were planned with; give every machine the same, and repeat"
_alive: set[BaseProcess] = set()  # processes that train for this one


def isolated(run: Run, workers: int = 1) -> Result:
    """Train a run in a process of its own; it has a result also if the process died or had to be killed."""
    about: dict[str, Any] = {"run": run, "machine": Machine.here(), "started": time.time(), "workers": workers}
    if code_digest(run.solver, run.dataset, run.network, run.workload or "") != run.code:
        return Result(status="unavailable", error=_OTHER_CODE, finished=time.time(), **about)
    multiprocessing.current_process().daemon = False  # a worker of Dask is one, and daemons may have no children
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)  # on a worker of a cluster
    with tempfile.NamedTemporaryFile(prefix="cmalight-") as log:
        results, sender = context.Pipe(duplex=False)
        process = context.Process(target=_train, args=(run, sender, log.name))
        process.start()
        sender.close()
        _alive.add(process)
        try:
            ended = connection.wait([results, process.sentinel], timeout=run.killed_after)
            result: Result | None = results.recv() if results.poll() else None
        except EOFError:
            result = None
        finally:
            _alive.discard(process)
            process.kill()
            process.join()
            results.close()
        said = Path(log.name).read_bytes()[-_LOG_BYTES:].decode("utf-8", errors="replace")
    if result is not None:
        return result.model_copy(update={"log": said, "workers": workers})
    if not ended:
        about |= {"status": "timed_out", "error": f"the run did not end within {run.killed_after:g} s (wall_limit)"}
    else:
        about |= {"status": "crashed", "error": f"the process died: {_last_words(said)}"}
    return Result(log=said, finished=time.time(), **about)


@contextmanager
def fork_server() -> Iterator[None]:
    """What local runs need around them.

    A fork server that was not there before ends with the block: a notebook lives longer than a study. It starts with
    Ctrl-C blocked, which it would answer with a traceback while it imports torch. The main module is hidden, because
    new processes would import it: a script need not guard its call of `bench.run`.
    """
    server: Any = forkserver._forkserver
    was_there = server._forkserver_pid is not None
    main = sys.modules["__main__"]
    hidden: dict[str, Any] = {name: vars(main).pop(name) for name in ("__spec__", "__file__") if name in vars(main)}
    main.__spec__ = None
    resource_tracker.ensure_running()  # else the server starts it, which unblocks Ctrl-C
    server.set_forkserver_preload(_PRELOADED)
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            server.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        yield
    finally:
        vars(main).update(hidden)
        if not was_there:
            server._stop()


def kill_all() -> None:
    """Kill all processes that train for this one."""
    for process in list(_alive):
        process.kill()


def _train(run: Run, results: connection.Connection, log: str) -> None:
    """In the new process: print to the log, leave Ctrl-C to the driver, and do not outlive it."""
    os.setsid()  # the terminal sends Ctrl-C to the processes of its own session only
    target = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(target, stream)
    faulthandler.enable()
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    from cmalight.bench.training import train

    result = train(run)
    sys.stdout.flush()
    sys.stderr.flush()
    results.send(result)


def _end_with_the_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


def _last_words(log: str) -> str:
    lines = log.strip().splitlines() or ["killed by the system or by hand"]
    return next((line for line in lines if line.startswith("Fatal Python error")), lines[-1])
