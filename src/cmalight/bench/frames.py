"""Results as pandas frames."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmalight.bench.models import Points, Result, Run
from cmalight.bench.reading import read_spec
from cmalight.bench.spec import Spec, plan
from cmalight.bench.store import read_results, read_specs
from cmalight.errors import needed

if TYPE_CHECKING:
    import pandas

_logger = logging.getLogger("cmalight")
_TEXT = ("ended_by", "error", "traceback", "task", "engine_used", "data_sha256")
_WHOLE = ("epoch", "evaluations", "evaluated_rows")
# Runs that differ in one of these compete on different problems.
_CONDITIONS = (
    *("budget_seconds", "budget_epochs", "budget_batches", "target_loss", "batch_size", "order", "engine", "clock"),
    *("threads", "network_options", "data_sha256"),
)


@dataclass(frozen=True)
class Results:
    """Results as frames.

    Attributes:
        runs: One row per run, in the order of the spec.
        epochs: One row per measured point of a run; `key` joins it to `runs`.
        damaged: One line for each file that could not be read.
        planned: Keys that the last calls for the folder asked for.
    """

    runs: pandas.DataFrame
    epochs: pandas.DataFrame
    damaged: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()

    def current(self) -> Results:
        """The runs of the spec as it is now with the code as it is now.

        Returns:
            A part of the results.
        """
        return self._part(self.runs["current"])

    def recorded(self) -> Results:
        """The runs that the folder was last asked for, of whatever code they are.

        Returns:
            A part of the results.
        """
        return self._part(self.runs["key"].isin(self.planned))

    @property
    def notes(self) -> list[str]:
        """Sentences that belong beside any comparison of these runs."""
        return list(_notes(self.runs))

    def _part(self, chosen: Any) -> Results:
        runs = self.runs[chosen].reset_index(drop=True)
        runs["problem"] = _problem_labels(runs)
        epochs = self.epochs[self.epochs["key"].isin(runs["key"])].reset_index(drop=True)
        return replace(self, runs=runs, epochs=epochs)


def load(folder: str | Path, spec: Spec | str | Path | None = None) -> Results:
    """Everything in a results folder or an archive of one; a damaged file is named in a warning and left out.

    Args:
        folder: That `bench run` or `bench merge` wrote.
        spec: Decides which runs are current; by default the specs that were run in the folder.

    Returns:
        Two frames.

    Raises:
        ValueError: If it is no results folder.

    Example:
        >>> from cmalight import bench
        >>> results = bench.load("results").current()  # that `cmalight bench run` wrote
        >>> results.runs[["problem", "solver", "status"]].values.tolist()
        [['diabetes 1x5', 'adam', 'done'], ['diabetes 1x5', 'auto', 'done']]
        >>> results.epochs.groupby("key")["epoch"].max().tolist()
        [2, 2]
    """
    with needed("Results as frames need pandas, which is not installed", "bench"):
        import pandas
    damaged: list[str] = []
    results = {result.run.key: result for result in read_results(Path(folder), damaged)}
    specs = read_specs(Path(folder), damaged)
    recorded = [key for one in specs for key in one.keys]
    wanted = [one.spec for one in specs] if spec is None else [spec if isinstance(spec, Spec) else read_spec(spec)]
    labels = dict(_current_runs(wanted))
    place = {key: number for number, key in enumerate(dict.fromkeys([*labels, *recorded]))}
    keys = sorted(results, key=lambda key: (place.get(key, len(place)), results[key].started, key))
    rows = [_row(key, results[key], labels.get(key)) for key in keys]
    columns = _row("", Result(run=Run(solver="", seed=0, code=""), status="failed"), None)
    runs = pandas.DataFrame(rows, columns=list(columns))
    for name in runs.columns:
        if name in _TEXT or name.startswith("version_"):
            runs[name] = pandas.Series([row[name] for row in rows], dtype=object)  # None stays None
        elif columns[name] is None:
            runs[name] = runs[name].astype("float64")  # None becomes NaN
    runs["current"] = runs["current"].astype(bool)
    runs["problem"] = _problem_labels(runs)
    return Results(runs, _epochs(keys, results), tuple(damaged), tuple(recorded))


def _current_runs(specs: Sequence[Spec]) -> Iterator[tuple[str, Run]]:
    for spec in specs:
        try:
            yield from ((run.key, run) for run in plan(spec))
        except OSError as error:
            _logger.warning(
                "%s needs files that are not here, so none of its results are current (%s)", spec.name, error
            )


def _row(key: str, result: Result, current: Run | None) -> dict[str, Any]:
    """`current` is the run as the spec labels it now; None for a run of other code."""
    run, points = result.run, result.points
    labels = run if current is None else current
    done = result.status == "done"
    versions = result.machine.versions
    return {
        "key": key,
        "problem": labels.problem,
        "dataset": labels.dataset_label,
        "network": labels.network_label,
        "solver": labels.solver_label,
        **_of(run, "seed"),
        **_of(result, "status", "ended_by", "error", "traceback", "log"),
        "seconds": _last(points.seconds),
        "epochs": sum(outcome not in ("start", "cut") for outcome in points.outcome),
        "work": _last(points.work),
        "evaluations": _last(points.evaluations),
        "evaluated_rows": _last(points.evaluated_rows),
        "initial_loss": next(iter(points.train_loss), None),
        "final_loss": _last(points.train_loss) if done else None,
        "best_loss": _least(points.train_loss) if done else None,
        "initial_validation_loss": next(iter(points.validation_loss), None),
        "final_validation_loss": _last(points.validation_loss) if done else None,
        "best_validation_loss": _least(points.validation_loss) if done else None,
        "final_accuracy": _last(points.accuracy) if done else None,
        "best_accuracy": max((one for one in points.accuracy if one is not None), default=None) if done else None,
        **_of(result, "accepted", "n_parameters", "n_samples", "n_validation", "batches_per_epoch", "task"),
        "budget_seconds": run.seconds,
        "budget_epochs": run.epochs,
        "budget_batches": run.batches,
        **_of(run, "target_loss", "batch_size", "order", "engine", "clock", "threads"),
        "engine_used": result.engine_used,
        "solver_name": run.solver,
        "solver_options": json.dumps(run.options, sort_keys=True),
        "network_options": json.dumps(run.network_options, sort_keys=True),
        "code": run.code,
        "current": current is not None,
        "data_sha256": result.data_sha256,
        "host": result.machine.host,
        "cpu": result.machine.cpu,
        "cores": result.machine.cores,
        "load": result.machine.load,
        **_of(result, "workers", "started", "finished"),
        **{f"version_{name}": versions.get(name) for name in ("cmalight", "torch", "numpy", "python")},
    }


def _of(source: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _last(values: Sequence[Any]) -> Any:
    return values[-1] if values else None


def _least(values: Sequence[float | None]) -> float | None:
    return min((one for one in values if one is not None), default=None)


def _epochs(keys: Sequence[str], results: dict[str, Result]) -> pandas.DataFrame:
    """Column by column, which is many times quicker than row by row."""
    import numpy as np
    import pandas

    lengths = [len(results[key].points.epoch) for key in keys]
    columns: dict[str, Any] = {"key": np.repeat(np.array(keys, dtype=object), lengths)}
    for name in Points.model_fields:
        values = [value for key in keys for value in getattr(results[key].points, name)]
        dtype = object if name == "outcome" else np.int64 if name in _WHOLE else np.float64
        columns[name] = np.array(values, dtype=dtype)
    return pandas.DataFrame(columns)


def _problem_labels(runs: pandas.DataFrame) -> list[str]:
    """Data set and network; where runs of one label had different conditions, these as well."""
    labels = [f"{dataset} {network}".strip() for dataset, network in zip(runs["dataset"], runs["network"], strict=True)]
    conditions = {name: [_short(value) for value in runs[name]] for name in _CONDITIONS}
    seen: dict[tuple[str, str], set[str]] = {}
    for name, values in conditions.items():
        for label, value in zip(labels, values, strict=True):
            seen.setdefault((label, name), set()).add(value)
    unknown = {"None"}  # a run that crashed does not know its data
    differing = {place for place, values in seen.items() if len(values - unknown) > 1}

    def full(label: str, row: int) -> str:
        parts = [f"{name}={conditions[name][row]}" for name in _CONDITIONS if (label, name) in differing]
        return " ".join([label, *parts])

    return [full(label, row) for row, label in enumerate(labels)]


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:12]


def _notes(runs: pandas.DataFrame) -> Iterator[str]:
    timed = runs[runs["status"] == "done"]
    by_wall = timed[timed["clock"] == "wall"]
    shared = int((by_wall["workers"] > 1).sum())
    if shared:
        yield f"{shared} of {len(timed)} runs shared their machine with other runs; compare their seconds with care"
    busy = int((by_wall["load"] > by_wall["cores"]).sum())
    if busy:
        yield f"{busy} of {len(timed)} runs began on a machine with more work than cores"
    if len(by_wall) < len(timed):
        yield f"{len(timed) - len(by_wall)} of {len(timed)} runs are timed by the processor time that they took"
    for what, column in (("machines", "host"), ("processors", "cpu"), ("versions of torch", "version_torch")):
        mixed = int((timed.groupby(["problem", "seed"])[column].nunique() > 1).sum())
        if mixed:
            yield f"on {mixed} problems and seeds the solvers ran on different {what}; their seconds do not compare"
    yield from _different_code(runs)
    failed = int((runs["status"] != "done").sum())
    if failed:
        yield f"{failed} of {len(runs)} runs have no final loss: they failed, diverged, crashed or timed out"


def _different_code(runs: pandas.DataFrame) -> Iterator[str]:
    """The package's own solvers have one digest per state of the code, unless a user's network is among them."""
    known = runs[~runs["solver_name"].str.contains(".py:", regex=False)]
    mixed = int((known.groupby("problem")["code"].nunique() > 1).sum())
    if mixed:
        yield f"on {mixed} problems the results are of different code; do not compare them"
