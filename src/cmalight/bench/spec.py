"""Specs as models, and the runs of a spec."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from cmalight.bench.code import code_digest, is_table, is_user_code
from cmalight.bench.models import Conditions, Frozen, Options, Run, Seed

Grid = dict[str, Annotated[list[JsonValue], Field(min_length=1)]]


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
        return {**table, "name": name if is_user_code(source) else Path(file).stem if is_table(source) else source}

    @property
    def defines(self) -> str:
        """What the entry says of a run, without its labels, as text."""
        return json.dumps(self.model_dump(exclude={"name", "group"}), sort_keys=True)


class DatasetEntry(SpecEntry):
    """A data set: a name that `load_dataset` knows, "file.csv:target=column", or "file.py:name"."""

    kind = "dataset"
    dataset: str
    group: str = ""  # group of its problems in the report; by default that of the catalogue


class NetworkEntry(SpecEntry):
    """A network: "3x20", "paper:3x20", "resnet18", or "file.py:name", called with features, outputs and the options."""

    kind = "network"
    network: str
    options: Options = Field(default={})


class WorkloadEntry(SpecEntry):
    """A model with its data, "file.py:name"."""

    kind = "workload"
    workload: str
    group: str = ""


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
    solvers: tuple[SolverEntry, ...]
    seeds: Annotated[tuple[Seed, ...], BeforeValidator(_counted)] = (0,)
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
    for problem, seed, (grid, solver) in itertools.product(list(_problems(spec)), spec.seeds, solvers_of(spec)):
        code = digest(solver.solver, *(problem[kind] for kind in ("dataset", "network", "workload") if kind in problem))
        chosen = {"solver": solver.solver, "options": solver.options, "solver_label": solver.name, "grid": grid}
        runs.append(Run(**conditions, **problem, **chosen, seed=seed, code=code))
    return runs


def solvers_of(spec: Spec) -> Iterator[tuple[str, SolverEntry]]:
    """The solvers, each with the name of its grid, or "" if it has none.

    A grid lr = [1e-3, 1e-2] of `adam` gives `adam lr=0.001` and `adam lr=0.01`.
    """
    for entry in spec.solvers:
        grid = {**spec.grid, **entry.grid}
        combinations = list(itertools.product(*grid.values()))
        for values in combinations:
            chosen = dict(zip(grid, values, strict=True))
            label = " ".join([entry.name, *(f"{name}={value}" for name, value in chosen.items())])
            solver = SolverEntry(solver=entry.solver, name=label, options={**entry.options, **chosen})
            yield entry.name if len(combinations) > 1 else "", solver


def _problems(spec: Spec) -> Iterator[dict[str, Any]]:
    from cmalight.bench.problems import data_digest
    from cmalight.datasets import dataset_info

    digests = {data.dataset: data_digest(data.dataset) for data in spec.datasets}
    for data, network in itertools.product(spec.datasets, spec.networks):
        yield {
            "dataset": data.dataset,
            "dataset_label": data.name,
            "group": data.group or ("" if is_user_code(data.dataset) else dataset_info(data.dataset).group),
            "data": digests[data.dataset],
            "network": network.network,
            "network_options": network.options,
            "network_label": network.name,
        }
    for work in spec.workloads:
        data_of = {"dataset_label": work.name, "group": work.group, "data": data_digest(work.workload, workload=True)}
        yield {"workload": work.workload, **data_of}
