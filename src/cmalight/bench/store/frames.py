"""Results as pandas frames: one row per run, one row per epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cmalight.bench.spec.study import LATER_CONDITIONS, PROBLEM_CONDITIONS, Plain, of_each_kind
from cmalight.bench.store.archive import as_folder
from cmalight.bench.store.machine import PACKAGES
from cmalight.bench.store.results import good_results
from cmalight.bench.store.schema import COLUMNS
from cmalight.errors import needed

if TYPE_CHECKING:
    import pandas

_TEXT_COLUMNS = ("outcome",)
_DATA = ["dataset", "split_seed", "test_share"]  # a Definition's `data_name`
_CELL = ["dataset", "network", "seed", "solver"]
_FIGURES = ("seconds", "initial_loss", "final_loss", "final_test_loss", "final_test_accuracy", "evaluations")
_PLACE = ("host", "cpu", "cores", "concurrency", "load")
_VERSIONS = ("python", *PACKAGES)
_NUMBERS = (
    *("seed", "epochs", *_FIGURES, "best_loss", "attempts", "started", "finished", "cores", "concurrency", "load"),
    *(name for name in PROBLEM_CONDITIONS if name not in ("order", "engine", "clock")),
)


class Results(NamedTuple):
    """`runs` has one row per run, `epochs` one row per epoch; `key` joins them."""

    runs: pandas.DataFrame
    epochs: pandas.DataFrame

    @property
    def notes(self) -> list[str]:
        """What must be said beside any comparison by time."""
        return list(_notes(self.runs))


def load(folder: str | Path) -> Results:
    """Everything that is in a results folder; a damaged file is named in a warning and left out.

    Args:
        folder: of the results, or an archive of one.

    Returns:
        Two frames with one row per run, and one row per epoch.

    Raises:
        ResultError: if it is no results folder.

    Example:
        >>> from cmalight import bench
        >>> results = bench.load("results")  # that `bench.run` or `cmalight bench run` wrote
        >>> results.runs.sort_values("solver")[["dataset", "network", "solver", "status"]].values.tolist()
        [['diabetes', '1x5', 'adam', 'done'], ['diabetes', '1x5', 'auto', 'done']]
        >>> results.epochs.groupby("key")["epoch"].max().tolist()
        [2, 2]
    """
    with needed("results as frames need pandas", "bench"):
        import pandas
    with as_folder(folder) as place:
        contents = [content for _, content in good_results(place)]
    rows = [_row(content) for content in contents]
    runs = pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=list(_row(_NOTHING)))
    for name in _NUMBERS:
        runs[name] = pandas.to_numeric(runs[name])  # None becomes NaN
    runs["neighbours"] = _neighbours(runs)
    return Results(runs, _epochs(contents))


def only(results: Results, names: Sequence[str]) -> Results:
    """A part of the results: of each kind (data set, network, solver) that is named, these alone.

    Args:
        results: what `load` gave.
        names: as in `cmalight bench run --only`; the paper's networks also without `paper:`.

    Returns:
        The runs that are left, and their epochs.

    Raises:
        ValueError: for a name that no run has.
    """
    runs = results.runs
    known = {kind: set(runs[kind].dropna()) for kind in ("dataset", "network", "solver")}
    for kind, members in of_each_kind(names, known).items():
        runs = runs[runs[kind].isin(members)]
    return Results(
        runs.reset_index(drop=True), results.epochs[results.epochs["key"].isin(runs["key"])].reset_index(drop=True)
    )


_NOTHING: Plain = {"key": "", "status": "", "run": {}, "environment": {}}


def _row(content: Plain) -> Plain:
    run, environment = content["run"], content["environment"]
    network, solver = run.get("network", {}), run.get("solver", {})
    error = content.get("error") or {}
    losses = [loss for loss in content.get("epochs", {}).get("train_loss", ()) if loss is not None]
    done = content["status"] == "done"
    return {
        "key": content["key"],
        "dataset": run.get("dataset"),
        "network": network.get("name"),
        "seed": run.get("seed"),
        "solver": solver.get("name"),
        "solver_options": json.dumps(solver.get("options") or {}, sort_keys=True),
        "network_options": json.dumps(network.get("options") or {}, sort_keys=True),
        "status": content["status"],
        "ended_by": content.get("ended_by"),
        "error": error.get("message"),
        "error_type": error.get("type"),
        "epochs": len(content.get("epochs", {}).get("epoch", ())),
        **{name: content.get(name) for name in _FIGURES},
        "best_loss": min([*losses, content["final_loss"]]) if done else None,
        "attempts": content.get("attempts"),
        **{name: run.get(name, LATER_CONDITIONS.get(name)) for name in PROBLEM_CONDITIONS},
        "compile_seconds": content.get("compile_seconds"),
        "started": content.get("started"),
        "finished": content.get("finished"),
        **{name: environment.get(name) for name in _PLACE},
        **{f"version_{name}": environment.get("versions", {}).get(name) for name in _VERSIONS},
        "data_sha256": content.get("data_sha256"),
        "trusted": run.get("trusted", False),
    }


def _epochs(contents: Sequence[Plain]) -> pandas.DataFrame:
    """Column by column, which is many times quicker than row by row."""
    import numpy
    import pandas

    lengths = [len(content.get("epochs", {}).get("epoch", ())) for content in contents]
    columns: dict[str, Any] = {"key": numpy.repeat(numpy.array([c["key"] for c in contents], dtype=object), lengths)}
    for name in COLUMNS:
        values: list[Any] = []
        for content, length in zip(contents, lengths, strict=True):
            if length:
                values += content["epochs"][name]
        if name in _TEXT_COLUMNS:
            columns[name] = pandas.Categorical(values)
        else:
            column = numpy.array(values, dtype=numpy.float64)  # None becomes NaN
            columns[name] = column.astype(numpy.int64) if name in ("epoch", "evaluations") else column
    return pandas.DataFrame(columns)


def _neighbours(runs: pandas.DataFrame) -> Any:
    """With how many other runs of the folder a run shared its machine, for some of its time."""
    import numpy

    counts = numpy.zeros(len(runs), dtype=numpy.int64)
    hosts = runs["host"].to_numpy(dtype=object)
    begun, ended = (runs[name].to_numpy(dtype=numpy.float64) for name in ("started", "finished"))
    for host in {host for host in hosts if host is not None}:
        here = numpy.flatnonzero(hosts == host)
        before = numpy.searchsorted(numpy.sort(begun[here]), ended[here], side="left")
        over = numpy.searchsorted(numpy.sort(ended[here]), begun[here], side="right")
        counts[here] = numpy.maximum(before - over - 1, 0)
    return counts


def _notes(runs: pandas.DataFrame) -> Iterator[str]:
    twice = int(runs.duplicated(_CELL, keep=False).sum())
    if twice:
        yield (
            f"{twice} runs share data set, network, seed and solver under different conditions or options: "
            "choose among them by solver_options, network_options, time_limit, ..."
        )
    timed = runs[runs["status"] == "done"]
    by_wall = timed[timed["clock"] == "wall"]
    if len(by_wall) < len(timed):
        yield (
            f"{len(timed) - len(by_wall)} of {len(timed)} runs are timed by the processor's time that they took, "
            "whatever ran beside them: caches and memory are still shared"
        )
    shared = int((by_wall["neighbours"] > 0).sum())
    if shared:
        yield (
            f"{shared} of {len(timed)} runs shared their machine with other runs while they were timed: compare them "
            "by time with care, or run one at a time (workers 1)"
        )
    busy = int((by_wall["load"] > by_wall["cores"]).sum())
    if busy:
        yield f"{busy} of {len(timed)} runs began on a machine with more work than cores (load above its cores)"
    cells = timed.groupby(["dataset", "network", "seed"])
    for what, column in (("machines", "host"), ("processors", "cpu")):
        mixed = int((cells[column].nunique() > 1).sum())
        if mixed:
            yield f"in {mixed} of {len(cells)} cells the solvers ran on different {what}: their times do not compare"
    for name in ("torch", "cmalight"):
        versions = sorted(runs[f"version_{name}"].dropna().unique())
        if len(versions) > 1:
            yield f"the runs are of different versions of {name} ({', '.join(versions)}): compare them with care"
    data = runs.groupby(_DATA)["data_sha256"].nunique()
    for dataset in sorted({str(name) for name, *_ in data[data > 1].index}):
        yield f"the runs of {dataset} are on different data (data_sha256): do not compare them"
    for dataset in sorted(runs[runs["trusted"].astype(bool)]["dataset"].unique()):
        yield f"the file of {dataset} was taken whatever its checksum, as the spec said (trust)"
    failed = len(runs) - len(timed)
    if failed:
        yield f"{failed} of {len(runs)} runs have no figure: they failed, diverged, crashed or were stopped"
