"""The data sets that come with the package, as the TOML files of `entries/` describe them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib import resources
from typing import Any, get_args

from cmalight.datasets.embedded import Shipped
from cmalight.datasets.entry import Entry, Group, RemoteFile, Source
from cmalight.datasets.image_formats import Cifar, Idx
from cmalight.datasets.table_formats import Delimited, Keel, MatrixWithTargets

_FORMATS: dict[str, Callable[..., Source]] = {
    "cifar": Cifar,
    "delimited": Delimited,
    "idx": Idx,
    "keel": Keel,
    "matrix": MatrixWithTargets,
    "shipped": Shipped,
}


def built_in() -> tuple[Entry, ...]:
    """Every entry of the files: those of a group are in one, called as it is."""
    folder = resources.files(__package__) / "entries"
    return tuple(
        _entry(name, group, table)
        for group in get_args(Group)
        if (file := folder / f"{group}.toml").is_file()
        for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items()
    )


def _entry(name: str, group: Group, table: dict[str, Any]) -> Entry:
    source = table.pop("source")
    read_by = _FORMATS[source.pop("format")](**_hashable(source))
    files = tuple(RemoteFile(**_hashable(file)) for file in table.pop("files", ()))
    return Entry(name=name, group=group, source=read_by, files=files, **_hashable(table))


def _hashable(table: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
