"""The real sets of the paper's test-bed with every solver; only where CMALIGHT_DATA says where they are."""

import os

import pytest

from cmalight import bench
from cmalight.bench.spec.solvers import SOLVERS
from cmalight.datasets import dataset_info
from cmalight.datasets.fetching import locate
from tests.bench.common import spec

NAMES = ("ailerons", "bikes", "california", "mv", "blogfeedback", "skin-nonskin")


def is_here(name):
    entry = dataset_info(name)
    return all(locate(entry, file) for file in entry.files)


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("CMALIGHT_DATA"), reason="CMALIGHT_DATA names no folder with the real data sets")
def test_the_real_sets_run_with_all_solvers(tmp_path):
    names = [name for name in NAMES if is_here(name)]
    if not names:
        pytest.skip("the folders of CMALIGHT_DATA have none of the data sets")
    chosen = spec(datasets=names, networks=["paper:1x50"], solvers=list(SOLVERS), max_epochs=None, time_limit=0.2)
    summary = bench.run(chosen, tmp_path, workers=2)
    assert (summary.total, summary.is_complete) == (len(names) * len(SOLVERS), True)
    runs = bench.load(tmp_path).runs
    assert set(runs["status"]) <= {"done", "diverged"}
    done = runs[runs["status"] == "done"]
    assert (done["best_loss"] <= done["initial_loss"]).mean() > 0.9
    assert set(runs[runs["status"] == "diverged"]["solver"]) <= {"lbfgs", "sgd", "sgd-momentum", "ig"}  # no safeguards
