"""Folders of results joined into one, if they do not contradict each other."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cmalight.bench.spec.study import Definition, Plain
from cmalight.bench.store.archive import as_folder, is_archive, pack
from cmalight.bench.store.folder_status import joined_calls, read_calls, write_calls
from cmalight.bench.store.lock import acquired
from cmalight.bench.store.results import (
    DataOfResults,
    good_results,
    read_result,
    remove_leftovers,
    result_files,
    runs_folder,
    write_result,
)
from cmalight.bench.store.rounding import rounded as shortened

# What differs between two runs of one definition that agree.
_CIRCUMSTANCES = ("started", "finished", "seconds", "compile_seconds", "environment", "attempts")
_SHOWN = 10


class MergeError(ValueError):
    """Folders say different things of one run, or of one data set."""


def merge(folders: Sequence[str | Path], out: str | Path, *, rounded: bool = False) -> int:
    """Copies the results of all folders to `out`, which may have some already, or be an archive that is made anew.

    Nothing is written if two folders have results of one run that differ in more than times, or different data under
    one name. A damaged file is left where it is, with a warning. A rounded result agrees with one that it is the
    rounding of.

    Args:
        folders: of results, or archives of such.
        out: the folder that gets them all; a name that ends in .tar.xz is that of an archive.
        rounded: the archive's columns of epochs have six significant digits for times, and seven for what else was
            measured, but in epochs that a control judged.

    Returns:
        How many results `out` has then.

    Raises:
        MergeError: if they contradict each other.
        ValueError: if a folder is to be rounded.
    """
    out = Path(out)
    if rounded and not is_archive(out):
        raise ValueError(f"{out} is not the name of an archive, and only these are rounded: give NAME.tar.xz")
    with contextlib.ExitStack() as opened:
        sources = [opened.enter_context(as_folder(folder)) for folder in folders]
        if not is_archive(out):
            return _merged(sources, out, is_rounded=False)
        whole = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="cmalight-"))) / "results"
        count = _merged(sources, whole, is_rounded=rounded)
        pack(whole, out)
        return count


def _merged(sources: Sequence[Path], out: Path, *, is_rounded: bool) -> int:
    for folder in sources:
        result_files(folder)
    if runs_folder(out).is_dir():
        with acquired(out):
            return _write(_found([out, *sources]), [out, *sources], out, is_rounded=is_rounded)
    found = _found(sources)  # refused before there is anything to take back
    runs_folder(out).mkdir(parents=True)
    with acquired(out):
        return _write(found, sources, out, is_rounded=is_rounded)


def _write(found: dict[str, Path], folders: Sequence[Path], out: Path, *, is_rounded: bool) -> int:
    remove_leftovers(out)
    calls = joined_calls([call for folder in folders for call in read_calls(folder)])
    for key, path in found.items():
        if path.parent.parent != out:
            content = read_result(path)
            write_result(out, key, shortened(content) if is_rounded else content)
    write_calls(out, calls)
    return len(found)


def _found(folders: Sequence[Path]) -> dict[str, Path]:
    """A file for each run; MergeError if they contradict each other."""
    found: dict[str, Path] = {}
    data = DataOfResults()
    contradictions = []
    for folder in folders:
        for path, content in good_results(folder):
            earlier = found.setdefault(path.stem, path)
            if earlier != path and not _agree(read_result(earlier), content):
                contradictions.append(f"{earlier} and {path} are different results of one run")
            if other := data.contradiction(Definition.from_plain(content["run"]), content, path):
                contradictions.append(other)
    if contradictions:
        more = f"; and {len(contradictions) - _SHOWN} more" if len(contradictions) > _SHOWN else ""
        raise MergeError(f"{'; '.join(contradictions[:_SHOWN])}{more}: remove those that are not wanted")
    return found


def _agree(first: Plain, second: Plain) -> bool:
    """To the last digit, or to those that one of them has been rounded to."""
    if first.get("rounded") or second.get("rounded"):
        first, second = shortened(first), shortened(second)
    return _outcome(first) == _outcome(second)


def _outcome(content: Plain) -> Plain:
    """What the run led to, whenever and wherever it ran; errors count by their kind, since they may tell times."""
    kept = {key: value for key, value in content.items() if key not in _CIRCUMSTANCES}
    kept["epochs"] = {key: value for key, value in content["epochs"].items() if key != "seconds"}
    kept["error"] = (content.get("error") or {}).get("type")
    return kept
