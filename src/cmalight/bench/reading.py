"""Specs from TOML files, checked completely before anything runs."""

from __future__ import annotations

import inspect
import itertools
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cmalight.bench.code import imported, is_table, is_user_code
from cmalight.bench.models import Options
from cmalight.bench.spec import DatasetEntry, NetworkEntry, Spec, SpecEntry, solvers_of
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
    try:
        spec = Spec.model_validate(tables)
        wrong = [*_contradictions(spec), *_mistakes(spec)]
    except ValidationError as error:
        wrong = list(map(_explained, error.errors()))
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
        given = {"name": path.stem, **_absolute(tomllib.loads(path.read_text(encoding="utf-8")), path.parent)}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is not TOML: {error}") from error
    extended = given.pop("extends", None)
    if extended is None:
        return given
    base = _tables_of(extended if extended in PRESETS else path.parent / str(extended), (*seen, path))
    for key, value in given.items():
        if isinstance(value, list) and _INHERITED in value:
            given[key] = [inner for one in value for inner in (base.get(key, []) if one == _INHERITED else [one])]
    return {**base, **given}


def _absolute(tables: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same with the user's files as absolute paths, wherever a spec lies."""

    def absolute(source: Any) -> Any:
        is_file = isinstance(source, str) and (is_user_code(source) or is_table(source))
        return str(folder.resolve() / source) if is_file else source

    def entry(one: Any, kind: str) -> Any:
        return {**one, kind: absolute(one[kind])} if isinstance(one, dict) and kind in one else absolute(one)

    found = dict(tables)
    for key in _ENTRIES:
        if isinstance(found.get(key), list | tuple):
            found[key] = [entry(one, _ENTRIES[key].kind) for one in found[key]]
    return found


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
    if not spec.solvers or not spec.seeds or len(set(spec.seeds)) < len(spec.seeds):
        yield "give solvers, and seeds that differ"
    for entries in ((*spec.datasets, *spec.workloads), spec.networks, [one for _, one in solvers_of(spec)]):
        for first, second in itertools.combinations(entries, 2):
            if first.name == second.name:
                yield f"{first.name!r} is there twice; leave one out, or give it another `name`"
            elif first.defines == second.defines:
                yield f"{first.name!r} and {second.name!r} are the same; leave one out"


def _mistakes(spec: Spec) -> list[str]:
    """What would go wrong in the runs: in single entries, else of networks on data sets."""
    entries = (*spec.datasets, *spec.networks, *spec.workloads, *(one for _, one in solvers_of(spec)))
    wrong = _raised(_check, ((one,) for one in entries))
    return wrong or _raised(_check_pair, itertools.product(spec.networks, spec.datasets))


def _raised(check: Callable[..., None], cases: Iterable[tuple[SpecEntry, ...]]) -> list[str]:
    wrong = []
    for entries in cases:
        name = " on ".join(one.name for one in entries)
        try:
            check(*entries)
        except (ValueError, TypeError, ImportError, OSError) as error:
            wrong.append(str(error) if name in str(error) else f"{name}: {error}")
    return wrong


def _check(entry: SpecEntry) -> None:
    from cmalight.datasets import dataset_info, load_dataset
    from cmalight.training.solvers import make_solver

    source, options = getattr(entry, entry.kind), getattr(entry, "options", {})
    if is_user_code(source):
        _check_user_code(entry.kind, source, options)
    elif entry.kind == "dataset":
        (load_dataset if is_table(source) else dataset_info)(source)
    elif entry.kind == "solver":
        make_solver(source, options)
    elif entry.kind == "workload":
        raise ValueError(f"a workload is a function of yours, file.py:name; got {source!r}")


def _check_user_code(kind: str, source: str, options: Options) -> None:
    """Raise for options that the user's callable does not take, or for some that it needs and does not get."""
    signature = inspect.signature(imported(source))
    wanted = {"objective", "total_steps"} & signature.parameters.keys()
    offered = {"network": ("features", "outputs"), "solver": wanted}.get(kind, ())
    try:
        signature.bind(*["parameters"] * (kind == "solver"), **{**dict.fromkeys(offered), **options})
    except TypeError as error:
        raise ValueError(f"{source}: {error}; its arguments are {signature}") from error


def _check_pair(network: NetworkEntry, data: DatasetEntry) -> None:
    """Build the network for data of that shape, as far as it is known before reading."""
    import torch

    from cmalight.bench.problems import network_for
    from cmalight.datasets import dataset_info

    if is_user_code(network.network):
        return
    shape: tuple[int, ...] = (4,)
    outputs = 1
    if not is_user_code(data.dataset):
        known = dataset_info(data.dataset)
        shape = known.image or (known.features or 4,)
        outputs = (known.classes or 2) if known.task == "classification" else 1
    with torch.device("meta"):  # allocates nothing and draws no random number
        network_for(network.network, shape, outputs, network.options)
