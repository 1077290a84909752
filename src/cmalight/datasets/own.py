"""A user's own data set, described by the `[dataset]` table of a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cmalight.datasets.entry import Entry, RemoteFile
from cmalight.datasets.table_formats import Delimited
from cmalight.errors import DataError, unknown_name
from cmalight.files import read_toml

_KEYS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "title": str,
    "file": str,
    "member": str,
    "urls": list,
    "sha256": str,
    "task": str,
    "target": (str, int),
    "separator": str,
    "header": bool,
    "one_hot": list,
    "drop": list,
    "drop_missing": bool,
    "rows": int,
    "features": int,
    "licence": str,
    "citation": str,
}
_NEEDED = ("file", "target", "task")
_TASKS = ("regression", "classification")


def own_entry(path: Path) -> Entry:
    """The entry that the TOML file at `path` describes; its data file is looked for beside it."""
    table = _table(path)
    file = path.parent / table["file"]
    task = _task(path, table)
    header = table.get("header", True)
    columns: dict[str, Any] = {
        key: _columns(path, key, table.get(key, []), header=header) for key in ("one_hot", "drop")
    }
    (target,) = _columns(path, "target", [table["target"]], header=header)
    separator = table.get("separator", ",")
    if len(separator) != 1:
        raise DataError(f"{path}: separator must be one character, got {separator!r}")
    try:
        source = Delimited(
            file=file.name,
            separator=separator,
            header=header,
            target=target,
            labels=task == "classification",
            quoted=True,
            **columns,
            **_given(table, "member", "drop_missing"),
        )
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    return Entry(
        name=table.get("name", path.stem),
        task=task,
        source=source,
        files=(
            RemoteFile(
                name=file.name,
                urls=_texts(path, "urls", table.get("urls", [])),
                sha256=(table["sha256"].lower(),) if "sha256" in table else (),
            ),
        ),
        encoding="as described in the TOML file",
        folder=file.parent,
        **_given(table, "title", "rows", "features", "licence", "citation"),
    )


def _given(table: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: table[key] for key in keys if key in table}


def _table(path: Path) -> dict[str, Any]:
    try:
        table = read_toml(path, error=DataError).get("dataset")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): give the path of a TOML file") from error
    if not isinstance(table, dict):
        raise DataError(f"{path} has no [dataset] table: see docs/guides/datasets.md for what goes into it")
    for key, value in table.items():
        if key not in _KEYS:
            raise DataError(f"{path}: {unknown_name('key of [dataset]', key, _KEYS)}")
        kind = _KEYS[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise DataError(f"{path}: {key} = {value!r} is not of the kind that is needed ({_kind_name(kind)})")
    for key in _NEEDED:
        if key not in table:
            raise DataError(f"{path}: [dataset] needs {key} = ...; it must have {', '.join(_NEEDED)}")
    if not Path(table["file"]).name:
        raise DataError(f"{path}: file must name the data file, got {table['file']!r}")
    return table


def _task(path: Path, table: dict[str, Any]) -> Any:
    if table["task"] not in _TASKS:
        raise DataError(f"{path}: {unknown_name('task', table['task'], _TASKS)}")
    return table["task"]


def _columns(path: Path, key: str, columns: list[Any], *, header: bool) -> tuple[str | int, ...]:
    """Names where the file has a header, positions from 0 where it has none."""
    kind, expected = (str, "a column's name") if header else (int, "a column's position, from 0, as there is no header")
    for column in columns:
        if not isinstance(column, kind) or isinstance(column, bool):
            raise DataError(f"{path}: {key} has {column!r} where {expected} is needed")
    return tuple(columns)


def _texts(path: Path, key: str, values: list[Any]) -> tuple[str, ...]:
    for value in values:
        if not isinstance(value, str) or not value.startswith(("https://", "http://")):
            raise DataError(f"{path}: {key} has {value!r} where an http(s) address is needed")
    return tuple(values)


def _kind_name(kind: type | tuple[type, ...]) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    names = {str: "text", int: "a whole number", bool: "true or false", list: "a list"}
    return " or ".join(names[one] for one in kinds)
