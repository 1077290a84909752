"""Specs from TOML files: the presets of the package, and the user's own."""

from __future__ import annotations

import importlib
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from cmalight.bench.spec.study import Spec, SpecError, spec_from_plain
from cmalight.errors import unknown_name

PRESETS = ("demo", "paper-small", "paper-large", "cifar10-resnet18")
_LARGEST = 1 << 20


def read_spec(preset_or_path: str | Path) -> Spec:
    """A preset by its name, or a TOML file by its path; data sets in TOML files are looked for beside the spec.

    Args:
        preset_or_path: one of `PRESETS`, or a path.

    Returns:
        The spec, every key of which was checked.

    Raises:
        SpecError: if it cannot be read, or says something that is not known or possible.
    """
    if preset_or_path in PRESETS:
        text = (resources.files("cmalight.bench.spec") / "presets" / f"{preset_or_path}.toml").read_text(
            encoding="utf-8"
        )
        return _parsed(text, origin=str(preset_or_path), folder=Path())
    path = Path(preset_or_path)
    if path.suffix.lower() != ".toml":
        raise SpecError(f"{unknown_name('preset', str(preset_or_path), PRESETS)}; or give a file, SPEC.toml")
    if not path.is_file():
        raise SpecError(f"there is no file {path}; presets are {', '.join(PRESETS)}")
    if path.stat().st_size > _LARGEST:
        raise SpecError(f"{path} is larger than a spec can be ({_LARGEST >> 20} MB)")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not text in UTF-8 ({error.reason})") from error
    return _parsed(text, origin=str(path), folder=path.resolve().parent)


def _parsed(text: str, *, origin: str, folder: Path) -> Spec:
    toml = _toml()
    try:
        plain = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise SpecError(f"{origin} is not TOML: {error}") from error
    if isinstance(plain.get("datasets"), list):
        plain["datasets"] = [_beside(name, folder) for name in plain["datasets"]]
    if "name" not in plain:
        plain["name"] = Path(origin).stem
    return spec_from_plain(plain, origin=origin)


def _beside(name: Any, folder: Path) -> Any:
    return str(folder / name) if isinstance(name, str) and name.lower().endswith(".toml") else name


def _toml() -> Any:
    try:
        return importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError as missing:
        raise ImportError('specs in TOML need tomli on Python 3.10: pip install "cmalight[bench]"') from missing
