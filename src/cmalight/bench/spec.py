"""Specs as models, and the runs of a spec."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from cmalight.bench.code import code_digest, is_own
from cmalight.bench.models import Conditions, Frozen, Options, Run

Grid = dict[str, Annotated[list[JsonValue], Field(min_length=1)]]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class SpecEntry(Frozen):
    """An entry of a list in a spec: a table, or what it is alone; `name` is its label in results."""

    kind: ClassVar[str]
    name: str = ""

    @model_validator(mode="before")
    @classmethod
    def _labelled(cls, given: Any) -> Any:
        table = {cls.kind: given} if isinstance(given, str) else given
        if not isinstance(table, dict) or "name" in table:
            return table
        source = str(table.get(cls.kind, ""))
        file, _, name = source.partition(":")
        return {**table, "name": name if is_own(source) else Path(file).stem if is_table(source) else source}


class DatasetEntry(SpecEntry):
    """A data set: a name that `load_dataset` knows, "file.csv:target=column", or "file.py:name"."""

    kind = "dataset"
    dataset: str


class NetworkEntry(SpecEntry):
    """A network: "3x20", "paper:3x20", "resnet18", or "file.py:name", called with features, outputs and the options."""

    kind = "network"
    network: str
    options: Options = Field(default={})


class WorkloadEntry(SpecEntry):
    """A model with its data: a known name or "file.py:name"."""

    kind = "workload"
    workload: str


class SolverEntry(SpecEntry):
    """A solver: a known name or "file.py:name", called with the parameters and the options."""

    kind = "solver"
    solver: str
    options: Options = Field(default={})
    grid: Grid = Field(default={})


def _counted(value: object) -> object:
    """5 stands for the seeds 0 to 4."""
    return tuple(range(value)) if type(value) is int else value


class Spec(Conditions):
    """A study: every solver on every problem from every seed.

    Attributes:
        name: Of the study.
        datasets: Combined with every network.
        networks: Combined with every data set.
        workloads: Problems that bring data and model.
        solvers: To compare.
        seeds: How many, or which.
        grid: Lists of values by option; every solver runs with every combination.
    """

    name: Annotated[str, Field(pattern=r"^[\w .,+-]{1,80}$")] = "study"
    datasets: tuple[DatasetEntry, ...] = ()
    networks: tuple[NetworkEntry, ...] = ()
    workloads: tuple[WorkloadEntry, ...] = ()
    solvers: Annotated[tuple[SolverEntry, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Seed, ...], BeforeValidator(_counted), Field(min_length=1)] = (0,)
    grid: Grid = Field(default={})


def plan(spec: Spec) -> list[Run]:
    """The runs of a spec with the current code, problem by problem, seed by seed, solver by solver.

    Args:
        spec: What to compare.

    Returns:
        The runs; each has its `key`.
    """
    conditions = {name: getattr(spec, name) for name in Conditions.model_fields}
    digest = functools.cache(code_digest)
    runs = []
    for problem, seed, solver in itertools.product(_problems(spec), spec.seeds, solvers_of(spec)):
        code = digest(solver.solver, *(problem.get(kind, "") for kind in ("dataset", "network", "workload")))
        chosen = {"solver": solver.solver, "options": solver.options, "solver_label": solver.name}
        runs.append(Run(**conditions, **problem, **chosen, seed=seed, code=code))
    return runs


def solvers_of(spec: Spec) -> Iterator[SolverEntry]:
    """The solvers with their grids spelled out: lr = [1e-3, 1e-2] gives `adam lr=0.001` and `adam lr=0.01`."""
    for entry in spec.solvers:
        grid = {**spec.grid, **entry.grid}
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            label = " ".join([entry.name, *(f"{name}={value}" for name, value in chosen.items())])
            yield SolverEntry(solver=entry.solver, name=label, options={**entry.options, **chosen})


def _problems(spec: Spec) -> Iterator[dict[str, Any]]:
    for data, network in itertools.product(spec.datasets, spec.networks):
        yield {
            "dataset": data.dataset,
            "dataset_label": data.name,
            "data": file_digest(data.dataset) if is_table(data.dataset) else None,
            "network": network.network,
            "network_options": network.options,
            "network_label": network.name,
        }
    for workload in spec.workloads:
        yield {"workload": workload.workload, "dataset_label": workload.name}


def is_table(source: str) -> bool:
    """Whether a data set is the user's own file, "file.csv:target=column" or the same for parquet."""
    return source.partition(":")[0].endswith((".csv", ".parquet"))


def file_digest(source: str) -> str:
    """sha256 of the file in "file.csv:target=column"."""
    with Path(source.partition(":")[0]).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
