"""A user's own data set, described by the `[dataset]` table of a TOML file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cmalight.datasets.entries.entry import Entry, RemoteFile, library
from cmalight.datasets.table_formats import Delimited
from cmalight.errors import DataError, unknown_name

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
_LARGEST_DESCRIPTION = 1 << 20


def own_entry(path: Path) -> Entry:
    """The entry that the TOML file at `path` describes; its data file is looked for beside it."""
    table = _table(path)
    file = path.parent / table["file"]
    task = _task(path, table)
    header = table.get("header", True)
    columns = {key: _columns(path, key, table.get(key, []), header=header) for key in ("one_hot", "drop")}
    (target,) = _columns(path, "target", [table["target"]], header=header)
    separator = table.get("separator", ",")
    if len(separator) != 1:
        raise DataError(f"{path}: separator must be one character, got {separator!r}")
    try:
        source = Delimited(
            file=file.name,
            member=table.get("member", ""),
            separator=separator,
            header=header,
            target=target,
            one_hot=columns["one_hot"],
            drop=columns["drop"],
            drop_missing=table.get("drop_missing", False),
            labels=task == "classification",
            quoted=True,
        )
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    return Entry(
        name=table.get("name", path.stem),
        title=table.get("title", ""),
        task=task,
        rows=table.get("rows"),
        features=table.get("features"),
        source=source,
        files=(
            RemoteFile(
                name=file.name,
                urls=_texts(path, "urls", table.get("urls", [])),
                sha256=(table["sha256"].lower(),) if "sha256" in table else (),
            ),
        ),
        licence=table.get("licence", ""),
        citation=table.get("citation", ""),
        encoding="as described in the TOML file",
        folder=file.parent,
    )


def _table(path: Path) -> dict[str, Any]:
    content = _parsed(path)
    table = content.get("dataset")
    if not isinstance(table, dict):
        raise DataError(f"{path} has no [dataset] table: see docs/datasets.md for what goes into it")
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


def _parsed(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_DESCRIPTION:
            raise DataError(f"{path} is too large for the description of a data set: is it the data?")
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: save it as such") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): give the path of a TOML file") from error
    toml = library("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        content: dict[str, Any] = toml.loads(text)
    except (toml.TOMLDecodeError, RecursionError) as error:
        raise DataError(f"{path} is not TOML ({error})") from error
    return content


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
