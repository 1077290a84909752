"""Where runs are executed: on this machine, or on a Dask cluster. The runner sees a `concurrent.futures.Executor`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from cmalight.bench.running import nursery
from cmalight.bench.running.one_run import Job, Report, Told
from cmalight.bench.running.supervise import allow_children, execute, stop_children
from cmalight.bench.spec.study import Plain, cores
from cmalight.bench.store.machine import physical_memory
from cmalight.errors import needed, unknown_name

_DASK = "dask://"
_CONNECT_SECONDS = 30
_logger = logging.getLogger("cmalight.bench")

Work = Callable[[Job, Report], Plain]


@dataclass(frozen=True)
class Backend:
    """An executor, and what goes with it.

    work: what it executes for each run
    report: travels with every job, so that its run can say how far it is
    workers: how many runs at once; None if that may change
    on_one_machine: whether all of them share the driver's machine
    lost_worker: what its futures raise for a worker that died with the run
    """

    executor: Executor
    work: Work
    report: Report
    workers: int | None
    on_one_machine: bool
    lost_worker: tuple[type[BaseException], ...] = ()

    @property
    def memory_limit(self) -> float | None:
        """The share of a run in the machine's memory."""
        total = physical_memory()
        return total / self.workers if self.on_one_machine and self.workers and total else None


def check_address(address: str, workers: int | None) -> None:
    """Refuses what `opened` could not open, before anything is written."""
    if address != "local" and not address.startswith(_DASK):
        raise ValueError(unknown_name("executor", address, ("local", "dask://HOST:PORT")))
    if address != "local" and workers is not None:
        raise ValueError("workers is for the local executor; a Dask cluster has the workers that it has")
    if workers is not None and workers < 1:
        raise ValueError(f"Invalid number of workers: {workers}; expected a whole number >= 1")


@contextmanager
def opened(address: str, *, workers: int | None, hear: Report, session: str) -> Iterator[Backend]:
    """address: `local`, or `dask://host:port`; workers: from `workers_at_once`; session: that of the jobs."""
    if workers is not None:
        with _local(workers, hear) as backend:
            yield backend
    else:
        with _dask(address.removeprefix(_DASK), hear, session) as backend:
            yield backend


def workers_at_once(address: str, workers: int | None, threads: int) -> int | None:
    """How many runs at once; None for a cluster, which grows and shrinks."""
    return (workers or default_workers(threads)) if address == "local" else None


def default_workers(threads: int) -> int:
    """One run per core, or as many cores as it has threads."""
    return max(1, cores() // threads)


@contextmanager
def _local(workers: int, hear: Report) -> Iterator[Backend]:
    """One thread per worker; each watches a process of its own, in which the runs train one after the other."""
    allow_children()
    executor = ThreadPoolExecutor(workers, thread_name_prefix="cmalight-bench")
    try:
        yield Backend(executor, execute, hear, workers, on_one_machine=True)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        stop_children()
        executor.shutdown(wait=True)
        nursery.close()


@contextmanager
def _dask(address: str, hear: Report, session: str) -> Iterator[Backend]:
    with needed("a Dask cluster needs distributed", "dask"):
        import distributed
    from cmalight.bench.running import on_dask

    connect: Any = distributed.Client
    try:
        client: Any = connect(f"tcp://{address}", timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise RuntimeError(
            f"no Dask scheduler answers at {address} ({error}): start one with `dask scheduler`, or check the address"
        ) from error
    try:
        client.subscribe_topic(on_dask.TOPIC, _listener(hear))
        executor = client.get_executor(pure=False)  # the second try of a run is a run of its own
        _logger.info("the cluster at %s has %d threads now", address, sum(client.nthreads().values()))
        try:
            lost_worker = (distributed.KilledWorker,)
            yield Backend(executor, on_dask.work, on_dask.DaskReport(), None, False, lost_worker)
        finally:
            with suppress(Exception):  # the scheduler may be gone
                executor.shutdown(wait=False)
                on_dask.forget_attempts(client, session)
    finally:
        client.close(timeout=_CONNECT_SECONDS)


def _listener(hear: Report) -> Callable[[Any], None]:
    def heard(event: Any) -> None:
        hear(Told(**event[1]["told"]))  # beside it Dask puts the name of the worker

    return heard
