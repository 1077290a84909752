"""Specs as models, and the runs of a spec."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, JsonValue

from cmalight.bench.code import code_digest, is_own
from cmalight.bench.models import Conditions, Frozen, Options, Run


class DatasetEntry(Frozen):
    """A data set: a name that `load_dataset` knows, "file.csv:target=column", or "file.py:name".

    Attributes:
        dataset: Which one.
        name: Label in results.
    """

    dataset: str
    name: str


class NetworkEntry(Frozen):
    """A network: "3x20", "paper:3x20", "resnet18", or "file.py:name", called with features, outputs and the options.

    Attributes:
        network: Which one.
        name: Label in results.
        options: Keyword arguments.
    """

    network: str
    name: str
    options: Options = Field(default={})


class WorkloadEntry(Frozen):
    """A model with its data: a known name or "file.py:name".

    Attributes:
        workload: Which one.
        name: Label in results.
    """

    workload: str
    name: str


class SolverEntry(Frozen):
    """A solver: a known name or "file.py:name", called with the parameters and the options.

    Attributes:
        solver: Which one.
        name: Label in results.
        options: Keyword arguments.
        grid: Lists of values by option; every combination is a solver of its own.
    """

    solver: str
    name: str
    options: Options = Field(default={})
    grid: dict[str, Annotated[list[JsonValue], Field(min_length=1)]] = Field(default={})


def _tables(key: str) -> BeforeValidator:
    """A list of names or tables; a name alone becomes a table, and a table without a label gets one."""

    def tables(value: object) -> object:
        if not isinstance(value, list | tuple):
            return value
        return [_table(one, key) if isinstance(one, str | dict) else one for one in value]

    return BeforeValidator(tables)


def _table(given: str | dict[str, Any], key: str) -> dict[str, Any]:
    table = {key: given} if isinstance(given, str) else dict(given)
    source = str(table.get(key, ""))
    if "name" not in table:
        file, _, name = source.partition(":")
        table["name"] = name if is_own(source) else Path(file).stem if is_table(source) else source
    return table


def _counted(value: object) -> object:
    """5 stands for the seeds 0 to 4."""
    return list(range(value)) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else value


Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Spec(Conditions):
    """A study: every solver on every problem from every seed.

    Attributes:
        name: Of the study.
        datasets: Combined with every network.
        networks: Combined with every data set.
        workloads: Problems that bring data and model.
        solvers: To compare.
        seeds: How many, or which.
        grid: Options that every solver is varied over.
    """

    name: Annotated[str, Field(pattern=r"^[\w .,+-]{1,80}$")] = "study"
    datasets: Annotated[tuple[DatasetEntry, ...], _tables("dataset")] = ()
    networks: Annotated[tuple[NetworkEntry, ...], _tables("network")] = ()
    workloads: Annotated[tuple[WorkloadEntry, ...], _tables("workload")] = ()
    solvers: Annotated[tuple[SolverEntry, ...], _tables("solver"), Field(min_length=1)]
    seeds: Annotated[tuple[Seed, ...], BeforeValidator(_counted), Field(min_length=1)] = (0,)
    grid: dict[str, Annotated[list[JsonValue], Field(min_length=1)]] = Field(default={})


def plan(spec: Spec) -> list[Run]:
    """The runs of a spec with the code as it is now, problem by problem, seed by seed, solver by solver.

    Args:
        spec: What to compare.

    Returns:
        The runs; each has its `key`.
    """
    conditions = {name: getattr(spec, name) for name in Conditions.model_fields}
    digests: dict[tuple[str, ...], str] = {}
    runs = []
    for problem in _problems(spec):
        for seed in spec.seeds:
            for solver in solvers_of(spec):
                names = (solver.solver, *(str(problem.get(key) or "") for key in ("dataset", "network", "workload")))
                if names not in digests:
                    digests[names] = code_digest(*names)
                chosen = {"solver": solver.solver, "options": solver.options, "solver_label": solver.name, "seed": seed}
                runs.append(Run.model_validate({**conditions, **problem, **chosen, "code": digests[names]}))
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
    for data in spec.datasets:
        for network in spec.networks:
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
