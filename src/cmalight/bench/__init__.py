"""The test-bed: a spec -> cells -> runs -> results.

from cmalight import bench

bench.run(bench.read_spec("demo"), "results")        # what `cmalight bench run demo --out results` does
runs, epochs = bench.load("results")                 # two pandas frames
"""

from cmalight.bench.driver import Summary
from cmalight.bench.folder_status import Counts, status
from cmalight.bench.frames import Results, load
from cmalight.bench.lock import FolderInUseError
from cmalight.bench.merging import MergeError, merge
from cmalight.bench.planning import Narrowing, PlannedRun, narrowed, plan
from cmalight.bench.results import ResultError
from cmalight.bench.runner import run
from cmalight.bench.spec import Network, Solver, Spec, SpecError
from cmalight.bench.spec_files import PRESETS, read_spec

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
    "load",
    "merge",
    "narrowed",
    "plan",
    "read_spec",
    "run",
    "status",
]
