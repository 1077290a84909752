"""The same driver on a real cluster: a scheduler and two workers with nannies on loopback, one killed in mid-run."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress

import pytest

from cmalight import bench
from tests.bench.common import ENVIRONMENT, finish, is_alive, spec, start, user_code, waits, write_toml
from tests.helpers import wait_for

pytest.importorskip("distributed")


@contextmanager
def cluster(folder):
    """The address of a scheduler, and the processes of two workers, each under a nanny."""
    file = folder / "scheduler.json"
    log = (folder / "cluster.log").open("w")
    options = {"stdout": log, "stderr": log, "env": ENVIRONMENT, "cwd": folder}
    module = (sys.executable, "-m", "distributed.cli.dask_scheduler")
    scheduler = [*module, "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    worker = [
        *(sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--nworkers", "1"),
        *("--nthreads", "1", "--no-dashboard", "--local-directory", str(folder)),
    ]
    processes = [subprocess.Popen(scheduler, **options)]
    try:
        address = wait_for(lambda: _address(file))
        processes += [subprocess.Popen(worker, **options) for _ in range(2)]
        yield address.replace("tcp", "dask"), processes[0]
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.close()


def _address(file):
    with suppress(OSError, ValueError, KeyError):
        return json.loads(file.read_text())["address"]
    return None


def _parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_a_killed_worker_loses_no_run_and_changes_no_result(tmp_path):
    at = tmp_path / "at"
    path = write_toml(
        tmp_path / "spec.toml", f'solvers = [{waits(at)}, "cmalight", "{user_code("Raises")}", "{user_code("Aborts")}"]'
    )
    with cluster(tmp_path) as (address, _):
        process = start("bench", "run", path, "--out", tmp_path / "out", "--executor", address)
        training = int(wait_for(lambda: at.exists() and at.read_text()))
        worker = _parent(_parent(training))  # the run is a child of the worker's fork server
        at.unlink()
        subprocess.run(["kill", "-9", str(worker)], check=True)
        wait_for(lambda: not is_alive(training))
        wait_for(lambda: at.exists())  # another worker has it now
        at.with_suffix(".go").touch()
        code, stdout, stderr = finish(process)
    assert code == 1, stderr
    assert "4 of 4 runs: 1 crashed, 2 done, 1 failed" in stdout
    study = spec(solvers=[{"solver": user_code("Waits"), "options": {"at": str(at)}}, "cmalight"])
    bench.run(study, tmp_path / "here", in_process=True)
    losses = []
    for folder in ("out", "here"):
        points = bench.load(tmp_path / folder, study).current().points
        losses.append(points["train_loss"].tolist())
    assert losses[0] == losses[1] != []


@pytest.mark.slow
def test_a_killed_scheduler_is_one_line_and_keeps_what_is_finished(tmp_path):
    at = tmp_path / "at"
    path = write_toml(tmp_path / "spec.toml", f'solvers = ["adam", {waits(at)}]', "seeds = 3")
    with cluster(tmp_path) as (address, scheduler):
        process = start("bench", "run", path, "--out", tmp_path / "out", "--executor", address, "--quiet")
        wait_for(lambda: at.exists() and list((tmp_path / "out" / "runs").glob("*.json")))
        scheduler.kill()
        code, _, stderr = finish(process)
    assert code == 1, stderr
    lines = [line for line in stderr.splitlines() if line]
    assert "finished results are kept, and the same command resumes" in lines[0]
    assert "Traceback" not in stderr
    assert bench.status(tmp_path / "out")["done"] >= 1


def test_no_scheduler_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="no Dask scheduler answers at tcp:"):
        bench.run(spec(), tmp_path, executor="dask://127.0.0.1:9")
