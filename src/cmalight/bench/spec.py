"""Specs: what to compare, in TOML, checked completely before anything runs."""

from __future__ import annotations

import hashlib
import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, ValidationError

from cmalight.bench.code import code_digest, is_own
from cmalight.bench.models import Conditions, Frozen, Options, Run
from cmalight.errors import unknown_name

PRESETS = ("demo", "quick", "paper", "paper-code", "today")
_PRESET_FOLDER = Path(__file__).parent / "presets"
_INHERITED = "..."  # in a list: what the extended spec has there


class SpecError(ValueError):
    """A spec cannot be used; the message says what is wrong and what was expected."""


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


def read_spec(source: str | Path, changes: Sequence[str] = ()) -> Spec:
    """Read a preset or a TOML file and check it without running anything.

    Args:
        source: Name of a preset, or path of a TOML file.
        changes: Lines of TOML that replace keys of the spec, such as "seconds = 4".

    Returns:
        The spec.

    Raises:
        SpecError: If something in it cannot be used; the message names all of it.
    """
    plain = _tables_of(source)
    try:
        plain.update(_absolute(tomllib.loads("\n".join(changes)), Path.cwd()))
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{' '.join(changes)!r} is not TOML ({error}); give changes such as 'seeds = 2'") from error
    return make_spec(plain, origin=str(source))


def make_spec(plain: Mapping[str, Any], *, origin: str = "spec") -> Spec:
    """Make a spec from the tables of a TOML file and check all of it.

    Args:
        plain: What TOML has, with paths that are absolute or relative to the current folder.
        origin: Begins every message.

    Returns:
        The spec.

    Raises:
        SpecError: If something in it cannot be used.
    """
    from cmalight.bench.checks import problems_of

    try:
        spec = Spec.model_validate(_absolute(plain, Path.cwd()))
    except ValidationError as error:
        raise SpecError(f"{origin}: {'; '.join(_explained(one) for one in error.errors())}") from error
    wrong = [*_contradictions(spec), *problems_of(spec)]
    if wrong:
        raise SpecError(f"{origin}: {'; '.join(wrong)}")
    return spec


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


def _tables_of(source: str | Path, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """The keys of a spec file over those of the spec that it extends."""
    path = Path(source)
    if str(source) in PRESETS:
        path = _PRESET_FOLDER / f"{source}.toml"
    elif not path.is_file():
        hint = unknown_name("preset", str(source), PRESETS)
        raise SpecError(f"there is no file {source}" if path.suffix == ".toml" else f"{hint}; or a TOML file")
    if str(path) in seen:
        raise SpecError(f"{path} extends itself")
    try:
        own = _absolute(tomllib.loads(path.read_text(encoding="utf-8")), path.parent)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is not TOML: {error}") from error
    own.setdefault("name", path.stem)
    extended = own.pop("extends", None)
    if extended is None:
        return own
    if not isinstance(extended, str):
        raise SpecError(f"{path}: extends must be a preset or a file, got {extended!r}")
    base = _tables_of(extended if extended in PRESETS else path.parent / extended, (*seen, str(path)))
    return {**base, **{key: _inheriting(value, base.get(key)) for key, value in own.items()}}


def _inheriting(value: Any, base: Any) -> Any:
    """A list in which "..." stands for the entries of the extended spec."""
    if not (isinstance(value, list) and _INHERITED in value and isinstance(base, list)):
        return value
    return [inner for one in value for inner in (base if one == _INHERITED else [one])]


def _absolute(plain: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same with the user's own files as absolute paths, wherever a spec lies."""

    def absolute(source: Any) -> Any:
        if isinstance(source, str) and (is_own(source) or is_table(source)):
            return str(folder.resolve() / source)
        return source

    def entry(one: Any, key: str) -> Any:
        return {**one, key: absolute(one[key])} if isinstance(one, dict) and key in one else absolute(one)

    found = dict(plain)
    for key in ("datasets", "networks", "workloads", "solvers"):
        if isinstance(found.get(key), list | tuple):
            found[key] = [entry(one, key[:-1]) for one in found[key]]
    return found


def _explained(error: Any) -> str:
    place, kind = [str(part) for part in error["loc"]], error["type"]
    where = ".".join(place)
    if kind == "extra_forbidden":
        models: dict[str, type[BaseModel]] = {
            "datasets": DatasetEntry, "networks": NetworkEntry, "workloads": WorkloadEntry, "solvers": SolverEntry,
        }  # fmt: skip
        model = models.get(place[0], Spec) if len(place) > 1 else Spec
        known = [*model.model_fields, *(["extends"] if model is Spec else [])]
        return unknown_name(f"key in {'.'.join(place[:-1])}" if len(place) > 1 else "key", place[-1], known)
    if kind == "missing":
        return f"the key {where} is missing"
    return f"{where}: {error['msg'].removeprefix('Value error, ')}, got {error['input']!r}"


def _contradictions(spec: Spec) -> Iterator[str]:
    if spec.seconds is None and spec.epochs is None and spec.batches is None:
        yield "give the runs a budget: seconds, epochs or batches"
    if spec.epochs is not None and spec.batches is not None:
        yield "epochs and batches are both given; give one of them"
    if not spec.workloads and not (spec.datasets and spec.networks):
        yield "give datasets and networks, or workloads"
    if bool(spec.datasets) != bool(spec.networks):
        yield "datasets and networks go together; one of them is missing"
    labels: dict[str, Iterable[Any]] = {
        "datasets and workloads": [*(one.name for one in spec.datasets), *(one.name for one in spec.workloads)],
        "networks": [one.name for one in spec.networks],
        "solvers": [one.name for one in solvers_of(spec)],
        "seeds": spec.seeds,
    }
    for what, names in labels.items():
        seen: set[Any] = set()
        for name in names:
            if name in seen:
                yield f"{name!r} is twice in {what}; leave one out, or give it another `name`"
            seen.add(name)
