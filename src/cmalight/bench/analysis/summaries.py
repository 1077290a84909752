"""The tables of a report: what each solver reached on each data set and network, and over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cmalight.bench.analysis.costs import Traces, solution_costs
from cmalight.bench.analysis.profiles import pairwise_wins, profile_area
from cmalight.bench.analysis.tables import Heading, PartlySolved, ReportTable
from cmalight.rules.outcome import Outcome

if TYPE_CHECKING:
    import pandas

Costs = Mapping[float, "pandas.DataFrame"]
PAPER_TAUS = (1e-1, 1e-2, 1e-4)
ACCEPTED = tuple(outcome.name.lower() for outcome in Outcome if outcome.accepts)
# Outcomes of epochs that nothing was decided of.
NO_CONTROL = tuple(outcome.name.lower() for outcome in (Outcome.UNCONTROLLED, Outcome.NO_STEP))


def control_figures(runs: pandas.DataFrame, epochs: pandas.DataFrame) -> pandas.DataFrame:
    """By key: `per_epoch`, full evaluations per epoch, and `acceptance`, the share of epochs whose end was accepted.

    That is, on line 7 or on lines 34 to 38; an end that stands for another reason, on line 10 or 15, does not count.
    Epochs that were judged together with later ones are none of their own here.
    NaN for runs without a control; those of the first evaluation, f(w0), are among the evaluations.
    """
    import pandas

    outcome = epochs["outcome"].astype("object")
    flags = pandas.DataFrame(
        {
            "key": epochs["key"].astype("object"),
            "accepted": outcome.isin(ACCEPTED).astype("float64"),
            "controlled": (outcome.notna() & ~outcome.isin(NO_CONTROL)).astype("float64"),
        }
    )
    judged = flags[outcome != Outcome.OPEN.name.lower()]
    shares = judged.groupby("key")[["accepted", "controlled"]].mean().reindex(runs["key"])
    controlled = shares["controlled"].to_numpy() > 0
    count, spent = (runs[name].astype("float64").to_numpy() for name in ("epochs", "evaluations"))
    per_epoch = np.divide(spent, count, out=np.full(len(runs), np.nan), where=controlled & (count > 0))
    acceptance = np.where(controlled, shares["accepted"].to_numpy(), np.nan)
    columns = {"per_epoch": per_epoch, "acceptance": acceptance}
    return pandas.DataFrame(columns, index=runs["key"].to_numpy())


def tau_text(tau: float) -> str:
    return f"{tau:g}" if tau >= 1e-3 else f"{tau:.2g}"


def costs_at(traces: Traces) -> Costs:
    """Training seconds to each tau, NaN where a problem has no result of a solver: what the tables below take."""
    return {tau: solution_costs(traces, tau, complete=False) for tau in PAPER_TAUS}


_NEVER = "1 of 2: so many runs got there, too few for a median; never: none did."


def tested(traces: Traces) -> list[tuple[str, str]]:
    """Columns of the test part that were measured, with their titles."""
    columns = (("final_test_loss", "test loss"), ("final_test_accuracy", "test accuracy"))
    return [(name, title) for name, title in columns if traces.runs[name].notna().any()]


def problem_table(traces: Traces, figures: pandas.DataFrame, of_tau: Costs) -> ReportTable:
    """One row per data set, network and solver; medians over the seeds."""
    taus, on_test = list(of_tau), tested(traces)
    runs = traces.runs
    done = runs["status"] == "done"
    final, best = (runs[name].where(done).astype("float64").to_numpy() for name in ("final_loss", "best_loss"))
    test = [runs[name].where(done).astype("float64").to_numpy() for name, _ in on_test]
    costs = [runs["key"].map(_by_key(traces, table)).to_numpy(dtype=np.float64) for table in of_tau.values()]
    control = [runs["key"].map(figures[name]).to_numpy(dtype=np.float64) for name in ("per_epoch", "acceptance")]
    statuses = runs["status"].to_numpy(dtype=object)
    order = {name: place for place, name in enumerate(traces.labels.solvers)}
    rows: list[tuple[Any, ...]] = []
    found: dict[Any, Any] = dict(runs.groupby(["dataset", "net", "variant", "label"]).indices)
    for (dataset, net, variant, label), places in found.items():
        names = (str(dataset), f"{net}{variant}", str(label), status_text(statuses[places]))
        lowest = float(np.fmin.reduce(best[places]))
        others = (_median(column[places]) for column in (*test, *costs, *control))
        rows.append((*names, _median(final[places]), lowest, *others))
    rows.sort(key=lambda cells: (cells[0], cells[1], order[cells[2]]))
    columns = (
        Heading("data set", is_text=True),
        Heading("network", is_text=True),
        Heading("solver", is_text=True),
        Heading("runs", is_text=True),
        Heading("final loss", best="low"),
        Heading("best loss", best="low"),
        *(Heading(title, best="low" if "loss" in title else "high") for _, title in on_test),
        *(Heading(f"s to τ={tau_text(tau)}", best="low") for tau in taus),
        Heading("evaluations per epoch", best="low"),
        Heading("acceptance rate"),
    )
    caption = f"Medians over the seeds (best loss: over seeds and epochs). {_NEVER}"
    return ReportTable("results", caption, columns, tuple(rows), group=2)


def solver_table(traces: Traces, figures: pandas.DataFrame, of_tau: Costs) -> ReportTable:
    """One row per solver, over all problems that all solvers have a result of."""
    taus = list(of_tau)
    costs = [table.dropna() for table in of_tau.values()]
    rows: list[tuple[Any, ...]] = []
    for label in traces.labels.solvers:
        group = traces.runs[traces.runs["label"] == label]
        rows.append(
            (
                label,
                *(float(np.isfinite(cost[label]).mean()) if len(cost) else np.nan for cost in costs),
                *(_median(cost[label]) for cost in costs),
                _median(group["key"].map(figures["per_epoch"])),
                _median(group["key"].map(figures["acceptance"])),
                status_text(group["status"]),
            )
        )
    columns = (
        Heading("solver", is_text=True),
        *(Heading(f"solved τ={tau_text(tau)}", best="high") for tau in taus),
        *(Heading(f"s to τ={tau_text(tau)}", best="low") for tau in taus),
        Heading("evaluations per epoch", best="low"),
        Heading("acceptance rate"),
        Heading("runs", is_text=True),
    )
    caption = f"Share of {len(costs[0])} problems solved, and medians over all of them. {_NEVER}"
    return ReportTable("solvers", caption, columns, tuple(rows))


def area_table(of_tau: Costs, groups: Iterable[tuple[str, set[str]]]) -> ReportTable:
    """The area under the performance profiles by training time, group by group of problems."""
    rows: list[tuple[Any, ...]] = []
    for name, problems in groups:
        for tau, costs in of_tau.items():
            areas = profile_area(costs[costs.index.isin(problems)].dropna())
            rows += [(name, tau_text(tau), label, *map(float, cells)) for label, *cells in areas.itertuples()]
    columns = (
        Heading("problems", is_text=True),
        Heading("τ", is_text=True),
        Heading("solver", is_text=True),
        Heading("area", best="high"),
        Heading("low"),
        Heading("high"),
    )
    caption = "Area under the performance profile by training time, with bootstrap intervals (95 %) over problems."
    return ReportTable("areas", caption, columns, tuple(rows), group=2)


def wins_table(of_tau: Costs, tau: float) -> ReportTable:
    costs = of_tau[tau].dropna()
    wins = pairwise_wins(costs)
    rows: tuple[tuple[Any, ...], ...] = tuple((str(label), *map(int, cells)) for label, *cells in wins.itertuples())
    columns = (Heading("wins of", is_text=True), *(Heading(f"over {label}") for label in wins.columns))
    caption = f"On how many of {len(costs)} problems a solver was quicker to τ={tau_text(tau)} than another."
    return ReportTable(f"wins-{tau:g}", caption, columns, rows)


def status_text(statuses: Iterable[str]) -> str:
    """`4 done, 1 diverged`."""
    counts = Counter(statuses)
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.most_common())


def _by_key(traces: Traces, table: pandas.DataFrame) -> pandas.Series[float]:
    """The cost of every run, also on problems that not all solvers have a result of."""
    costs = table.melt(value_name="cost", ignore_index=False).reset_index()
    merged = traces.runs.merge(costs, left_on=["problem", "label"], right_on=["problem", "solver"], how="left")
    return merged.set_index("key")["cost"]


def _median(values: Any) -> float:
    """NaN is nothing; inf is a value, so the median of as many failures as successes, or more, is infinite."""
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return float("nan")
    ordered = np.sort(known)
    middle = len(ordered) // 2
    median = float(ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)
    solved = int(np.isfinite(ordered).sum())
    return PartlySolved(solved, len(ordered)) if solved and median == np.inf else median
