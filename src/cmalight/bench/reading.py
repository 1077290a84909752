"""Specs from TOML files, checked completely before anything runs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from cmalight.bench.checks import problems_of
from cmalight.bench.code import is_own
from cmalight.bench.spec import DatasetEntry, NetworkEntry, SolverEntry, Spec, WorkloadEntry, is_table, solvers_of
from cmalight.errors import unknown_name

PRESETS = ("demo", "quick", "paper", "paper-code", "today")
_PRESET_FOLDER = Path(__file__).parent / "presets"
_INHERITED = "..."  # in a list: what the extended spec has there


class SpecError(ValueError):
    """A spec cannot be used; the message says what is wrong and what was expected."""


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
    try:
        spec = Spec.model_validate(_absolute(plain, Path.cwd()))
    except ValidationError as error:
        raise SpecError(f"{origin}: {'; '.join(_explained(one) for one in error.errors())}") from error
    wrong = [*_contradictions(spec), *problems_of(spec)]
    if wrong:
        raise SpecError(f"{origin}: {'; '.join(wrong)}")
    return spec


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
