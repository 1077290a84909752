"""Killed at any moment, nothing is lost, nothing is half written, and the results are as if nothing had been."""

import os
import random
import signal
import time

import pytest

from cmalight import bench
from tests.bench.common import contents, finished, spec, start, toml
from tests.helpers import wait_for

CHANGES = {"solvers": ["cmalight", "adam", "lbfgs", "ig"], "seeds": 5, "max_epochs": 8, "batch_size": 16}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert bench.run(spec(**CHANGES), folder, workers=1).recorded == {"done": 20}
    return contents(folder)


@pytest.mark.slow
def test_a_driver_killed_twenty_times_ends_with_the_results_of_an_uninterrupted_one(tmp_path, uninterrupted):
    path, out = toml(tmp_path / "spec.toml", **CHANGES), tmp_path / "out"
    moments = random.Random(5)
    counts = [0]
    for number in range(20):
        process = start("run", path, "--out", out, "--workers", 1, "--quiet")
        if number % 4 == 3:  # right after a result, else anywhere from the start on
            wait_for(lambda: len(contents(out)) > counts[-1] or process.poll() is not None)  # noqa: B023
            time.sleep(moments.uniform(0, 0.2))
        else:
            time.sleep(moments.uniform(0, 5))
        process.kill()
        finished(process)
        counts.append(len(contents(out)))
    assert counts == sorted(counts)
    assert counts[-1] > 0
    code, _, stderr = finished(start("run", path, "--out", out, "--workers", 1, "--quiet"))
    assert (code, "Traceback" in stderr) == (0, False)
    assert contents(out) == uninterrupted
    assert [file.name for file in (out / "runs").iterdir() if file.suffix != ".json"] == []
    assert not (out / "damaged").exists()


@pytest.mark.slow
def test_killed_workers_cost_their_own_run_a_second_try_and_change_no_result(tmp_path):
    """Three of them, each in the midst of a run that waits for it."""
    places = [tmp_path / f"waits{number}" for number in range(3)]
    waiting = [
        {"solver": "tests.bench.solvers:Waits", "name": place.name, "options": {"at": str(place), "steps": steps}}
        for place, steps in zip(places, (1, 30, 100), strict=True)
    ]
    changes = {**CHANGES, "solvers": ["adam", *waiting, "cmalight"], "seeds": 2}
    path, out = toml(tmp_path / "spec.toml", **changes), tmp_path / "out"
    process = start("run", path, "--out", out, "--workers", 2)
    for place in places:
        os.kill(int(wait_for(lambda: place.exists() and place.read_text())), signal.SIGKILL)  # noqa: B023
        place.with_suffix(".go").touch()
    code, _, stderr = finished(process)
    assert code == 0, stderr
    assert stderr.count("tried once more") == 3
    assert bench.run(spec(**changes), tmp_path / "uninterrupted", workers=2).recorded == {"done": 10}
    assert contents(out) == contents(tmp_path / "uninterrupted")
