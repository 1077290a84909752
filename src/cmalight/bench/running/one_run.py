"""One run: the same start, batches, clock and measurements for every solver of a cell."""

from __future__ import annotations

import dataclasses
import functools
import platform
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import nn
from torch.optim import Optimizer

from cmalight.bench.running.measuring import Measured, Measuring, Problem
from cmalight.bench.spec.networks import build_network, find_network
from cmalight.bench.spec.own_files import check_own_files
from cmalight.bench.spec.planning import PlannedRun
from cmalight.bench.spec.solvers import code_digest, known_solver, make_optimizer
from cmalight.bench.spec.study import Definition, Plain
from cmalight.bench.store.machine import facts, limited_memory, load_average
from cmalight.bench.store.schema import Recorded
from cmalight.datasets import DataError, DataSplit, load_dataset
from cmalight.datasets.entry import digest_of
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.undisturbed import undisturbed
from cmalight.training import FitResult, Status, fit

STATUSES: tuple[Recorded, ...] = get_args(Recorded)
DONE, DIVERGED, FAILED, CRASHED, TIMED_OUT, OUT_OF_MEMORY = STATUSES
# Not the run's fault, so never a result: it is left for later.
NO_DATA, NOT_IMPORTABLE, NOT_STARTED = "no_data", "not_importable", "not_started"
ATTEMPTS = 2  # of a run that crashes

_TRACEBACK_LINES = 30
_WARM_UP_SECONDS = 0.2
_ABSURD = 1e6  # times the loss at the start, or times 1 where that is smaller
_OUT_OF_MEMORY_WORDS = ("allocate memory", "not enough memory", "out of memory", "bad_alloc")


@dataclass(frozen=True)
class Job:
    """A planned run as it travels to a worker.

    memory_limit: megabytes, where the spec has none of its own
    concurrency: how many runs at once may be on the worker's machine; None if nobody knows
    session: the driver's call; what a process has imported or loaded is good for this one only
    data_sha256: what `data_sha256` must be, where there are results on that data already
    """

    planned: PlannedRun
    memory_limit: float | None = None
    concurrency: int | None = None
    session: str = ""
    data_sha256: str | None = None

    @property
    def key(self) -> str:
        return self.planned.key

    @property
    def definition(self) -> Definition:
        return self.planned.definition

    def to_plain(self) -> Plain:
        """For the pipe to a child."""
        plain = dataclasses.asdict(self)
        plain["planned"]["definition"] = self.definition.to_plain()
        return plain

    @staticmethod
    def from_plain(plain: Plain) -> Job:
        planned = plain["planned"]
        definition = Definition.from_plain(planned["definition"])
        return Job(**{**plain, "planned": PlannedRun(**{**planned, "definition": definition})})


@dataclass(frozen=True)
class Told:
    """What a run says on its way: where it is, its last true training loss, and the seconds on its clock."""

    key: str
    epoch: int
    loss: float | None
    seconds: float


Report = Callable[[Told], object]


def train(job: Job, report: Report, begins: Callable[[], object] = lambda: None) -> Plain:
    """The content of the run's result; whatever the solver does wrong is in it, and nothing is raised.

    begins: called once data and code are there, when the time in which a run must end begins
    """
    run = job.definition
    begun = time.time()
    environment = facts(threads=run.threads, concurrency=job.concurrency)
    figures: Plain
    try:
        data = _data(job.planned.source, run.split_seed, run.test_share, run.data_files, run.trusted)
        _check_same_data(job, data)
        _import(run)
    except NotImportableError as error:
        figures = {"status": NOT_IMPORTABLE, "error": describe(error)}
    except Exception as error:  # whatever is wrong with the data, it is not the solver's fault
        figures = {"status": NO_DATA, "error": describe(error)}
    else:
        begins()
        figures = _figures(job, data, report)
    return {
        "key": job.key,
        "run": run.to_plain(),
        "started": begun,
        "finished": time.time(),
        "environment": {**environment, "load_at_the_end": load_average()},
        **figures,
    }


def without_figures(job: Job, status: str, message: str, **more: Any) -> Plain:
    """The content for a run that could not speak for itself."""
    now = time.time()
    return {
        "key": job.key,
        "run": job.definition.to_plain(),
        "started": now,
        "finished": now,
        "status": status,
        "error": {"type": status, "message": message, "traceback": ""},
        "environment": facts(threads=job.definition.threads, concurrency=job.concurrency),
        "epochs": {},
        **more,
    }


def describe(error: BaseException) -> dict[str, str]:
    lines = traceback.format_exception(error)
    return {
        "type": type(error).__name__,
        "message": str(error) or type(error).__name__,
        "traceback": "".join(lines[-_TRACEBACK_LINES:]),
    }


def _figures(job: Job, data: DataSplit, report: Report) -> Plain:
    run = job.definition
    measuring: Measuring | None = None
    try:
        torch.set_num_threads(run.threads)
        limit = job.memory_limit if run.memory_limit is None else run.memory_limit
        with limited_memory(limit):
            _warm_up(run, data)
            problem = _problem(run, data)
            optimizer = make_optimizer(run.solver, problem.model.parameters())
            measuring = Measuring(problem, run, data, lambda *told: report(Told(job.key, *told)))
            initial = measuring.now()
            result = _fitted(run, problem, optimizer, (measuring,))
            final = measuring.now()
    except (Exception, SystemExit) as error:
        epochs = {} if measuring is None else measuring.columns()
        status = OUT_OF_MEMORY if _is_out_of_memory(error) else FAILED
        return {"status": status, "error": describe(error), "epochs": epochs, "data_sha256": _digest(data)}
    return {
        **_judged(result, initial, final),
        "seconds": result.seconds,
        "evaluations": result.evaluations,
        "compile_seconds": result.compile_seconds,
        "epochs": measuring.columns(),
        "data_sha256": _digest(data),
    }


def _judged(result: FitResult, initial: Measured, final: Measured) -> Plain:
    """A loss that is not finite, or absurd, is no figure, and the run that led to it has none."""
    bound = _ABSURD * max(1.0, initial.train_loss)
    diverged = result.status is Status.DIVERGED or not (final.train_loss <= bound)
    figures: Plain = {"status": DIVERGED if diverged else DONE, "ended_by": result.status.value}
    figures["initial_loss"] = initial.train_loss
    if diverged:
        absurd = f"the training loss ended at {final.train_loss}"
        message = result.reason if result.status is Status.DIVERGED else absurd
        return {**figures, "error": {"type": DIVERGED, "message": message, "traceback": ""}}
    return {
        **figures,
        "final_loss": final.train_loss,
        "final_test_loss": final.test_loss,
        "final_test_accuracy": final.test_accuracy,
        "error": None,
    }


def _problem(run: Definition, data: DataSplit, samples: int | None = None) -> Problem:
    """The same weights and the same batches for every solver of the cell: they depend on the seed alone.

    samples: only the first of them
    """
    images = data.x_train.dim() == 4
    torch.manual_seed(run.seed)
    model = build_network(
        run.network,
        features=data.features,
        classes=data.classes,
        channels=data.x_train.shape[1] if images else None,
    )
    x, y = data.x_train[:samples], data.y_train[:samples]
    size = len(x) if run.solver.full_batch else run.batch_size
    batches = TensorBatches(x, y, batch_size=size, order=run.order, seed=run.seed)
    loss_fn: nn.Module = nn.MSELoss() if data.classes is None else nn.CrossEntropyLoss()
    return Problem(model, loss_fn, batches)


def _fitted(run: Definition, problem: Problem, optimizer: Optimizer, callbacks: Sequence[object]) -> FitResult:
    return fit(
        problem.model,
        problem.loss_fn,
        problem.batches,
        optimizer=optimizer,
        seed=run.seed,
        max_epochs=run.max_epochs,
        time_limit=run.time_limit,
        callbacks=callbacks,
        progress=False,
        engine=run.engine,
        starts=run.starts,
        threads=torch.get_num_threads(),  # those of the spec
        clock=run.clock,
    )


@functools.lru_cache(maxsize=1)
def _data(source: str, split_seed: int, test_share: float, data_files: str | None, trusted: bool) -> DataSplit:
    """The runs of a data set follow each other, so the last one is kept."""
    check_own_files(source, data_files, trust=trusted)
    return load_dataset(source, seed=split_seed, test_share=test_share, trust=trusted)


def _check_same_data(job: Job, data: DataSplit) -> None:
    if job.data_sha256 not in (None, _digest(data)):
        raise DataError(different_data(job.definition.dataset, platform.node()))


def different_data(dataset: str, host: str) -> str:
    return (
        f"{dataset} on {host} is not the data that the results in the folder are of (data_sha256): bring that data "
        "back, or use another folder"
    )


def _import(run: Definition) -> None:
    """A solver or a network that is not on this machine says nothing about it: other machines may have it."""
    try:
        known_solver(run.solver)
        find_network(run.network)
        code = code_digest(run.solver.solver, run.network.network)
    except (ValueError, ImportError) as error:
        raise NotImportableError(f"{error} (on {platform.node()})") from error
    if code != run.code:
        raise NotImportableError(
            f"the code on {platform.node()} is not that which the runs were planned with: give every machine the same "
            "files, leave them as they are while it runs, and call the same command again"
        )


_digests: dict[int, tuple[DataSplit, str]] = {}


def _digest(data: DataSplit) -> str:
    """Results on different data are told apart by it, wherever they come from."""
    if id(data) not in _digests:
        tensors = (data.x_train, data.y_train, data.x_test, data.y_test)
        _digests.clear()
        _digests[id(data)] = (data, digest_of((f"{tuple(one.shape)}", one.numpy()) for one in tensors))
    return _digests[id(data)][1]


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY_WORDS)
    )


def warm_up_torch() -> None:
    """What torch loads at its first step and backward pass takes seconds, which no limit of a run should count."""
    inputs = torch.linspace(0.0, 1.0, 8).reshape(4, 2)
    for name in ("adam", "cmalight"):
        fit(nn.Linear(2, 1), nn.MSELoss(), (inputs, inputs[:, :1]), optimizer=name, max_epochs=1, progress=False)


def _warm_up(run: Definition, data: DataSplit) -> None:
    """A short run of the same solver on the same network, thrown away, before the clock starts.

    What a solver does once in a process, or torch once for a network, would count against the first run in it.
    Whatever goes wrong here goes wrong in the run itself again, and is recorded there.
    """
    compiled = run.engine == "compiled"  # what is built depends on the size of the data: a moment on all of it
    problem = _problem(run, data, samples=None if compiled else 2 * run.batch_size)
    limit = _WARM_UP_SECONDS if compiled and run.starts == 1 else run.time_limit  # several starts may have none
    short = dataclasses.replace(run, max_epochs=1, time_limit=limit)
    with undisturbed(problem.model, None), suppress(Exception, SystemExit):
        optimizer = make_optimizer(run.solver, problem.model.parameters())
        _fitted(short, problem, optimizer, ())


class NotImportableError(RuntimeError):
    """A solver or a network is not on this machine."""
