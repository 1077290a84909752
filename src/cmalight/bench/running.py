"""The driver: runs the missing runs of a spec, and writes each result as it arrives."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cmalight.bench.isolation import fork_server, isolated, kill_all
from cmalight.bench.models import Result, Run
from cmalight.bench.reading import read_spec
from cmalight.bench.spec import Spec, plan
from cmalight.bench.store import begin, locked, read_results, write_result
from cmalight.errors import duration, needed

_logger = logging.getLogger("cmalight")
_DASK = "dask://"
_LOG_LINES = 20
_PATIENCE = 0.05  # seconds between two looks at processes that were killed


@dataclass(frozen=True)
class Summary:
    """The results of a spec in a folder after a call.

    Attributes:
        total: Runs that were asked for.
        statuses: How many of them have which status.
        failures: One line for each that failed, with the last line of its traceback, and one for each other reason
            why runs have no result.
    """

    total: int
    statuses: dict[str, int]
    failures: tuple[str, ...]

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(self.statuses.items()))
        return f"{sum(self.statuses.values())} of {self.total} runs: {counts or 'none'}"


def run(
    spec: Spec | str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    executor: str | Executor = "local",
    workers: int = 1,
    in_process: bool = False,
    shard: str | None = None,
    retry_failed: bool = False,
    progress: bool = False,
) -> Summary:
    """Run all runs of a spec that have no result in the folder yet; the same call resumes an interrupted one.

    Args:
        spec: What to compare, as `read_spec` takes it: the name of a preset, a TOML file, or what it holds.
        out: Results folder.
        executor: "local", "dask://HOST:PORT", or any `concurrent.futures.Executor`.
        workers: Runs at once on this machine; one at a time gives seconds that compare.
        in_process: Train in this process, one run after the other, so that a debugger works.
        shard: "3/40" for the third of forty parts of the starts, so that the solvers of a start run on one machine;
            each part goes into a folder of its own, to be merged.
        retry_failed: Repeat runs that failed, crashed or timed out.
        progress: Show progress on stdout.

    Returns:
        A summary of the folder.

    Raises:
        ValueError: If the spec or an argument cannot be used.
        FolderInUseError: If another driver works on the folder.
        KeyboardInterrupt: After Ctrl-C; finished results are kept.
    """
    if isinstance(executor, str) and executor != "local" and not executor.startswith(_DASK):
        raise ValueError(f"Unknown executor {executor!r}; expected local or dask://HOST:PORT")
    study = read_spec(spec)
    whole = plan(study)
    runs = _shard(whole, shard)
    folder = Path(out)
    with locked(folder):
        begin(folder, study, [one.key for one in whole])
        found = {result.run.key: result for result in read_results(folder)}
        left = [one for one in runs if one.key not in found or (retry_failed and found[one.key].is_failure)]
        if in_process or executor == "local":
            absent = _absent(left)
            left = [one for one in left if one.key not in absent]
            found |= absent
        with _display(len(left), study.name, enabled=progress) as show:
            for result in _results(left, executor, workers, in_process=in_process):
                if result.status != "unavailable":
                    write_result(folder, result)
                found[result.run.key] = result
                show(result)
    results = [found[one.key] for one in runs if one.key in found]
    failures = [_line(one) for one in results if one.is_failure and one.status != "unavailable"]
    reasons = Counter(one.error for one in results if one.status == "unavailable")
    failures += [f"{number} runs unavailable: {reason}" for reason, number in reasons.items()]
    if lost := len(runs) - len(results):
        kept = "finished results are kept, and the same command resumes"
        failures.append(f"{executor} is gone and dropped {lost} runs; {kept}")
    return Summary(len(runs), dict(Counter(one.status for one in results)), tuple(failures))


def forecast(spec: Spec, shard: str | None = None) -> list[str]:
    """What `run` would do, in words; a warning names data that are not here, as in `run`.

    Args:
        spec: What to compare.
        shard: As in `run`.

    Returns:
        One line per run, and at last the numbers of runs and starts and the most they can take.
    """
    runs = _shard(plan(spec), shard)
    _absent(runs)
    starts = len({(one.problem, one.seed) for one in runs})
    limits = [one.killed_after if one.seconds is None else one.seconds for one in runs]
    clock = "until they are killed" if spec.seconds is None else "of training"
    most = f"one after the other they take at most {duration(sum(limits))} {clock}"
    return [*map(str, runs), f"{len(runs)} runs from {starts} starts; {most}"]


def _absent(runs: Sequence[Run]) -> dict[str, Result]:
    """The results of runs that have no data on this machine, by key; one warning for each reason."""
    from cmalight.bench.problems import absent_data

    absent = {one.key: Result(run=one, status="unavailable", error=text) for one in runs if (text := absent_data(one))}
    for reason, number in Counter(result.error for result in absent.values()).items():
        _logger.warning("%s; %d runs wait for it", reason, number)
    return absent


def _results(runs: Sequence[Run], executor: str | Executor, workers: int, *, in_process: bool) -> Iterator[Result]:
    """The results as they come; leaving early ends what is under way. An executor that is gone drops the others."""
    if not runs:
        return
    if in_process:
        from cmalight.bench.training import train

        yield from (train(one, warm_up=False) for one in runs)
        return
    is_local = executor == "local"
    with ExitStack() as stack:
        if is_local:
            stack.enter_context(fork_server())
            pool: Executor = stack.enter_context(ThreadPoolExecutor(workers))
        else:
            pool = executor if isinstance(executor, Executor) else _dask(executor, stack)
        futures = {pool.submit(isolated, one, workers if is_local else 1): one for one in runs}
        try:
            for future in as_completed(futures):
                if not future.cancelled():
                    yield _result(future, futures[future])
        except BaseException:  # Ctrl-C, a full disk: nothing may be left running
            for future in futures:
                future.cancel()
            while is_local and any(future.running() for future in futures):
                kill_all()
                time.sleep(_PATIENCE)
            raise


def _dask(address: str, stack: ExitStack) -> Executor:
    with needed("dask:// needs distributed, which is not installed", "dask"):
        from distributed import Client
    for logger in map(logging.getLogger, ("distributed", "distributed.client")):  # `run` says itself what is lost
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)
    address = address.replace(_DASK, "tcp://")
    try:
        client: Any = stack.enter_context(Client(address, timeout=10))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise ValueError(f"no Dask scheduler answers at {address}; start one with `dask scheduler`") from error
    pool: Executor = client.get_executor(pure=False)
    return pool


def _result(future: Future[Result], one: Run) -> Result:
    """The result of a run; one whose worker was lost again and again crashed."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, KeyboardInterrupt):
        raise error
    return Result(run=one, status="crashed", error=f"its worker was lost: {error}", finished=time.time())


def _shard(runs: list[Run], shard: str | None) -> list[Run]:
    if shard is None:
        return runs
    match = re.fullmatch(r"(\d+)/(\d+)", shard)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"Invalid shard: {shard!r}; expected a part of all, such as 3/40")
    starts = {start: place for place, start in enumerate(dict.fromkeys((one.problem, one.seed) for one in runs))}
    part, parts = int(match[1]), int(match[2])
    return [one for one in runs if starts[one.problem, one.seed] % parts == part - 1]


@contextmanager
def _display(total: int, name: str, *, enabled: bool) -> Iterator[Callable[[Result], None]]:
    """A bar on a terminal, and what is to be said of each finished run."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, disable=not (enabled and total and sys.stdout.isatty())) as bar:
        task = bar.add_task(name, total=total)

        def show(result: Result) -> None:
            printed = [*result.log.splitlines(), *((result.traceback or "").splitlines() if result.is_failure else ())]
            for line in (_line(result), *(f"  | {line}" for line in printed[-_LOG_LINES:])) if enabled else ():
                bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
            bar.advance(task)

        yield show


def _line(result: Result) -> str:
    if result.is_failure:
        return f"{result.run}: {result.status}: {result.error}"
    loss = result.points.train_loss[-1]
    ended = "" if loss is None else f", training loss {loss:.4g}"
    return f"{result.run}: {result.status}{ended}, {result.points.seconds[-1]:.1f} s"
