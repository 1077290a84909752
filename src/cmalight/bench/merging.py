"""Folders of results joined into one, if they do not contradict each other."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from cmalight.bench.folder_status import read_specs, write_spec
from cmalight.bench.lock import acquired
from cmalight.bench.results import ResultError, read_result, runs_folder, write_result
from cmalight.bench.spec import Spec

_logger = logging.getLogger("cmalight.bench")


class MergeError(ValueError):
    """Two folders say different things of one run."""


def merge(folders: Sequence[str | Path], out: str | Path) -> int:
    """Copies the results of all folders to `out`, which may have some already; returns how many it has then.

    Nothing is written if two folders have different results of one run, or different data under one name. A damaged
    file is left where it is, with a warning.
    """
    out = Path(out)
    sources = [Path(folder) for folder in folders]
    for folder in sources:
        if not runs_folder(folder).is_dir():
            raise ResultError(f"{folder} is not a results folder: there is no {runs_folder(folder)}")
    runs_folder(out).mkdir(parents=True, exist_ok=True)
    with acquired(out):
        found: dict[str, Path] = {}
        data: dict[str, tuple[str, Path]] = {}
        for path in (path for folder in (out, *sources) for path in sorted(runs_folder(folder).glob("*.json"))):
            _look_at(path, found, data)
        specs: list[Spec] = []
        for folder in (out, *sources):
            specs += [spec for spec in read_specs(folder)[0] if spec not in specs]
        for key, path in found.items():
            if path.parent.parent != out:
                write_result(out, key, read_result(path))
        write_spec(out, specs, None)
    return len(found)


def _look_at(path: Path, found: dict[str, Path], data: dict[str, tuple[str, Path]]) -> None:
    try:
        content = read_result(path)
    except ResultError as error:
        if type(error) is not ResultError:
            raise
        _logger.warning("%s; it is left out", error)
        return
    earlier = found.setdefault(path.stem, path)
    if earlier != path and read_result(earlier) != content:
        raise MergeError(f"{earlier} and {path} are different results of one run: remove the one that is not wanted")
    run = content["run"]
    name = f"{run['dataset']} (split seed {run['split_seed']}, test share {run['test_share']}, {run['data_files']})"
    digest = content.get("data_sha256")
    if digest is not None:
        other, where = data.setdefault(name, (digest, path))
        if other != digest:
            raise MergeError(f"{where} and {path} ran on different data, though both call it {run['dataset']}")
