"""The test-bed: a spec in TOML -> runs -> results -> costs, profiles, a report.

from cmalight import bench

bench.run("demo", "results")                         # what `cmalight bench run demo --out results` does
results = bench.load("results").current()            # pandas frames
costs = bench.solution_costs(results, tau=1e-2)      # one row per problem, one column per solver
bench.write_report("results")                        # what `cmalight bench report results` does
"""

import importlib
from typing import TYPE_CHECKING, Any

from cmalight.errors import needed

with needed("The test-bed needs filelock, pandas, plotly, pydantic and rich", "bench"):
    from cmalight.bench.analysis import (
        best_of_grid,
        data_profile,
        performance_profile,
        profile_area,
        results_table,
        solution_costs,
        summary,
        unseen_summary,
    )
    from cmalight.bench.frames import Results, load
    from cmalight.bench.models import Result, Run
    from cmalight.bench.reading import PRESETS, SpecError, read_spec
    from cmalight.bench.report import write_report
    from cmalight.bench.running import Summary, forecast, run
    from cmalight.bench.spec import Spec, plan
    from cmalight.bench.store import FolderInUseError, merge, status

if TYPE_CHECKING:
    from cmalight.bench.problems import Problem
    from cmalight.bench.training import train

__all__ = [
    "PRESETS", "FolderInUseError", "Problem", "Result", "Results", "Run", "Spec", "SpecError", "Summary",
    "best_of_grid", "data_profile", "forecast", "load", "merge", "performance_profile", "plan", "profile_area",
    "read_spec", "results_table", "run", "solution_costs", "status", "summary", "train", "unseen_summary",
    "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """What needs torch, when it is first asked for: `cmalight bench status` does not wait."""
    modules = {"Problem": "problems", "train": "training"}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{modules[name]}"), name)
