"""What is to be compared: data sets, networks, solvers, seeds, and the conditions that hold for all of them."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cmalight.errors import (
    check_choice,
    check_flag,
    check_part,
    check_positive,
    check_seed,
    check_whole,
    invalid,
    is_number,
    unknown_name,
)

Plain = dict[str, Any]
_LABEL = re.compile(r"[^\x00-\x1f\x7f]{1,100}")
_A_LABEL = "a text of 1 to 100 characters in one line"
_WALL_FACTOR, _WALL_GRACE = 3.0, 60.0
_MOST_SEEDS = 100_000


class SpecError(ValueError):
    """The spec says something that cannot be run: the message says what, and what was expected."""


@dataclass(frozen=True)
class Solver:
    """A solver of a comparison, with its parameters.

    Attributes:
        solver: a name of `solvers.SOLVERS`, or `module:callable`, called as `callable(parameters, **options)`.
        name: what tables and figures call it.
        options: its keyword arguments.
        full_batch: all samples in one batch; None leaves it to the solver.
    """

    solver: str
    name: str
    options: Plain = field(default_factory=dict)
    full_batch: bool | None = None


@dataclass(frozen=True)
class Network:
    """A network of a comparison.

    Attributes:
        network: `3x20`, `paper:3x20`, `resnet18`, or `module:callable`, called as `callable(features=, outputs=)`.
        name: what tables and figures call it.
        options: keyword arguments beside these.
    """

    network: str
    name: str
    options: Plain = field(default_factory=dict)


Check = Callable[[str, Any], None]
_count = functools.partial(check_whole, least=1)


def _label(key: str, value: object) -> None:
    if not (isinstance(value, str) and _LABEL.fullmatch(value)):
        raise invalid(key, value, _A_LABEL)


def _all_seeds(key: str, value: Sequence[object]) -> None:
    if not value:
        raise invalid(key, value, "one or more")
    for one in value:
        check_seed(key, one)


def _or_none(check: Check) -> Check:
    return lambda key, value: None if value is None else check(key, value)


def _condition(default: Any, check: Check, **flags: bool) -> Any:
    """A condition: its default, and its check.

    later: it came after the first results, so a run that leaves it at its default is the run it was before
    beside: it does not make another problem of a cell
    """
    return field(default=default, metadata={"check": check, **flags})


def _one_of(default: str, other: str, **flags: bool) -> Any:
    return _condition(default, functools.partial(check_choice, choices=(default, other)), **flags)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What holds for every run of a study.

    Attributes:
        time_limit: seconds of training; measuring does not count.
        max_epochs: the end in epochs.
        batch_size: samples of a batch.
        order: of the samples, "reshuffle" or "fixed".
        measure_every: the true training loss is measured after every so many epochs, at the start and at the end.
        measure_test: measure the loss on the test part too, and for classes the accuracy.
        threads: torch's, of each run; "all" in a file stands for the cores of the machine that reads it.
        split_seed: of the split into training and test part.
        test_share: of the samples in the test part.
        memory_limit: megabytes a run may allocate; by default the workers of a machine share its memory.
        wall_limit: seconds after which a run that does not end is killed; by default 60 and three times the time limit.
        engine: "eager", or "compiled" for every solver alike; compiling is on the training clock.
        starts: of each run, trained at once, of which the best counts; for comparisons by epochs, compiled.
        clock: what a second is: of the wall's clock, or of a processor's time for this run, whatever else runs beside.
    """

    time_limit: float | None = _condition(None, _or_none(check_positive))
    max_epochs: int | None = _condition(None, _or_none(_count))
    batch_size: int = _condition(128, _count)
    order: Literal["reshuffle", "fixed"] = _one_of("reshuffle", "fixed")
    measure_every: int = _condition(1, _count)
    measure_test: bool = _condition(False, check_flag, beside=True)
    threads: int = _condition(1, functools.partial(_count, most=1024))
    split_seed: int = _condition(0, check_seed)
    test_share: float = _condition(0.25, check_part)
    memory_limit: float | None = _condition(None, _or_none(check_positive), beside=True)
    wall_limit: float | None = _condition(None, _or_none(check_positive), beside=True)
    engine: Literal["eager", "compiled"] = _one_of("eager", "compiled", later=True)
    starts: int = _condition(1, functools.partial(_count, most=1000), later=True)
    clock: Literal["wall", "processor"] = _one_of("wall", "processor", later=True)

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if one.name in _FLOATS and is_number(value):  # 3 and 3.0 are the same limit, and the same run
                object.__setattr__(self, one.name, value := float(value))
            if one.metadata:
                _checked(one.metadata["check"], one.name, value)
            if not isinstance(value, bool) and isinstance(value, numbers.Integral):  # NumPy's are none in JSON
                object.__setattr__(self, one.name, int(value))
        _check_ends(self)

    def conditions(self) -> Plain:
        """By name.

        Returns:
            The value of each condition.
        """
        return {name: getattr(self, name) for name in CONDITIONS}


def _checked(check: Check, key: str, value: Any) -> None:
    try:
        check(key, value)
    except ValueError as error:
        raise SpecError(str(error)) from error


_FLOATS = ("time_limit", "test_share", "memory_limit", "wall_limit")
CONDITIONS = tuple(one.name for one in dataclasses.fields(Conditions))
LATER_CONDITIONS: Plain = {one.name: one.default for one in dataclasses.fields(Conditions) if one.metadata.get("later")}
# Runs under different ones are different problems.
PROBLEM_CONDITIONS = tuple(one.name for one in dataclasses.fields(Conditions) if not one.metadata.get("beside"))


@dataclass(frozen=True, kw_only=True)
class Definition(Conditions):
    """One run: all that decides what comes out of it. Its plain form is hashed, sent to workers, and kept in results.

    Attributes:
        dataset: how it is called in results.
        data_files: what the files of a user's own data set are; None for one of the registry.
        network: what is trained.
        seed: of the initial weights and of the order of the samples.
        solver: what trains it; `full_batch` is decided.
        code: what the modules of a user's own solver or network are; None where both are the package's.
        trusted: the files of the data set were taken whatever their checksum, because the spec said so.
    """

    dataset: str
    data_files: str | None
    network: Network
    seed: int = _condition(dataclasses.MISSING, check_seed)
    solver: Solver
    code: str | None = None
    trusted: bool = False

    @property
    def data_name(self) -> DataName:
        """Runs of this name must have had the same data: in a folder, a name stands for one data set."""
        return self.dataset, self.split_seed, self.test_share

    @property
    def runs_own_code(self) -> bool:
        """Whether the solver or the network is a user's `module:callable`."""
        return is_own_code(self.solver.solver) or is_own_code(self.network.network)

    def to_plain(self) -> Plain:
        """As JSON has it; what came later is left out at its default, so that the hash is as before."""
        later = {**LATER_CONDITIONS, "code": None, "trusted": False}
        plain = dataclasses.asdict(self)
        return {key: value for key, value in plain.items() if key not in later or value != later[key]}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Definition:
        """From what `to_plain` gave, maybe in a later version, which may know of more."""
        parts = {
            "network": Network(**_fields_of(Network, plain["network"])),
            "solver": Solver(**_fields_of(Solver, plain["solver"])),
        }
        return Definition(**{**_fields_of(Definition, plain), **parts})


def _fields_of(kind: type[Any], plain: Mapping[str, Any]) -> Plain:
    return {one.name: plain[one.name] for one in dataclasses.fields(kind) if one.name in plain}


DataName = tuple[str, int, float]
PAPER = "paper:"


def is_own_code(name: str) -> bool:
    """Whether the name of a solver or a network is a user's `module:callable`."""
    return ":" in name and not name.startswith(PAPER)


@dataclass(frozen=True, kw_only=True)
class Spec(Conditions):
    """A comparison: every data set with every network and every seed is a cell, and every solver runs in every cell.

    Attributes:
        datasets: names, or paths of TOML files.
        networks: to train.
        solvers: to compare.
        seeds: of the initial weights and of the order of the samples, one per start.
        name: of the comparison.
        trust: data sets, as results call them, whose files are taken whatever their checksum.
    """

    datasets: tuple[str, ...]
    networks: tuple[Network, ...]
    solvers: tuple[Solver, ...]
    seeds: tuple[int, ...] = _condition((0,), _all_seeds)
    name: str = _condition("unnamed", _label)
    trust: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "seeds", tuple(map(int, self.seeds)))
        _check(self)

    @property
    def killed_after(self) -> float | None:
        """None: a run that is limited in epochs alone may take as long as it likes."""
        if self.wall_limit is not None:
            return self.wall_limit
        return None if self.time_limit is None else _WALL_FACTOR * self.time_limit + _WALL_GRACE

    def to_plain(self) -> Plain:
        """As TOML and JSON have it.

        Returns:
            What `read_spec` would read.
        """
        plain = dataclasses.asdict(self)
        return {**{key: plain.pop(key) for key in ("name", "datasets", "networks", "solvers", "seeds")}, **plain}


def of_each_kind(names: Sequence[str], known: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """Of each kind (data set, network, solver) what is named; the paper's networks also without `paper:`.

    Args:
        names: of whatever kind.
        known: by kind, what there is.

    Returns:
        The kinds that are named, with the names.

    Raises:
        SpecError: if there is none of that name.
    """
    found: dict[str, set[str]] = {}
    for given in names:
        name = given if any(given in members for members in known.values()) else f"{PAPER}{given}"
        kinds = [kind for kind, members in known.items() if name in members]
        if not kinds:
            everything = sorted({member for members in known.values() for member in members})
            raise SpecError(unknown_name("name in `only`", given, everything))
        for kind in kinds:
            found.setdefault(kind, set()).add(name)
    return found


def spec_from_plain(plain: object, *, origin: str) -> Spec:
    """A spec from the tables of a TOML or JSON file; `origin` begins every message."""
    try:
        table = _known(plain, Spec, "key")
        for needed in ("datasets", "networks", "solvers"):
            if needed not in table:
                raise SpecError(f"the key {needed!r} is missing")
        if table.get("threads") == "all":
            table["threads"] = cores()
        return Spec(
            **{
                **table,
                "datasets": tuple(_texts("datasets", table["datasets"])),
                "networks": tuple(_entry(one, Network, "network") for one in _list("networks", table["networks"])),
                "solvers": tuple(_entry(one, Solver, "solver") for one in _list("solvers", table["solvers"])),
                **({"seeds": _seeds(table["seeds"])} if "seeds" in table else {}),
                "trust": tuple(_texts("trust", table["trust"])) if table.get("trust") else (),
            }
        )
    except SpecError as error:
        raise SpecError(f"{origin}: {error}") from error


def cores() -> int:
    """Those this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def _known(plain: object, kind: type, what: str) -> Plain:
    if not isinstance(plain, Mapping):
        raise SpecError(f"expected a table of keys and values, got {plain!r}")
    known = [one.name for one in dataclasses.fields(kind)]
    for key in plain:
        if key not in known:
            raise SpecError(unknown_name(what, key, known))
    return dict(plain)


def _entry(plain: object, kind: type[Any], main: str) -> Any:
    """A solver or a network: its name alone, or a table."""
    if isinstance(plain, str):
        return kind(plain, plain)
    table = _known(plain, kind, f"key of a {main}")
    if not isinstance(table.get(main), str):
        raise SpecError(f"a table of {main}s needs the key {main!r}, a text; got {plain!r}")
    return kind(**{"name": table[main], **table})


def _list(key: str, value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple) or not value:
        raise SpecError(f"{key} must be a list of one or more, got {value!r}")
    return value


def _texts(key: str, value: object) -> list[str]:
    texts = [one for one in _list(key, value) if isinstance(one, str)]
    if len(texts) != len(_list(key, value)):
        raise SpecError(f"{key} must be a list of names, got {value!r}")
    return texts


def _seeds(value: object) -> tuple[int, ...]:
    """5 stands for 0, 1, 2, 3, 4."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= _MOST_SEEDS:
            raise SpecError(f"Invalid seeds value: {value}; expected how many, from 1 to {_MOST_SEEDS}, or a list")
        return tuple(range(value))
    return tuple(_list("seeds", value))  # type: ignore[arg-type]


def _check_ends(run: Conditions) -> None:
    if run.time_limit is None and run.max_epochs is None:
        raise SpecError("give the runs an end: time_limit, max_epochs, or both")
    if run.wall_limit is not None and run.time_limit is not None and not run.wall_limit > run.time_limit:
        raise SpecError(
            f"Invalid wall_limit value: {run.wall_limit:g}; expected more than the time_limit, {run.time_limit:g}: "
            "a run is killed after it, and measuring takes time, too"
        )
    if run.starts > 1 and run.time_limit is not None:
        raise SpecError("starts trained at once share their time, so it cannot be compared: use max_epochs alone")
    if run.starts > 1 and run.engine != "compiled":
        raise SpecError("several starts at once are compiled: set engine to 'compiled'")


def _check(spec: Spec) -> None:
    for solver in spec.solvers:
        _checked(_or_none(check_flag), "full_batch", solver.full_batch)
    entries: list[Solver | Network] = [*spec.solvers, *spec.networks]
    for entry in entries:
        _check_options(entry)
    for key in ("datasets", "seeds"):
        _check_once(key, getattr(spec, key))
    for key in ("networks", "solvers"):
        _check_once(f"{key} (give two of a kind a `name` each)", [entry.name for entry in getattr(spec, key)])


def _check_options(entry: Solver | Network) -> None:
    _checked(_label, "name", entry.name)
    if not isinstance(entry.options, dict):
        raise SpecError(f"Invalid options of {entry.name}: {entry.options!r}; expected a table")
    for key, value in entry.options.items():
        single = value if isinstance(value, list | tuple) else [value]
        finite = all(isinstance(one, bool | str) or is_number(one) for one in single)
        if not (isinstance(key, str) and finite):
            raise SpecError(f"Invalid option {key} of {entry.name}: {value!r}; expected numbers, texts or flags")


def _check_once(key: str, names: Sequence[object]) -> None:
    twice = [name for position, name in enumerate(names) if name in names[:position]]
    if twice:
        raise SpecError(f"{twice[0]!r} is twice in {key}")
