"""All that a report shows, as plain data: the page embeds it, the figures draw parts of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cmalight import __version__
from cmalight.bench.analysis import summaries
from cmalight.bench.analysis.costs import (
    EVALUATION_IN_EPOCHS,
    MEASURES,
    PROBLEMS,
    Problems,
    Traces,
    check_problems,
    counted,
    traces,
)
from cmalight.bench.analysis.curves import AXES, VALUES, Bundles, fractions
from cmalight.bench.analysis.profiles import AREA_LIMIT, LEVEL, RESAMPLES
from cmalight.bench.analysis.sizes import is_image_set, size_groups
from cmalight.bench.analysis.tables import ReportTable
from cmalight.bench.report import about
from cmalight.bench.report.packing import drawn, packed, plain_number
from cmalight.bench.report.solving import solving_data
from cmalight.bench.report.strips import outcome_legend, strip_data
from cmalight.bench.report.styles import styles
from cmalight.bench.store.frames import Results, load, only

if TYPE_CHECKING:
    import pandas

# The slider's: four per decade, the paper's three among them.
TAUS = tuple(float(f"{10 ** (-quarter / 4):.6g}") for quarter in range(1, 25))
_MANY_RUNS = 3_000
_CURVE_NUMBERS = 360_000
_FEWEST_PLACES, _MOST_PLACES = 16, 120
_MOST_DOTS = 60


@dataclass(frozen=True)
class Study:
    """A results folder, read and prepared once.

    costs: of each start
    compared: of what counts as a problem, where every solver has a result: what profiles, areas and wins are of
    """

    folder: Path
    name: str
    results: Results
    traces: Traces
    figures: pandas.DataFrame
    costs: summaries.Costs
    compared: summaries.Costs
    problems: Problems
    groups: list[tuple[str, set[str]]]

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(self.traces.runs["family"]))

    @property
    def image_families(self) -> list[str]:
        """Image sets whose test accuracy was measured."""
        runs = self.traces.runs
        measured = runs[runs["final_test_accuracy"].notna()]
        return [
            str(family)
            for family, dataset in dict(zip(measured["family"], measured["dataset"], strict=True)).items()
            if is_image_set(str(dataset))
        ]


def read_study(folder: str | Path, *, problems: Problems = "start", names: Sequence[str] = (), name: str = "") -> Study:
    """A folder's results; one that has none yet is refused."""
    check_problems(problems)
    results = only(load(folder), names)
    if not len(results.runs):
        raise ValueError(f"{folder} has no results yet: run a spec into it first")
    found = traces(results)
    figures = summaries.control_figures(found.runs, results.epochs)
    costs = summaries.costs_at(found)
    compared = {tau: counted(table.dropna(), found, problems) for tau, table in costs.items()}
    groups = size_groups(found.runs, column="problem" if problems == "start" else "family")
    called = name or Path(folder).resolve().name
    return Study(Path(folder), called, results, found, figures, costs, compared, problems, groups)


def tables(study: Study) -> list[ReportTable]:
    """Every table that is written to files."""
    found, figures = study.traces, study.figures
    return [
        summaries.solver_table(found, figures, study.compared),
        summaries.problem_table(found, figures, study.costs),
        summaries.area_table(study.compared, study.groups),
        *(summaries.wins_table(study.compared, tau) for tau in study.compared),
    ]


def page_data(study: Study) -> dict[str, Any]:
    runs, solvers = study.traces.runs, study.traces.labels.solvers
    looks = styles(solvers)
    problems = list(dict.fromkeys(runs["problem"]))
    family_of = dict(zip(runs["problem"], runs["family"], strict=True))
    places = {name: place for place, name in enumerate(study.families)}
    taus = slider(len(runs))
    spec, trouble = about.spec_text(study.folder)
    return {
        "title": _title(spec, study.name),
        "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC by cmalight {__version__}",
        "solvers": [{"name": one, "colour": looks[one].colour, "dash": looks[one].dash} for one in solvers],
        "families": study.families,
        "images": [places[family] for family in study.image_families],
        "problems": {"name": problems, "family": packed([places[family_of[one]] for one in problems])},
        "groups": [
            {"name": name, "member": packed([int(one in members or family_of[one] in members) for one in problems])}
            for name, members in study.groups
        ],
        "taus": taus,
        "paperTaus": [taus.index(tau) for tau in summaries.PAPER_TAUS],
        "pairs": study.problems == "pair",
        "measures": MEASURES,
        "evaluationInEpochs": EVALUATION_IN_EPOCHS,
        "area": {"limit": AREA_LIMIT, "resamples": RESAMPLES, "level": LEVEL},
        "solving": solving_data(study.traces, taus),
        "curves": _curves(study),
        "strips": strip_data(study.traces.runs, study.results.epochs, places, solvers),
        "outcomes": outcome_legend(),
        "boxes": box_data(study),
        "table": _table(study, places),
        "tested": [title for _, title in summaries.tested(study.traces)],
        "notes": about.notes(study.results, study.traces, about.runs_left(study.folder, study.results.runs)),
        "facts": [("a problem is", PROBLEMS[study.problems]), *about.facts(study.results.runs)],
        "failures": about.failures(runs),
        "failed": int((runs["status"] != "done").sum()),
        "statuses": summaries.status_text(runs["status"]),
        "spec": spec,
        "specTrouble": trouble,
    }


def slider(runs: int) -> tuple[float, ...]:
    """The values of τ on the slider; of many runs every second, for the size of the page."""
    return TAUS if runs <= _MANY_RUNS else TAUS[1::2]


def box_data(study: Study) -> list[dict[str, Any]]:
    """Figure 1 of the paper: one box per solver that has a control, one value per run."""
    runs = study.traces.runs.assign(
        per_epoch=study.traces.runs["key"].map(study.figures["per_epoch"]),
        acceptance=study.traces.runs["key"].map(study.figures["acceptance"]),
    )
    boxes = []
    for place, solver in enumerate(study.traces.labels.solvers):
        of_solver = runs[(runs["label"] == solver) & runs["acceptance"].notna()]
        if len(of_solver):
            boxes.append(
                {
                    "solver": place,
                    "name": solver,
                    "runs": len(of_solver),
                    "per_epoch": _box(of_solver["per_epoch"]),
                    "acceptance": _box(of_solver["acceptance"]),
                }
            )
    return boxes


def _box(values: Any) -> dict[str, Any]:
    """Quartiles; whiskers to the last values within one and a half times the box; what is beyond, as dots."""
    known = np.sort(np.asarray(values, dtype=np.float64))
    known = known[np.isfinite(known)]
    low, median, high = np.quantile(known, [0.25, 0.5, 0.75])
    inside = known[(known >= low - 1.5 * (high - low)) & (known <= high + 1.5 * (high - low))]
    beyond = np.setdiff1d(known, inside)
    few = beyond[np.unique(np.linspace(0, len(beyond) - 1, min(_MOST_DOTS, len(beyond))).astype(int))]
    return {
        "low": float(low),
        "median": float(median),
        "high": float(high),
        "whiskers": [float(inside[0]), float(inside[-1])],
        "beyond": [float(one) for one in few],
    }


def _curves(study: Study) -> dict[str, Any]:
    """Every curve at the same fractions of its end; the more curves, the fewer places."""
    bundles = Bundles(study.traces)
    values = [value for value in VALUES if study.traces.points[value].notna().any()]
    pairs = [(family, solver) for family in study.families for solver in study.traces.labels.solvers]
    many = max(len(bundles.keys) * len(values) * len(AXES) * 3, 1)
    places = fractions(int(np.clip(_CURVE_NUMBERS // many, _FEWEST_PLACES, _MOST_PLACES)))
    found: dict[str, Any] = {}
    for value in values:
        for axis in AXES:
            ends, rows = [], []
            for family, solver in pairs:
                curve = bundles.curve(family, solver, value, axis, places)
                ends.append(0.0 if curve is None else float(curve.x[-1]))
                if curve is not None:
                    rows.append((curve.low, curve.median, curve.high))
            found[f"{value}/{axis}"] = {
                "ends": packed(np.array(ends)),
                "values": drawn(np.array(rows).reshape(-1), log=value != "test_accuracy"),
            }
    return {"fractions": [round(float(one), 6) for one in places], "values": values, "of": found}


def _table(study: Study, places: dict[str, int]) -> list[list[Any]]:
    """Family, solver, runs, and the figures that do not depend on which solvers are shown."""
    full = summaries.problem_table(study.traces, study.figures, {})
    solvers: Sequence[str] = study.traces.labels.solvers
    numbers = {name: place for place, name in enumerate(solvers)}
    return [
        [places[f"{row[0]} · {row[1]}"], numbers[str(row[2])], row[3], *map(plain_number, row[4:])] for row in full.rows
    ]


def _title(spec: list[dict[str, Any]], name: str) -> str:
    names = [str(one["name"]) for one in spec if one.get("name") not in (None, "unnamed")]
    return ", ".join(dict.fromkeys(names)) or name
