"""Results as pandas frames."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas

from cmalight.bench.models import Points, Result, Run
from cmalight.bench.reading import read_spec
from cmalight.bench.spec import Spec, plan
from cmalight.bench.store import read_results, read_specs

_logger = logging.getLogger("cmalight")
_BUDGETS = {"seconds": "budget_seconds", "epochs": "budget_epochs", "batches": "budget_batches"}
_SHARED = ("target_loss", "batch_size", "order", "engine", "clock", "threads")
# Runs that differ in one of these compete on different problems.
_CONDITIONS = (*_BUDGETS.values(), *_SHARED, "network_options", "data_sha256")
_SIZES = ("n_parameters", "n_samples", "n_validation", "batches_per_epoch")
_NUMBERS = (*_BUDGETS.values(), "target_loss", "accepted", "load", *_SIZES)  # NaN if there is none
_WHOLE = ("step", "evaluations", "evaluated_rows")
_MISSING = ("problem", "dataset", "solver", "seed", "reason")
_NOT_RUN, _STALE = "not run yet", "its result is of other code, data or conditions"


@dataclass(frozen=True)
class Results:
    """Results as frames.

    Attributes:
        runs: One row per run, in the order of the spec.
        points: One row per measured point of a run; `key` joins it to `runs`.
        missing: One row per run of the specs that has no result, with the reason.
    """

    runs: pandas.DataFrame
    points: pandas.DataFrame
    missing: pandas.DataFrame = field(default_factory=lambda: pandas.DataFrame(columns=list(_MISSING)))

    def current(self) -> Results:
        """The runs of the current spec with the current code.

        Returns:
            A part of the results.
        """
        return self._where("current")

    def recorded(self) -> Results:
        """The runs of the last `bench run` in the folder, whatever code trained them.

        Returns:
            A part of the results.
        """
        found = self._where("recorded")
        place = ["problem", "solver", "seed"]
        shown = pandas.MultiIndex.from_frame(found.runs.assign(problem=_labels(found.runs))[place])
        has_result = pandas.MultiIndex.from_frame(self.missing[place]).isin(shown)
        return replace(found, missing=self.missing[~has_result])

    @property
    def obstacles(self) -> list[str]:
        """Why runs cannot start on this machine, each reason once."""
        return [reason for reason in self.missing["reason"].unique() if reason not in (_NOT_RUN, _STALE)]

    @property
    def notes(self) -> list[str]:
        """Sentences that belong beside any comparison of these runs."""
        return list(_notes(self.runs))

    def _where(self, column: str) -> Results:
        runs = self.runs[self.runs[column]].reset_index(drop=True)
        points = self.points[self.points["key"].isin(runs["key"])].reset_index(drop=True)
        return Results(runs.assign(problem=_problems(runs)), points, self.missing)


def load(folder: str | Path, spec: Spec | str | Path | None = None) -> Results:
    """Everything in a results folder or an archive of one; a damaged file is named in a warning and left out.

    Args:
        folder: That `bench run` or `bench merge` wrote.
        spec: Decides which runs are current; by default the specs that were run in the folder.

    Returns:
        The frames.

    Example:
        >>> from cmalight import bench
        >>> results = bench.load("results").current()  # that `cmalight bench run` wrote
        >>> results.runs[["problem", "solver", "status"]].values.tolist()
        [['diabetes 1x5', 'adam', 'done'], ['diabetes 1x5', 'auto', 'done']]
        >>> results.points.groupby("key")["epoch"].max().tolist()
        [2.0, 2.0]
    """
    found = {result.run.key: result for result in read_results(folder)}
    specs = list(read_specs(folder))
    recorded = [key for one in specs for key in one.keys]
    wanted = [one.spec for one in specs] if spec is None else [read_spec(spec)]
    current = {run.key: run for one in wanted for run in _planned(one)}
    order = {key: place for place, key in enumerate(dict.fromkeys([*current, *recorded]))}
    keys = sorted(found, key=lambda key: (order.get(key, len(order)), found[key].started, key))
    results = {key: found[key] for key in keys}
    points = _points(results)
    rows = [_row(result, current.get(key, result.run)) for key, result in results.items()]
    columns = [*_row(Result(run=Run(solver="", seed=0, code=""), status="failed"), Run(solver="", seed=0, code=""))]
    runs = pandas.DataFrame(rows, columns=columns).astype(dict.fromkeys(_NUMBERS, "float64"))
    runs = runs.assign(current=runs["key"].isin(list(current)), recorded=runs["key"].isin(recorded))
    runs = runs.join(_losses(points), on="key")
    final = runs.columns[runs.columns.str.startswith(("final_", "best_"))]
    runs[final] = runs[final].where(runs["status"] == "done")
    missing = pandas.DataFrame(_missing(current, found), columns=list(_MISSING))
    return Results(runs.assign(problem=_problems(runs)), points, missing)


def _planned(spec: Spec) -> list[Run]:
    try:
        return plan(spec)
    except (OSError, ValueError, ImportError) as error:
        _logger.warning("%s cannot be planned here, so none of its results are current (%s)", spec.name, error)
        return []


def _missing(current: Mapping[str, Run], found: Mapping[str, Result]) -> Iterator[tuple[Any, ...]]:
    from cmalight.bench.problems import absent_data

    others = {str(result.run): result for key, result in found.items() if key not in current}
    for key, run in current.items():
        if key not in found:
            reason = absent_data(run) or (_STALE if str(run) in others else _NOT_RUN)
            yield run.problem, run.dataset_label, run.solver_label, run.seed, reason


def _row(result: Result, labels: Run) -> dict[str, Any]:
    """What a result says of its run; `labels` is the run as the spec names it now."""
    run, machine = result.run, result.machine
    return {
        "key": run.key,
        "problem": labels.problem,
        "dataset": labels.dataset_label,
        "source": labels.source,
        "group": labels.group,
        "network": labels.network_label,
        "solver": labels.solver_label,
        "grid": labels.grid,
        "seed": run.seed,
        **result.model_dump(exclude={"run", "points", "machine", "outcomes"}),
        "outcomes": json.dumps(result.outcomes, sort_keys=True),
        **{column: getattr(run, name) for name, column in _BUDGETS.items()},
        **{name: getattr(run, name) for name in _SHARED},
        "solver_name": run.solver,
        "solver_options": json.dumps(run.options, sort_keys=True),
        "network_options": json.dumps(run.network_options, sort_keys=True),
        "code": run.code,
        **machine.model_dump(exclude={"versions"}),
        **{f"version_{name}": machine.versions.get(name) for name in ("cmalight", "torch", "numpy", "python")},
    }


def _points(results: Mapping[str, Result]) -> pandas.DataFrame:
    """Column by column, which is many times quicker than row by row."""
    columns: dict[str, list[Any]] = {"key": [key for key, result in results.items() for _ in result.points.step]}
    for name in Points.model_fields:
        columns[name] = [value for result in results.values() for value in getattr(result.points, name)]
    kinds = {name: "int64" if name in _WHOLE else "float64" for name in Points.model_fields}
    points = pandas.DataFrame(columns).astype({"key": object, **kinds})
    samples = points["key"].map({key: result.n_samples for key, result in results.items()})
    return points.assign(evaluated_passes=points["evaluated_rows"] / samples.astype("float64"))


def _losses(points: pandas.DataFrame) -> pandas.DataFrame:
    """One row per run that was measured: what it spent, and its first, last and best losses."""
    runs = points.groupby("key", sort=False)
    first, last = runs.head(1).set_index("key"), runs.tail(1).set_index("key")
    found = last[["seconds", "work", "evaluations", "evaluated_rows", "evaluated_passes"]].copy()
    for column, name in (("train_loss", "loss"), ("validation_loss", "validation_loss")):
        found[f"initial_{name}"] = first[column]
        found[f"final_{name}"] = last[column]
        found[f"best_{name}"] = runs[column].min()
    return found.assign(final_accuracy=last["accuracy"], best_accuracy=runs["accuracy"].max())


def _problems(runs: pandas.DataFrame) -> pandas.Series[str]:
    """Data set and network; if runs of one label had different conditions, these as well."""
    problems = labels = _labels(runs)
    for name in _CONDITIONS:
        values = pandas.Series([_short(value) for value in runs[name]], index=runs.index, dtype=object)
        known = values.where(runs[name].notna())  # a run that crashed does not know its data
        differ = known.groupby(labels).transform("nunique") > 1
        problems = problems.mask(differ, problems + f" {name}=" + values)
    return problems


def _labels(runs: pandas.DataFrame) -> pandas.Series[str]:
    return (runs["dataset"] + " " + runs["network"]).str.strip()


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:12]


def _notes(runs: pandas.DataFrame) -> Iterator[str]:
    done = runs[runs["status"] == "done"]
    wall = done[done["clock"] == "wall"]
    solvers = runs.groupby(["problem", "seed"])["solver"].nunique()
    names = runs.groupby(["dataset", "network"])["data_sha256"].nunique()
    of_starts, of_done = f"of {len(solvers)} starts", f"of {len(done)} finished runs"
    counts = {
        f"{of_starts} lack a result of one of the solvers; comparisons leave them out": solvers
        < runs["solver"].nunique(),
        f"{of_done} shared their machine with other runs; compare their seconds with care": wall["workers"] > 1,
        f"{of_done} began on a machine with more work than cores": wall["load"] > wall["cores"],
        f"{of_done} are timed in processor time, not wall time": done["clock"] != "wall",
        f"of {len(names)} problems have results on different data; the page splits each of them by the first digits "
        "of data_sha256": names > 1,
        "solvers have results of different code; do not compare them": _varies(runs, ["solver", "problem"], "code"),
        f"of {len(runs)} runs have no final loss: they failed, diverged, crashed or timed out": runs["status"]
        != "done",
    }
    for what, name in (("machines", "host"), ("processors", "cpu"), ("versions of torch", "version_torch")):
        text = f"{of_starts} were run on different {what}; their seconds do not compare"
        counts[text] = _varies(done, ["problem", "seed"], name)
    for text, cases in counts.items():
        if cases.any():
            yield f"{cases.sum()} {text}"


def _varies(runs: pandas.DataFrame, by: list[str], name: str) -> pandas.Series[bool]:
    return runs.groupby(by)[name].nunique() > 1
