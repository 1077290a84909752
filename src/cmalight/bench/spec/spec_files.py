"""Specs from TOML files: the presets of the package, and the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cmalight.bench.spec.study import Spec, SpecError, spec_from_plain
from cmalight.errors import unknown_name
from cmalight.files import read_toml

_FOLDER = Path(__file__).with_name("presets")
PRESETS = tuple(sorted(file.stem for file in _FOLDER.glob("*.toml")))


def read_spec(preset_or_path: str | Path) -> Spec:
    """A preset by its name, or a TOML file by its path; data sets in TOML files are looked for beside the spec.

    Args:
        preset_or_path: one of `PRESETS`, or a path.

    Returns:
        The spec, every key of which was checked.

    Raises:
        SpecError: if it cannot be read, or says something that is not known or possible.
    """
    path = _FOLDER / f"{preset_or_path}.toml" if preset_or_path in PRESETS else Path(preset_or_path)
    if path.suffix.lower() != ".toml":
        raise SpecError(f"{unknown_name('preset', str(preset_or_path), PRESETS)}; or give a file, SPEC.toml")
    if not path.is_file():
        raise SpecError(f"there is no file {path}; presets are {', '.join(PRESETS)}")
    plain = read_toml(path, error=SpecError)
    if isinstance(plain.get("datasets"), list):
        plain["datasets"] = [_beside(name, path.resolve().parent) for name in plain["datasets"]]
    return spec_from_plain({"name": path.stem, **plain}, origin=str(preset_or_path))


def _beside(name: Any, folder: Path) -> Any:
    return str(folder / name) if isinstance(name, str) and name.lower().endswith(".toml") else name
