"""The same driver on a real cluster: a scheduler and two workers on loopback, one of them killed in mid-run."""

import json
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress

import pytest

from cmalight import bench
from cmalight.bench.running.on_dask import DaskReport
from cmalight.bench.running.one_run import Told
from tests.bench.common import ENVIRONMENT, contents, finished, spec, start, toml
from tests.helpers import wait_for

pytest.importorskip("distributed")
MODULE = "tests.bench.solvers"


@contextmanager
def cluster(folder, workers):
    """Its address, and its workers, each a process without a nanny."""
    file = folder / "scheduler.json"
    log = (folder / "cluster.log").open("w")
    options = {"stdout": log, "stderr": log, "env": ENVIRONMENT, "cwd": folder}
    scheduler = [
        *(sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"),
        *("--no-dashboard", "--scheduler-file", str(file)),
    ]
    worker = [
        *(sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-nanny"),
        *("--nthreads", "1", "--memory-limit", "3GB", "--no-dashboard", "--local-directory", str(folder)),
    ]
    processes = [subprocess.Popen(scheduler, **options)]
    try:
        address = wait_for(lambda: written_address(file))
        processes += [subprocess.Popen(worker, **options) for _ in range(workers)]
        yield address.replace("tcp", "dask"), processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        log.close()


def written_address(file):
    """Once the scheduler has written all of its file."""
    with suppress(OSError, ValueError, KeyError):
        return json.loads(file.read_text())["address"]
    return None


@pytest.mark.slow
def test_a_worker_killed_in_mid_run_changes_no_result(tmp_path):
    """Both workers have a run that waits until one of them is dead."""
    places = [tmp_path / name for name in ("one", "other")]
    waiting = [{"solver": f"{MODULE}:Waits", "name": p.name, "options": {"at": str(p)}} for p in places]
    changes = {"solvers": [*waiting, "cmalight", f"{MODULE}:Raises"], "max_epochs": 10}
    path, out = toml(tmp_path / "spec.toml", **changes), tmp_path / "out"
    with cluster(tmp_path, 2) as (address, workers):
        process = start("run", path, "--out", out, "--executor", address)
        wait_for(lambda: all(place.exists() for place in places))
        wait_for(lambda: len(bench.status(out).running) == 2)
        workers[0].send_signal(signal.SIGKILL)
        for place in places:
            place.with_suffix(".go").touch()
        code, stdout, stderr = finished(process)
    assert code == 0, stderr
    assert "4 of 4 runs recorded (3 done, 1 failed)" in stdout
    local = tmp_path / "local"
    bench.run(spec(**changes), local, workers=2)

    def figures(folder):
        return {k: (c["status"], c.get("final_loss"), c["epochs"]) for k, c in contents(folder).items()}

    assert figures(out) == figures(local)


@pytest.mark.slow
def test_a_run_that_takes_its_workers_down_gets_two_of_them_and_no_more(tmp_path):
    """And a memory hog gets its share of what the worker may use, which it is told."""
    names = ("KillsItsWorker", "EatsMemory")
    chosen = spec(solvers=[*(f"{MODULE}:{name}" for name in names), "sgd"])
    with cluster(tmp_path, 3) as (address, workers):
        bench.run(chosen, tmp_path / "out", executor=address)
        wait_for(lambda: sum(worker.poll() is None for worker in workers) <= 1)
        assert sum(worker.poll() is None for worker in workers) == 1
    runs = bench.load(tmp_path / "out").runs.set_index("solver")
    assert [runs.loc[f"{MODULE}:{name}", "status"] for name in names] == ["crashed", "out_of_memory"]
    assert runs.loc[f"{MODULE}:KillsItsWorker", "attempts"] == 2
    assert runs.loc["sgd", "status"] == "done"
    assert 1 <= runs.loc["sgd", "concurrency"] <= 3


def test_news_that_cannot_be_sent_do_not_harm_the_run():
    DaskReport()(Told("key", 0, None, 0.0))  # there is no worker here


@pytest.mark.slow
def test_no_scheduler_is_one_line(tmp_path, monkeypatch):
    from cmalight.bench.running import executors

    monkeypatch.setattr(executors, "_CONNECT_SECONDS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # so that nobody else listens there
        address = f"dask://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RuntimeError, match="no Dask scheduler answers at"):
            bench.run(spec(), tmp_path, executor=address)
