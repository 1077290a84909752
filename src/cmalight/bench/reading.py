"""Specs from TOML files, checked completely before anything runs."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cmalight.bench.checks import mistakes_in
from cmalight.bench.code import is_own, is_table
from cmalight.bench.spec import Spec, SpecEntry, solvers_of
from cmalight.errors import unknown_name

PRESETS = ("demo", "quick", "paper", "paper-code", "paper-cifar", "today")
_PRESET_FOLDER = Path(__file__).parent / "presets"
_INHERITED = "..."  # in a list: what the extended spec has there
_ENTRIES: dict[str, type[SpecEntry]] = {f"{entry.kind}s": entry for entry in SpecEntry.__subclasses__()}


class SpecError(ValueError):
    """A spec cannot be used; the message says what is wrong and what was expected."""


def read_spec(source: Spec | str | Path | Mapping[str, Any], changes: Sequence[str] = ()) -> Spec:
    """Read a preset or a TOML file and check it without running anything.

    Args:
        source: Name of a preset, path of a TOML file, or what such a file holds, with paths relative to the current
            folder. A spec that was read already is returned.
        changes: Lines of TOML that replace keys of the spec, such as "seconds = 4".

    Returns:
        The spec.

    Raises:
        SpecError: If something in it cannot be used; the message names all of it.
    """
    if isinstance(source, Spec):
        return source
    origin = str(source) if isinstance(source, str | Path) else "spec"
    tables = _tables_of(source) if isinstance(source, str | Path) else _absolute(source, Path.cwd())
    try:
        tables |= _absolute(tomllib.loads("\n".join(changes)), Path.cwd())
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{' '.join(changes)!r} is not TOML ({error}); give changes such as 'seeds = 2'") from error
    if "extends" in tables or any(isinstance(one, list | tuple) and _INHERITED in one for one in tables.values()):
        raise SpecError(f'{origin}: `extends` works in spec files only, and "{_INHERITED}" in files that have it')
    try:
        spec = Spec.model_validate(tables)
        wrong = [*_contradictions(spec), *mistakes_in(spec)]
    except ValidationError as error:
        wrong = list(_explanations(error.errors()))
    if wrong:
        raise SpecError(f"{origin}: {'; '.join(wrong)}")
    return spec


def _tables_of(source: str | Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The keys of a spec file over those of the spec that it extends."""
    path = _PRESET_FOLDER / f"{source}.toml" if str(source) in PRESETS else Path(source)
    if not path.is_file():
        hint = unknown_name("preset", str(source), PRESETS)
        raise SpecError(f"there is no file {source}" if path.suffix == ".toml" else f"{hint}; or a TOML file")
    path = path.resolve()  # a circle may write one file in many ways
    if path in seen:
        raise SpecError(f"{path} extends itself")
    try:
        own = {"name": path.stem, **_absolute(tomllib.loads(path.read_text(encoding="utf-8")), path.parent)}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is not TOML: {error}") from error
    extended = own.pop("extends", None)
    if extended is None:
        return own
    if not isinstance(extended, str):
        raise SpecError(f"{path}: extends must be a preset or a file, got {extended!r}")
    base = _tables_of(extended if extended in PRESETS else path.parent / extended, (*seen, path))
    for key, value in own.items():
        if isinstance(value, list) and _INHERITED in value:
            own[key] = [inner for one in value for inner in (base.get(key, []) if one == _INHERITED else [one])]
    return {**base, **own}


def _absolute(tables: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same with the user's files as absolute paths, wherever a spec lies."""

    def absolute(source: Any) -> Any:
        own = isinstance(source, str) and (is_own(source) or is_table(source))
        return str(folder.resolve() / source) if own else source

    def entry(one: Any, kind: str) -> Any:
        return {**one, kind: absolute(one[kind])} if isinstance(one, dict) and kind in one else absolute(one)

    found = dict(tables)
    for key in _ENTRIES:
        if isinstance(found.get(key), list | tuple):
            found[key] = [entry(one, _ENTRIES[key].kind) for one in found[key]]
    return found


def _explanations(errors: Sequence[Any]) -> Iterator[str]:
    """What is wrong; a list whose entries are wrong is not called empty as well."""
    lists = {one["loc"][:1] for one in errors if len(one["loc"]) > 1}
    yield from (_explained(one) for one in errors if one["type"] != "too_short" or one["loc"] not in lists)


def _explained(error: Any) -> str:
    *place, key = map(str, error["loc"])
    where = ".".join([*place, key])
    if error["type"] == "extra_forbidden":
        known = _ENTRIES[place[0]].model_fields if place else [*Spec.model_fields, "extends"]
        return unknown_name(f"key in {'.'.join(place)}" if place else "key", key, known)
    if error["type"] == "missing":
        return f"the key {where} is missing"
    return f"{where}: {error['msg']}, got {error['input']!r}"


def _contradictions(spec: Spec) -> Iterator[str]:
    if spec.seconds is None and spec.epochs is None and spec.batches is None:
        yield "give the runs a budget: seconds, epochs or batches"
    if spec.epochs is not None and spec.batches is not None:
        yield "epochs and batches are both given; give one of them"
    if bool(spec.datasets) != bool(spec.networks) or not (spec.datasets or spec.workloads):
        yield "give datasets and networks, or workloads"
    entries: dict[str, Sequence[SpecEntry]] = {
        "datasets and workloads": (*spec.datasets, *spec.workloads),
        "networks": spec.networks,
        "solvers": [one for _, one in solvers_of(spec)],
    }
    labels = {what: [one.name for one in listed] for what, listed in entries.items()}
    for what, names in {**labels, "seeds": list(map(str, spec.seeds))}.items():
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{name!r} is twice in {what}; leave one out, or give it another `name`"
    for what, listed in entries.items():
        names_of: dict[str, str] = {}
        for one in listed:
            if (first := names_of.setdefault(one.defines, one.name)) != one.name:
                yield f"{first!r} and {one.name!r} in {what} are the same; leave one out"
