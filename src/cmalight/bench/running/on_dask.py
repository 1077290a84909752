"""What is special about a run on a worker of a Dask cluster."""

from __future__ import annotations

import dataclasses
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cmalight.bench.running.one_run import ATTEMPTS, CRASHED, Job, Report, Told, without_figures
from cmalight.bench.running.supervise import execute
from cmalight.bench.spec.study import Plain

TOPIC = "cmalight-bench"
_MEGABYTE = 1 << 20
_logger = logging.getLogger("cmalight.bench")


def work(job: Job, report: Report) -> Plain:
    """Dask gives the run of a worker that was lost to another, again and again: here it gets one more chance."""
    import distributed

    worker: Any = distributed.get_worker()
    client: Any = distributed.get_client()
    attempt = _attempt(client, job)
    if attempt > ATTEMPTS:
        lost = without_figures(job, CRASHED, "its worker was lost, and another one, too", environment={})
        return {**lost, "attempts": ATTEMPTS}
    limit = _share_of_memory(worker) if job.memory_limit is None else job.memory_limit
    here = dataclasses.replace(job, memory_limit=limit, concurrency=_runs_at_once(client, worker))
    return {**execute(here, report), "attempts": attempt}


def _attempt(client: Any, job: Job) -> int:
    """The scheduler outlives the workers, so it counts how often the run began."""
    place = [TOPIC, job.session, job.key]
    attempt = 1
    with suppress(Exception):  # Dask's own limit then holds alone
        attempt += int(client.get_metadata(place, default=0))
        client.set_metadata(place, attempt)
    return attempt


def forget_attempts(client: Any, session: str) -> None:
    client.set_metadata([TOPIC, session], None)


def _share_of_memory(worker: Any) -> float | None:
    """Megabytes: what the worker may use (`dask worker --memory-limit`), shared by its threads."""
    limit = worker.memory_manager.memory_limit
    return limit / _MEGABYTE / worker.state.nthreads if limit else None


def _runs_at_once(client: Any, worker: Any) -> int | None:
    """The threads of all workers that have this one's network address, which is that of its machine."""
    try:
        threads: dict[str, int] = client.nthreads()
    except Exception:  # not worth the run
        return None
    return sum(count for address, count in threads.items() if _machine(address) == _machine(worker.address))


def _machine(address: str) -> str:
    return address.rpartition(":")[0]


@dataclass(frozen=True)
class DaskReport:
    """Sends what a run says from the worker that it runs on to the driver, by way of the scheduler."""

    def __call__(self, told: Told) -> None:
        import distributed

        try:
            worker: Any = distributed.get_worker()
            worker.log_event(TOPIC, {"told": dataclasses.asdict(told)})
        except Exception as error:  # how a run gets on is not worth the run
            _logger.debug("how a run gets on could not be sent: %s", error)
