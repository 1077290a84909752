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

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PositiveFloat, model_validator

from cmalight import __version__

Status = Literal["done", "diverged", "failed", "crashed", "timed_out", "unavailable"]
FAILURES: tuple[Status, ...] = ("failed", "crashed", "timed_out", "unavailable")
Options = dict[str, JsonValue]
_NOT_IN_THE_KEY = {"wall_limit", "dataset_label", "network_label", "solver_label", "group", "grid"}
_FILES = ("dataset", "network", "workload", "solver")
_KEY_DIGITS = 32
_LARGEST = 1e100
_WALL_FACTOR, _WALL_GRACE, _WALL_WITHOUT_CLOCK = 10.0, 60.0, 86_400.0
_YEAR = 31_536_000.0
_WALL_LONGEST = 2_000_000.0  # the system cannot wait for more than 2**31 milliseconds


def _or_none(value: object) -> object:
    """A loss that left all bounds counts as not finite, so that no sum of losses overflows."""
    return None if isinstance(value, float) and not abs(value) <= _LARGEST else value


# Counts that a file may hold: a float has them exactly.
Count = Annotated[int, Field(ge=0, le=2**53)]
Natural = Annotated[int, Field(ge=1, le=2**53)]
Spent = Annotated[float, Field(ge=0, le=1e15)]
Number = Annotated[float | None, BeforeValidator(_or_none)]  # None: not measured, or not finite
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Frozen(BaseModel):
    """A model that refuses unknown keys, infinity and NaN, and cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Conditions(Frozen):
    """What holds for every run of a study.

    Attributes:
        seconds: Budget on the training clock, a year at most; measuring does not count.
        epochs: Budget in epochs.
        batches: Budget in batches: the nearest whole number of epochs, at least one.
        target_loss: Stop after the epoch in which the measured training loss is this low.
        batch_size: Samples in a batch.
        order: "reshuffle" draws a new order for every epoch, "fixed" keeps the order of the data.
        engine: "eager", or "auto" for compiled epochs if cmalight can compile the model and the optimizer.
        clock: "wall", or "processor" for the processor time of the run, whatever else the machine does.
        threads: Threads of torch in each run.
        split_seed: Random seed for the split into training and validation part.
        test_fraction: Fraction of the samples in the validation part.
        spacing: Ratio of the steps after which a run is measured: 1.15 gives 93 points in a million steps.
        first_point: Step of the first measurement after the start.
        wall_limit: Kill a run after this many seconds. Default: 60 s plus ten times `seconds`; a day without `seconds`.
            Never more than 23 days.
    """

    seconds: Annotated[float, Field(gt=0, le=_YEAR)] | None = None
    epochs: Natural | None = None
    batches: Natural | None = None
    target_loss: float | None = None
    batch_size: Natural = 128
    order: Literal["reshuffle", "fixed"] = "reshuffle"
    engine: Literal["eager", "auto"] = "eager"
    clock: Literal["wall", "processor"] = "wall"
    threads: Natural = 1
    split_seed: Seed = 0
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.25
    spacing: Annotated[float, Field(gt=1, le=1000)] = 1.15
    first_point: Natural = 1
    wall_limit: PositiveFloat | None = None

    @property
    def killed_after(self) -> float:
        """Seconds on the wall clock after which a run counts as hanging."""
        usual = _WALL_WITHOUT_CLOCK if self.seconds is None else _WALL_GRACE + _WALL_FACTOR * self.seconds
        return min(self.wall_limit or usual, _WALL_LONGEST)


class Run(Conditions):
    """One solver on one problem from one seed: everything that decides what comes out.

    Attributes:
        dataset: As `load_dataset` takes it, "file.csv:target=column" included, or "file.py:name"; empty for a workload.
        network: "3x20", "paper:3x20", "resnet18" or "file.py:name"; empty for a workload.
        network_options: Keyword arguments of the network.
        workload: "file.py:name"; None for a data set with a network.
        solver: Name of a solver, or "file.py:name".
        options: Keyword arguments of the solver.
        seed: Random seed for the initial weights, the order of the samples and all random numbers of the run.
        code: Digest of the code that takes part in the run: the package's and the user's.
        data: sha256 of the user's CSV or parquet file, or of the arrays that "file.py:name" gives.
        dataset_label: Name of the data set, or of the workload, in results.
        network_label: Name of the network in results.
        solver_label: Name of the solver in results.
        group: Group of the problem in the report, such as "big".
        grid: Name of the solver whose grid this one is part of.
    """

    dataset: str = ""
    network: str = ""
    network_options: Options = {}
    workload: str | None = None
    solver: str
    options: Options = {}
    seed: Seed
    code: str
    data: str | None = None
    dataset_label: str = ""
    network_label: str = ""
    solver_label: str = ""
    group: str = ""
    grid: str = ""

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

    @property
    def source(self) -> str:
        """What the data are taken from: the cuts and options of one data set, and the targets of one file, are one."""
        name = self.workload or self.dataset
        base, _, options = name.partition(":")
        return base if "=" in options else name

    def __str__(self) -> str:
        return f"{self.problem}, seed {self.seed}, {self.solver_label}"


class Points(Frozen):
    """What was measured on the way, one entry per point: before the first step, after chosen steps, at the end.

    `work` counts everything that a solver computes, in passes over the training data: the samples used for gradients
    divided by N, plus one third of the rows that its control evaluated divided by N. A forward pass costs about a third
    of a training pass (forward and backward). Measuring for the results counts nowhere.
    """

    step: list[Count] = []
    epoch: list[Spent] = []
    seconds: list[Spent] = []
    work: list[Spent] = []
    train_loss: list[Number] = []
    validation_loss: list[Number] = []
    accuracy: list[Number] = []
    lr: list[Number] = []
    evaluations: list[Count] = []
    evaluated_rows: list[Count] = []

    @model_validator(mode="after")
    def _equally_long(self) -> Self:
        if len({len(getattr(self, name)) for name in type(self).model_fields}) > 1:
            raise ValueError("the columns of the points are not equally long")
        return self


class Machine(Frozen):
    """Where a run took place; `load` is the load average of the last minute when the run began."""

    host: str = ""
    cpu: str = ""
    cores: Natural = 1
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
            or "unavailable" (the machine lacks the data or the code), which no file keeps.
        ended_by: The stop rule that ended the training.
        error: Last line of the traceback, or what happened in one sentence.
        traceback: All of it.
        log: What the run printed.
        points: What was measured on the way.
        epochs: Epochs that were finished.
        outcomes: How many of them ended how; "uncontrolled" without a control.
        task: "regression", "classification", or the workload's.
        n_parameters: Numbers that are trained.
        n_samples: Samples in the training part.
        n_validation: Samples in the validation part.
        batches_per_epoch: Batches in an epoch.
        engine_used: "eager" or "compiled".
        accepted: Fraction of the control's decisions that accepted what the steps had done; None without a control.
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
    epochs: Count = 0
    outcomes: dict[str, Count] = {}
    task: str | None = None
    n_parameters: Count | None = None
    n_samples: Natural | None = None
    n_validation: Count | None = None
    batches_per_epoch: Natural | None = None
    engine_used: str | None = None
    accepted: Number = None
    data_sha256: str | None = None
    machine: Machine = Machine()
    workers: Natural = 1
    started: Spent = 0.0
    finished: Spent = 0.0

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
