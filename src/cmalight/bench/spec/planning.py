"""From a spec to its cells, and from the cells to the runs, each with the hash of what defines it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cmalight.bench.spec.networks import check_network
from cmalight.bench.spec.own_files import fetch_own_files, is_own, own_files_digest
from cmalight.bench.spec.solvers import check_solver, code_digest, is_full_batch
from cmalight.bench.spec.study import Definition, Network, Plain, Solver, Spec, SpecError, of_each_kind
from cmalight.datasets import DataError, dataset_info
from cmalight.errors import unknown_name

# Counted up whenever the same definition would give other figures than before.
_DEFINITION = 1
_KEY_DIGITS = 40


@dataclass(frozen=True)
class PlannedRun:
    """A run that is to be: a cell (data set, network, seed) and a solver, under the conditions of its spec.

    Attributes:
        key: the hash of the definition, and the name of its file.
        source: what `load_dataset` takes; a path for a user's own data set.
        definition: all that decides what comes out.
        killed_after: the seconds after which it is killed, if it has not ended.
    """

    key: str
    source: str
    definition: Definition
    killed_after: float | None = None

    @property
    def dataset(self) -> str:
        """How it is called in results."""
        return self.definition.dataset

    @property
    def network(self) -> Network:
        """What is trained."""
        return self.definition.network

    @property
    def solver(self) -> Solver:
        """What trains it."""
        return self.definition.solver

    @property
    def seed(self) -> int:
        """Of the start and of the order."""
        return self.definition.seed

    @property
    def cell(self) -> tuple[str, str, int]:
        """What it shares with the runs that it is compared with."""
        return self.dataset, self.network.name, self.seed

    def __str__(self) -> str:
        return f"{self.dataset} {self.network.name} seed {self.seed} {self.solver.name}"


def plan(spec: Spec, *, fetch: bool = False) -> list[PlannedRun]:
    """All runs, cell by cell.

    Args:
        spec: what to compare.
        fetch: download a user's own data first, which is part of what defines a run.

    Returns:
        The runs, each with the hash of what defines it.

    Raises:
        SpecError: for a solver or a network that cannot be made.
    """
    for solver in spec.solvers:
        check_solver(solver)
    _check_names(spec)
    _check_trusted(spec)
    runs = []
    for source in spec.datasets:
        entry = dataset_info(source)
        channels = None if entry.image is None else entry.image[0]
        classes = None if entry.task == "regression" else entry.classes or 2
        if fetch and is_own(source):
            with suppress(DataError):  # its runs will say so, and are left for later
                fetch_own_files(source, trust=entry.name in spec.trust)
        digest = own_files_digest(source, trust=entry.name in spec.trust)
        for network in spec.networks:
            check_network(network, dataset=entry.name, classes=classes, channels=channels)
            for seed in spec.seeds:
                for solver in spec.solvers:
                    definition = Definition(
                        dataset=entry.name,
                        data_files=digest,
                        network=network,
                        seed=seed,
                        solver=dataclasses.replace(solver, full_batch=is_full_batch(solver)),
                        code=code_digest(solver.solver, network.network),
                        trusted=entry.name in spec.trust,
                        **spec.conditions(),
                    )
                    key = key_of(definition.to_plain())
                    runs.append(PlannedRun(key, source, definition, spec.killed_after))
    _check_distinct(runs)
    return runs


def key_of(definition: Plain) -> str:
    """The name of a run's file."""
    text = json.dumps([_DEFINITION, definition], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


@dataclass(frozen=True)
class Narrowing:
    """What the command's options leave of a spec.

    Attributes:
        time_limit: in place of the spec's.
        seeds: "3" for the first three, "0,4" or "2-4" for these.
        only: names of data sets, networks or solvers; of each kind that is named, only these.
        trust: data sets whose files are taken whatever their checksum, beside those of the spec.
    """

    time_limit: float | None = None
    seeds: str | None = None
    only: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()


def narrowed(spec: Spec, narrowing: Narrowing) -> Spec:
    """A part of a comparison.

    Args:
        spec: the whole.
        narrowing: what to leave of it.

    Returns:
        Another spec.

    Raises:
        SpecError: for a name that the spec does not have, or seeds that it has not.
    """
    changes: dict[str, Any] = {}
    if narrowing.time_limit is not None:
        changes["time_limit"] = float(narrowing.time_limit)
    if narrowing.seeds is not None:
        changes["seeds"] = _chosen_seeds(narrowing.seeds, spec.seeds)
    part = dataclasses.replace(spec, **changes, **_only(spec, narrowing.only))
    left = {dataset_info(source).name for source in part.datasets}
    kept = [name for name in spec.trust if name in left]
    return dataclasses.replace(part, trust=tuple(dict.fromkeys((*kept, *narrowing.trust))))


def _only(spec: Spec, names: Sequence[str]) -> dict[str, Any]:
    named: dict[str, dict[str, Any]] = {
        "datasets": {dataset_info(source).name: source for source in spec.datasets},
        "networks": {one.name: one for one in spec.networks},
        "solvers": {one.name: one for one in spec.solvers},
    }
    return {
        kind: tuple(one for name, one in named[kind].items() if name in chosen)
        for kind, chosen in of_each_kind(names, named).items()
    }


def _chosen_seeds(text: str, seeds: tuple[int, ...]) -> tuple[int, ...]:
    wrong = SpecError(
        f"Invalid seeds: {text!r}; expected how many (3), or which (0,4 or 2-4) of {', '.join(map(str, seeds))}"
    )
    try:
        if "," in text:
            chosen = [int(part) for part in text.split(",") if part.strip()]
        elif "-" in text:
            first, last = (int(part) for part in text.split("-"))
            if last - first > len(seeds):
                raise wrong
            chosen = list(range(first, last + 1))
        else:
            if not 1 <= int(text) <= len(seeds):
                raise wrong
            return seeds[: int(text)]
    except ValueError as error:
        raise wrong from error
    if not chosen or any(seed not in seeds for seed in chosen):
        raise wrong
    return tuple(dict.fromkeys(chosen))


def _check_names(spec: Spec) -> None:
    """Results go by the name of a data set, so two of one name could not be told apart."""
    sources: dict[str, str] = {}
    for source in spec.datasets:
        name = dataset_info(source).name
        if name in sources:
            raise SpecError(
                f"{sources[name]} and {source} are the same data set, or two of the same name, {name!r}: leave one "
                "out, or give it another name in its TOML file"
            )
        sources[name] = source


def _check_trusted(spec: Spec) -> None:
    names = [dataset_info(source).name for source in spec.datasets]
    for name in set(spec.trust).difference(names):
        raise SpecError(unknown_name("data set to trust", name, names))


def _check_distinct(runs: Sequence[PlannedRun]) -> None:
    seen: dict[str, PlannedRun] = {}
    for run in runs:
        if run.key in seen:
            raise SpecError(f"two runs are the same: {run}; leave one of them out")
        seen[run.key] = run
