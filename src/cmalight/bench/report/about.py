"""What it was run on: machines, versions, conditions, the spec, failures, and what must be said beside times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmalight.bench.analysis.costs import Traces
from cmalight.bench.spec.study import PROBLEM_CONDITIONS
from cmalight.bench.store.folder_status import read_calls
from cmalight.bench.store.frames import Results

if TYPE_CHECKING:
    import pandas

MOST_FAILURES = 200
_UNITS = {"time_limit": ", s", "clock": " of the seconds", "measure_every": ", epochs"}
_PLACE = {"host": "machine", "cpu": "processor", "cores": "cores", "concurrency": "runs at once"}


def facts(runs: pandas.DataFrame) -> list[tuple[str, str]]:
    """What holds for the runs: each with all the values it has."""
    found = [(title, _values(runs, column)) for column, title in _PLACE.items()]
    found += [
        (condition.replace("_", " ") + _UNITS.get(condition, ""), _values(runs, condition))
        for condition in PROBLEM_CONDITIONS
    ]
    versions = [column for column in runs.columns if str(column).startswith("version_")]
    found += [(str(column).removeprefix("version_"), _values(runs, column)) for column in versions]
    return [(title, text) for title, text in found if text]


def _values(runs: pandas.DataFrame, column: str) -> str:
    if column not in runs:
        return ""
    texts = dict.fromkeys(_text(value) for value in runs[column].dropna())
    return ", ".join(texts)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def failures(runs: pandas.DataFrame) -> list[tuple[str, str, str, str]]:
    """Problem, solver, status and error of the runs that did not end well."""
    failed = runs[runs["status"] != "done"].head(MOST_FAILURES)
    columns = [failed[name] for name in ("problem", "label", "status", "error")]
    return [
        (str(problem), str(label), str(status).replace("_", " "), error if isinstance(error, str) else "")
        for problem, label, status, error in zip(*columns, strict=True)
    ]


def notes(results: Results, traces: Traces, left: int | None) -> list[str]:
    """Warnings, the first of them about times."""
    runs = traces.runs
    found = [note for note in results.notes if "share data set, network" not in note]
    if traces.labels.left_out:
        found.append(
            f"{traces.labels.left_out} runs are of a problem and a solver that are there more than once; of each, the "
            "last to finish is shown"
        )
    if left:
        found.append(f"{left} runs of the spec have no result yet: the report is of those that have")
    solvers = traces.labels.solvers
    counts = runs.groupby("problem")["label"].nunique()
    partial = int((counts < len(solvers)).sum())
    if partial:
        found.append(
            f"{partial} of {len(counts)} problems do not have a result of every solver: profiles, areas and wins are "
            "over the others (hide a solver to have those back that only it lacks)"
        )
    unmeasured = set(runs[runs["status"] == "done"]["key"]) - set(traces.points["key"])
    if unmeasured:
        found.append(f"{len(unmeasured)} runs have no measured loss and count as failures")
    if len(solvers) == 1:
        found.append("there is one solver only: its profiles compare it with itself")
    return found


def spec_text(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """The specs of the calls for the folder, and what to say where there is none."""
    plain = [{key: value for key, value in call.spec.items() if value is not None} for call in read_calls(folder)]
    return plain, "" if plain else "the folder does not say which spec it came from"


def runs_left(folder: Path, runs: pandas.DataFrame) -> int | None:
    """Planned runs without a result; None where that cannot be known."""
    planned = {key for call in read_calls(folder) for key in call.keys}
    return len(planned - set(runs["key"])) if planned else None
