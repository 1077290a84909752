"""The test-bed: a spec -> cells -> runs -> results -> profiles, tables, a report.

from cmalight import bench

bench.run(bench.read_spec("demo"), "results")        # what `cmalight bench run demo --out results` does
results = bench.load("results")                      # two pandas frames
costs = bench.solution_costs(results, tau=1e-2)      # a row a problem, a column a solver
bench.performance_profile(costs)
bench.write_report("results")                        # what `cmalight bench report results` does
"""

from typing import TYPE_CHECKING, Any

from cmalight.bench.running.driver import Summary
from cmalight.bench.running.folder_status import Counts, status
from cmalight.bench.running.runner import run
from cmalight.bench.spec.planning import Narrowing, PlannedRun, narrowed, plan
from cmalight.bench.spec.spec_files import PRESETS, read_spec
from cmalight.bench.spec.study import Network, Solver, Spec, SpecError
from cmalight.bench.store.frames import Results, load
from cmalight.bench.store.lock import FolderInUseError
from cmalight.bench.store.merging import MergeError, merge
from cmalight.bench.store.results import ResultError

if TYPE_CHECKING:
    from cmalight.bench.analysis.costs import Traces, solution_costs, traces
    from cmalight.bench.analysis.profiles import data_profile, pairwise_wins, performance_profile, profile_area, ratios
    from cmalight.bench.report import write_report

# What looks at results is imported when it is asked for: a worker that only trains does not wait for it.
_LATER = {
    **dict.fromkeys(
        ("data_profile", "pairwise_wins", "performance_profile", "profile_area", "ratios"),
        "cmalight.bench.analysis.profiles",
    ),
    **dict.fromkeys(("Traces", "solution_costs", "traces"), "cmalight.bench.analysis.costs"),
    "write_report": "cmalight.bench.report",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATER[name]), name)


__all__ = [
    "PRESETS",
    "Counts",
    "FolderInUseError",
    "MergeError",
    "Narrowing",
    "Network",
    "PlannedRun",
    "ResultError",
    "Results",
    "Solver",
    "Spec",
    "SpecError",
    "Summary",
    "Traces",
    "data_profile",
    "load",
    "merge",
    "narrowed",
    "pairwise_wins",
    "performance_profile",
    "plan",
    "profile_area",
    "ratios",
    "read_spec",
    "run",
    "solution_costs",
    "status",
    "traces",
    "write_report",
]
