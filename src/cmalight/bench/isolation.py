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
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from cmalight.bench.code import code_digest
from cmalight.bench.models import Machine, Result, Run, Status

# Imports only, so that forking is safe; torch imports some of them in the first step of an optimizer.
_PRELOADED = [
    "cmalight.bench.training",
    "cmalight.bench.workloads",
    "torch._dynamo",
    "sklearn.datasets",
    "rich.progress",
]
_LOG_BYTES = 20_000
_OTHER_CODE = "the code here is not the code that the runs were planned with; give every machine the same, and repeat"
_alive: set[int] = set()  # processes that train for this one


def isolated(run: Run, workers: int = 1) -> Result:
    """Train a run in a process of its own.

    Args:
        run: What to train.
        workers: Runs at once on this machine, for the result.

    Returns:
        Its result, also where the process died or had to be killed.
    """
    started = time.time()
    if code_digest(run.solver, run.dataset, run.network, run.workload or "") != run.code:
        return _without_figures(run, "unavailable", _OTHER_CODE, started)
    multiprocessing.current_process().daemon = False  # a worker of Dask is one, and daemons may have no children
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with tempfile.TemporaryDirectory(prefix="cmalight-") as folder:
        log = Path(folder, "log")
        log.touch()
        pool = ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(str(log),))
        pid = 0
        try:
            pid = pool.submit(os.getpid).result()
            _alive.add(pid)
            result: Result = pool.submit(_train, run).result(timeout=run.killed_after)
        except TimeoutError:
            text = f"the run did not end within {run.killed_after:g} s (wall_limit) and was killed"
            result = _without_figures(run, "timed_out", text, started)
        except BrokenProcessPool:
            words = _tail(log).strip().splitlines()
            said = next((line for line in words if line.startswith("Fatal Python error")), words[-1] if words else "")
            text = f"the process died{f': {said}' if said else ', killed by the system or by hand'}"
            result = _without_figures(run, "crashed", text, started)
        finally:
            _alive.discard(pid)
            if pid:
                _kill(pid)
            pool.shutdown(cancel_futures=True)
        return result.model_copy(update={"log": _tail(log), "workers": workers})


@contextmanager
def fork_server() -> Iterator[None]:
    """What local runs need around them.

    A fork server that was not there before ends with the block: a notebook lives longer than a study. The main module
    is hidden, because new processes would import it: a script need not guard its call of `bench.run`.
    """
    server: Any = forkserver._forkserver
    was_there = server._forkserver_pid is not None
    main = sys.modules["__main__"]
    hidden: dict[str, Any] = {name: vars(main).pop(name) for name in ("__spec__", "__file__") if name in vars(main)}
    main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(hidden)
        if not was_there:
            server._stop()


def kill_all() -> None:
    """Kill all processes that train for this one."""
    for pid in list(_alive):
        _kill(pid)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _begin(log: str) -> None:
    """In the new process: print to the log, leave Ctrl-C to the driver, and do not outlive it."""
    os.setsid()  # the terminal sends Ctrl-C to the processes of its own session only
    target = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(target, stream)
    faulthandler.enable()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _train(run: Run) -> Result:
    from cmalight.bench.training import train

    result = train(run)
    sys.stdout.flush()
    sys.stderr.flush()
    return result


def _without_figures(run: Run, status: Status, error: str, started: float) -> Result:
    return Result(run=run, status=status, error=error, machine=Machine.here(), started=started, finished=time.time())


def _tail(log: Path) -> str:
    return log.read_bytes()[-_LOG_BYTES:].decode("utf-8", errors="replace")
