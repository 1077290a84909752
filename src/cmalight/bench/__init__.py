"""The test-bed: a spec -> cells -> runs -> results -> profiles, tables, a report.

from cmalight import bench

bench.run(bench.read_spec("demo"), "results")        # what `cmalight bench run demo --out results` does
results = bench.load("results")                      # two pandas frames
costs = bench.solution_costs(results, tau=1e-2)      # one row per problem, one column per solver
bench.performance_profile(costs)
bench.write_report("results")                        # what `cmalight bench report results` does
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmalight.bench.analysis import (
        data_profile,
        performance_profile,
        profile_area,
        results_table,
        solution_costs,
        summary,
    )
    from cmalight.bench.report import write_report
    from cmalight.bench.running.driver import Summary
    from cmalight.bench.running.runner import run
    from cmalight.bench.spec.planning import Narrowing, PlannedRun, narrowed, plan
    from cmalight.bench.spec.spec_files import PRESETS, read_spec
    from cmalight.bench.spec.study import Network, Solver, Spec, SpecError
    from cmalight.bench.store.folder_status import Counts, status
    from cmalight.bench.store.frames import Results, load
    from cmalight.bench.store.lock import FolderInUseError
    from cmalight.bench.store.merging import MergeError, merge
    from cmalight.bench.store.results import ResultError

# Imported when first asked for: `cmalight bench status` does not wait for torch, nor a worker for pandas.
_HOMES = {
    "analysis": (
        *("data_profile", "performance_profile", "profile_area", "results_table", "solution_costs", "summary"),
    ),
    "report": ("write_report",),
    "running.driver": ("Summary",),
    "running.runner": ("run",),
    "spec.planning": ("Narrowing", "PlannedRun", "narrowed", "plan"),
    "spec.spec_files": ("PRESETS", "read_spec"),
    "spec.study": ("Network", "Solver", "Spec", "SpecError"),
    "store.folder_status": ("Counts", "status"),
    "store.frames": ("Results", "load"),
    "store.lock": ("FolderInUseError",),
    "store.merging": ("MergeError", "merge"),
    "store.results": ("ResultError",),
}
_HOME_OF = {name: f"cmalight.bench.{home}" for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


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
    "data_profile",
    "load",
    "merge",
    "narrowed",
    "performance_profile",
    "plan",
    "profile_area",
    "read_spec",
    "results_table",
    "run",
    "solution_costs",
    "status",
    "summary",
    "write_report",
]
