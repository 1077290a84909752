"""What is to be compared: data sets, networks, solvers, seeds, and the rules that hold for all of them."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cmalight.errors import unknown_name

Plain = dict[str, Any]
_LABEL = re.compile(r"[^\x00-\x1f\x7f]{1,100}")
_OPTION_TYPES = (bool, int, float, str)
_WALL_FACTOR, _WALL_GRACE = 3.0, 60.0
_MOST_SEEDS = 100_000


class SpecError(ValueError):
    """The spec says something that cannot be run: the message says what, and what was expected."""


@dataclass(frozen=True)
class Solver:
    """A solver with its parameters.

    solver: a name of `solvers.SOLVERS`, or `module:callable`, called as `callable(parameters, **options)`
    name: what tables and figures call it
    full_batch: all samples in one batch; None leaves it to the solver
    """

    solver: str
    name: str
    options: Plain = field(default_factory=dict)
    full_batch: bool | None = None


@dataclass(frozen=True)
class Network:
    """A network: `3x20`, `paper:3x20`, `resnet18`, or `module:callable`, called as `callable(features=, outputs=)`."""

    network: str
    name: str
    options: Plain = field(default_factory=dict)


@dataclass(frozen=True)
class Spec:
    """A comparison: every data set with every network and every seed is a cell, and every solver runs in every cell.

    seeds: of the initial weights and of the order of the samples, one a start
    time_limit: seconds of training; measuring does not count
    measure_every: the true training loss is measured after every so many epochs, at the start and at the end
    measure_test: measure the loss on the test part too, and for classes the accuracy
    threads: torch's, of each run
    split_seed, test_share: of the split into training and test part
    memory_limit: megabytes a run may allocate; by default the workers of a machine share its memory
    wall_limit: seconds after which a run that does not end is killed; by default 60 and three times the time limit
    engine: "eager", or "compiled" for every solver alike; compiling is on the training clock
    starts: of each run, trained at once, of which the best counts; for comparisons by epochs, compiled
    """

    datasets: tuple[str, ...]
    networks: tuple[Network, ...]
    solvers: tuple[Solver, ...]
    seeds: tuple[int, ...] = (0,)
    name: str = "unnamed"
    time_limit: float | None = None
    max_epochs: int | None = None
    batch_size: int = 128
    order: str = "reshuffle"
    measure_every: int = 1
    measure_test: bool = False
    threads: int = 1
    split_seed: int = 0
    test_share: float = 0.25
    memory_limit: float | None = None
    wall_limit: float | None = None
    engine: str = "eager"
    starts: int = 1

    def __post_init__(self) -> None:
        for key in _FLOATS:  # 3 and 3.0 are the same limit, and the same run
            if _is_number(getattr(self, key)):
                object.__setattr__(self, key, float(getattr(self, key)))
        _check(self)

    @property
    def killed_after(self) -> float | None:
        """None: a run that is limited in epochs alone may take as long as it likes."""
        if self.wall_limit is not None:
            return self.wall_limit
        return None if self.time_limit is None else _WALL_FACTOR * self.time_limit + _WALL_GRACE

    def to_plain(self) -> Plain:
        return dataclasses.asdict(self)


def spec_from_plain(plain: object, *, origin: str) -> Spec:
    """A spec from the tables of a TOML or JSON file; `origin` begins every message."""
    try:
        table = _known(plain, Spec, "key")
        for needed in ("datasets", "networks", "solvers"):
            if needed not in table:
                raise SpecError(f"the key {needed!r} is missing")
        return Spec(
            **{
                **table,
                "datasets": tuple(_texts("datasets", table["datasets"])),
                "networks": tuple(_entry(one, Network, "network") for one in _list("networks", table["networks"])),
                "solvers": tuple(_entry(one, Solver, "solver") for one in _list("solvers", table["solvers"])),
                **({"seeds": _seeds(table["seeds"])} if "seeds" in table else {}),
            }
        )
    except SpecError as error:
        raise SpecError(f"{origin}: {error}") from error


_FLOATS = ("time_limit", "test_share", "memory_limit", "wall_limit")


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


def _check(spec: Spec) -> None:
    if spec.time_limit is None and spec.max_epochs is None:
        raise SpecError("give the runs an end: time_limit, max_epochs, or both")
    for key, is_good, expected in _RULES:
        value = getattr(spec, key)
        if not is_good(value):
            raise SpecError(f"Invalid {key} value: {value!r}; expected {expected}")
    if spec.wall_limit is not None and spec.time_limit is not None and not spec.wall_limit > spec.time_limit:
        raise SpecError(
            f"Invalid wall_limit value: {spec.wall_limit:g}; expected more than the time_limit, {spec.time_limit:g}: a "
            "run is killed after it, and measuring takes time, too"
        )
    _check_starts(spec)
    for solver in spec.solvers:
        if not (solver.full_batch is None or isinstance(solver.full_batch, bool)):
            raise SpecError(f"Invalid full_batch value: {solver.full_batch!r}; expected true or false")
    entries: list[Solver | Network] = [*spec.solvers, *spec.networks]
    for entry in entries:
        _check_options(entry)
    for key in ("datasets", "seeds"):
        _check_once(key, getattr(spec, key))
    for key in ("networks", "solvers"):
        _check_once(f"{key} (give two of a kind a `name` each)", [entry.name for entry in getattr(spec, key)])


def _check_starts(spec: Spec) -> None:
    if spec.starts > 1 and spec.time_limit is not None:
        raise SpecError("starts trained at once share their time, so it cannot be compared: use max_epochs alone")
    if spec.starts > 1 and spec.engine != "compiled":
        raise SpecError("several starts at once are compiled: set engine to 'compiled'")


def _check_options(entry: Solver | Network) -> None:
    if not (isinstance(entry.name, str) and _LABEL.fullmatch(entry.name)):
        raise SpecError(f"Invalid name: {entry.name!r}; expected a text of 1 to 100 characters in one line")
    if not isinstance(entry.options, dict):
        raise SpecError(f"Invalid options of {entry.name}: {entry.options!r}; expected a table")
    for key, value in entry.options.items():
        single = value if isinstance(value, list | tuple) else [value]
        finite = all(isinstance(one, _OPTION_TYPES) and not _is_not_finite(one) for one in single)
        if not (isinstance(key, str) and finite):
            raise SpecError(f"Invalid option {key} of {entry.name}: {value!r}; expected numbers, texts or flags")


def _check_once(key: str, names: Sequence[object]) -> None:
    twice = [name for position, name in enumerate(names) if name in names[:position]]
    if twice:
        raise SpecError(f"{twice[0]!r} is twice in {key}")


def _is_not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def _positive(value: Any) -> bool:
    return value is None or (_is_number(value) and value > 0)


_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("name", lambda v: isinstance(v, str) and bool(_LABEL.fullmatch(v)), "a text of 1 to 100 characters in one line"),
    ("seeds", lambda v: bool(v) and all(_is_whole(one, 0) and one < 2**32 for one in v), "whole numbers from 0 on"),
    ("time_limit", _positive, "a positive number of seconds"),
    ("max_epochs", lambda v: v is None or _is_whole(v, 1), "a whole number >= 1"),
    ("batch_size", lambda v: _is_whole(v, 1), "a whole number >= 1"),
    ("order", lambda v: v in ("reshuffle", "fixed"), "'reshuffle' or 'fixed'"),
    ("measure_every", lambda v: _is_whole(v, 1), "a whole number of epochs >= 1"),
    ("measure_test", lambda v: isinstance(v, bool), "true or false"),
    ("threads", lambda v: _is_whole(v, 1) and v <= 1024, "a whole number from 1 to 1024"),
    ("split_seed", lambda v: _is_whole(v, 0) and v < 2**32, "a whole number from 0 on"),
    ("test_share", lambda v: _is_number(v) and 0 <= v < 1, "a number in [0, 1)"),
    ("memory_limit", _positive, "a positive number of megabytes"),
    ("wall_limit", _positive, "a positive number of seconds"),
    ("engine", lambda v: v in ("eager", "compiled"), "'eager' or 'compiled'"),
    ("starts", lambda v: _is_whole(v, 1) and v <= 1000, "a whole number from 1 to 1000"),
)
