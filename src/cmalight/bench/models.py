"""A run and its result: the same models on the driver's side, on the worker's side and in the files."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PositiveFloat, PositiveInt, model_validator

from cmalight import __version__

Status = Literal["done", "diverged", "failed", "crashed", "timed_out", "unavailable"]
FAILURES: tuple[Status, ...] = ("failed", "crashed", "timed_out", "unavailable")
Options = dict[str, JsonValue]
Number = float | None  # null in a file: not measured, or not finite
_NOT_IN_THE_KEY = {"wall_limit", "dataset_label", "network_label", "solver_label"}
_FILES = ("dataset", "network", "workload", "solver")
_KEY_DIGITS = 32
_WALL_FACTOR, _WALL_GRACE, _WALL_WITHOUT_CLOCK = 10.0, 60.0, 86_400.0


class Frozen(BaseModel):
    """A model that refuses unknown keys and cannot be changed; NaN and infinity become null in JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="null")


class Conditions(Frozen):
    """What holds for every run of a study.

    Attributes:
        seconds: Budget on the training clock; measuring does not count.
        epochs: Budget in epochs.
        batches: Budget in batches: the nearest whole number of epochs, at least one.
        target_loss: Stop when the true training loss is this low.
        batch_size: Samples in a batch.
        order: "reshuffle" draws a new order for every epoch, "fixed" keeps the order of the data.
        engine: "eager", or "auto" for compiled epochs where cmalight can compile the model and the optimizer.
        clock: "wall", or "processor" for the processor time of the run, whatever else the machine does.
        threads: Threads of torch in each run.
        split_seed: Random seed for the split into training and validation part.
        test_share: Share of the samples in the validation part.
        wall_limit: Kill a run after this many seconds. Default: 60 s plus ten times `seconds`; a day without `seconds`.
    """

    seconds: PositiveFloat | None = None
    epochs: PositiveInt | None = None
    batches: PositiveInt | None = None
    target_loss: float | None = None
    batch_size: PositiveInt = 128
    order: Literal["reshuffle", "fixed"] = "reshuffle"
    engine: Literal["eager", "auto"] = "eager"
    clock: Literal["wall", "processor"] = "wall"
    threads: PositiveInt = 1
    split_seed: Annotated[int, Field(ge=0)] = 0
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    wall_limit: PositiveFloat | None = None

    @property
    def killed_after(self) -> float:
        """Seconds on the wall clock after which a run counts as hanging."""
        if self.wall_limit is not None:
            return self.wall_limit
        return _WALL_WITHOUT_CLOCK if self.seconds is None else _WALL_GRACE + _WALL_FACTOR * self.seconds


class Run(Conditions):
    """One solver on one problem from one seed: everything that decides what comes out.

    Attributes:
        dataset: As `load_dataset` takes it, "file.csv:target=column" included, or "file.py:name"; empty for a workload.
        network: "3x20", "paper:3x20", "resnet18" or "file.py:name"; empty for a workload.
        network_options: Keyword arguments of the network.
        workload: Name of a workload, or "file.py:name".
        solver: Name of a solver, or "file.py:name".
        options: Keyword arguments of the solver.
        seed: Random seed for the initial weights, the order of the samples and all random numbers of the run.
        code: Digest of all code that trains: the package's and the user's.
        data: sha256 of the user's own CSV or parquet file.
        dataset_label: Name of the data set, or of the workload, in results.
        network_label: Name of the network in results.
        solver_label: Name of the solver in results.
    """

    dataset: str = ""
    network: str = ""
    network_options: Options = {}
    workload: str | None = None
    solver: str
    options: Options = {}
    seed: Annotated[int, Field(ge=0)]
    code: str
    data: str | None = None
    dataset_label: str = ""
    network_label: str = ""
    solver_label: str = ""

    @property
    def key(self) -> str:
        """Hash of everything that defines the run, and the name of its file; it does not depend on where files lie."""
        plain = self.model_dump(mode="json", exclude=_NOT_IN_THE_KEY)
        plain |= {name: Path(plain[name]).name for name in _FILES if plain[name] and Path(plain[name]).is_absolute()}
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]

    @property
    def problem(self) -> str:
        """Label of what is trained."""
        return f"{self.dataset_label} {self.network_label}".strip()

    def __str__(self) -> str:
        return f"{self.problem}, seed {self.seed}, {self.solver_label}"


class Points(Frozen):
    """The course of a run, one entry per point: before the first step, after each epoch, at the end.

    `work` counts everything that a solver computes, in passes over the training data: the samples used for gradients
    divided by N, plus one third of the rows that its control evaluated divided by N. A forward pass costs about a third
    of a training pass (forward and backward); an evaluation of a part of the data counts with its rows.
    An epoch that the time limit cut off counts as a whole one. Measuring for the results counts nowhere.
    """

    epoch: list[int] = []
    seconds: list[float] = []
    work: list[float] = []
    train_loss: list[Number] = []
    validation_loss: list[Number] = []
    accuracy: list[Number] = []
    batch_loss: list[Number] = []
    lr: list[Number] = []
    outcome: list[str] = []
    evaluations: list[int] = []
    evaluated_rows: list[int] = []

    @model_validator(mode="after")
    def _equally_long(self) -> Self:
        if len({len(getattr(self, name)) for name in type(self).model_fields}) > 1:
            raise ValueError("the columns of the points are not equally long")
        return self


class Machine(Frozen):
    """Where a run took place; `load` is the load average of the last minute when the run began."""

    host: str = ""
    cpu: str = ""
    cores: int = 1
    load: Number = None
    versions: dict[str, str] = {}

    @staticmethod
    def here() -> Machine:
        """This one."""
        versions = {"python": platform.python_version(), "cmalight": __version__}
        versions |= {name: metadata.version(name) for name in ("torch", "numpy")}
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        return Machine(host=platform.node(), cpu=_cpu(), cores=cores, load=load, versions=versions)


class Result(Frozen):
    """What came out of a run; a run that failed has a result, too.

    Attributes:
        run: What was asked for.
        status: "done", "diverged", "failed" (it raised), "crashed" (its process died), "timed_out" (it was killed),
            or "unavailable" (data or code cannot be had there), which no file keeps.
        ended_by: The stop rule that ended the training.
        error: Last line of the traceback, or what happened in one sentence.
        traceback: All of it.
        log: What the run printed.
        points: Its course.
        task: "regression", "classification", or the workload's.
        n_parameters: Numbers that are trained.
        n_samples: Samples in the training part.
        n_validation: Samples in the validation part.
        batches_per_epoch: Batches in an epoch.
        engine_used: "eager" or "compiled".
        accepted: Share of the control's decisions that accepted what the steps had done; None without a control.
        data_sha256: Of the arrays it was trained on.
        machine: Where it ran.
        workers: Runs at once on this machine, as far as the driver knows.
        started: Unix time.
        finished: Unix time.
    """

    run: Run
    status: Status
    ended_by: str | None = None
    error: str | None = None
    traceback: str | None = None
    log: str = ""
    points: Points = Points()
    task: str | None = None
    n_parameters: int | None = None
    n_samples: int | None = None
    n_validation: int | None = None
    batches_per_epoch: int | None = None
    engine_used: str | None = None
    accepted: Number = None
    data_sha256: str | None = None
    machine: Machine = Machine()
    workers: int = 1
    started: float = 0.0
    finished: float = 0.0

    @property
    def is_failure(self) -> bool:
        """Whether there is something to repair: a run that diverged is a finding."""
        return self.status in FAILURES


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
