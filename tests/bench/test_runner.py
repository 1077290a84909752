"""The driver with real processes: what goes wrong costs its own run, and nothing runs twice."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from cmalight import bench, locks
from cmalight.bench.running import driver, runner, supervise
from cmalight.bench.store import results
from cmalight.bench.store.lock import acquired, owner_alive
from cmalight.errors import duration
from tests.bench.common import ENVIRONMENT, contents, finished, has_ended, nurseries, spec, start, toml, trainers
from tests.helpers import wait_for

MODULE = "tests.bench.solvers"
BAD = {
    "Raises": "failed",
    "TurnsIntoNaN": "diverged",
    "EatsMemory": "out_of_memory",
    "Dies": "crashed",
    "DiesOnce": "done",
    "Prints": "done",
}


@pytest.fixture(scope="module")
def bad_company(tmp_path_factory):
    """The solvers that misbehave and end between two that do not."""
    folder = tmp_path_factory.mktemp("bad")
    os.environ["CMALIGHT_TEST_FLAG"] = str(folder / "flag")
    solvers = ["adam", *(f"{MODULE}:{name}" for name in BAD), "sgd"]
    chosen = spec(solvers=solvers, wall_limit=600.0, memory_limit=300.0)
    summary = bench.run(chosen, folder / "out", workers=2)
    return folder / "out", chosen, summary


@pytest.mark.slow
def test_each_misfortune_is_recorded_as_what_it_is_and_the_rest_goes_on(bad_company):
    folder, _, summary = bad_company
    assert summary.is_complete
    runs = bench.load(folder).runs.set_index("solver")
    assert dict(runs["status"]) == {"adam": "done", "sgd": "done", **{f"{MODULE}:{k}": v for k, v in BAD.items()}}
    failed = runs[runs["status"] != "done"]
    assert failed[["final_loss", "best_loss"]].isna().all(axis=None)
    assert failed["error"].str.len().min() > 5
    assert "divided by zero" in failed.loc[f"{MODULE}:Raises", "error"]
    assert "SIGKILL" in failed.loc[f"{MODULE}:Dies", "error"]


@pytest.mark.slow
def test_a_solver_that_hangs_is_killed_recorded_and_the_rest_goes_on(tmp_path):
    hangs = [{"solver": f"{MODULE}:Hangs", "name": name} for name in ("hangs", "hangs too")]
    assert bench.run(spec(solvers=hangs, wall_limit=1.0), tmp_path, workers=1).recorded == {"timed_out": 2}
    runs = bench.load(tmp_path).runs
    assert runs["error"].str.contains("killed after 1 s").all()
    assert runs["final_loss"].isna().all()


@pytest.mark.slow
def test_a_crash_is_tried_once_more(bad_company):
    runs = bench.load(bad_company[0]).runs.set_index("solver")
    assert runs.loc[f"{MODULE}:Dies", "attempts"] == runs.loc[f"{MODULE}:DiesOnce", "attempts"] == 2
    assert runs.loc["adam", "attempts"] == 1


@pytest.mark.slow
def test_nothing_that_is_recorded_runs_again(bad_company, monkeypatch):
    folder, chosen, summary = bad_company
    before = {path: path.read_bytes() for path in results.runs_folder(folder).iterdir()}
    monkeypatch.setattr(runner, "opened", None)  # no executor may be needed
    again = bench.run(chosen, folder)
    assert (again.reused, again.recorded) == (len(before), summary.recorded)
    assert {path: path.read_bytes() for path in results.runs_folder(folder).iterdir()} == before


@pytest.mark.slow
def test_a_damaged_file_is_named_set_aside_and_run_again(tmp_path, caplog):
    chosen = spec(solvers=["adam", "sgd"])
    bench.run(chosen, tmp_path, workers=1)
    good = contents(tmp_path)
    damaged = next(results.runs_folder(tmp_path).glob("*.json"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    summary = bench.run(chosen, tmp_path, workers=1)
    assert (summary.reused, summary.is_complete) == (1, True)
    assert contents(tmp_path) == good
    assert str(damaged) in caplog.text
    assert len(list((tmp_path / "damaged").iterdir())) == 1


@pytest.mark.slow
def test_data_that_cannot_be_had_leaves_its_runs_for_later(tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.toml").write_text('[dataset]\nfile = "mine.csv"\ntarget = "y"\ntask = "regression"\n')
    chosen = spec(datasets=["diabetes", str(tmp_path / "mine.toml")])
    summary = bench.run(chosen, tmp_path / "out", workers=1)
    assert (summary.recorded, summary.is_complete) == ({"done": 1}, False)
    assert list(summary.left_out) == ["data set mine"]


def test_two_drivers_on_one_folder_the_second_says_so_and_stops(tmp_path):
    path = toml(tmp_path / "spec.toml")
    out = tmp_path / "out"
    out.mkdir()
    with acquired(out):
        code, stdout, stderr = finished(start("run", path, "--out", out))
        assert (code, stdout) == (2, "")
        assert stderr.count("\n") == 1
        assert f"is in use by process {os.getpid()}" in stderr
    with acquired(out):
        pass


def test_a_lock_of_another_machine_counts_while_it_moves(tmp_path, caplog):
    file = tmp_path / "lock"
    file.write_text(json.dumps({"pid": 1, "host": "elsewhere", "since": "today"}))
    with pytest.raises(bench.FolderInUseError, match="process 1 on elsewhere"), acquired(tmp_path):
        pass
    long_ago = time.time() - 3600
    os.utime(file, (long_ago, long_ago))
    with acquired(tmp_path):
        assert "going on where it stopped" in caplog.text


def test_looking_at_a_folder_does_not_keep_a_driver_out(tmp_path, monkeypatch):
    """`status` holds the lock for a moment."""
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(locks, "_TRIES", 10_000)  # a moment may be long on a busy machine
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.08, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        with acquired(tmp_path):
            pass


def test_where_a_file_system_has_no_locks_the_owners_clock_counts(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSYS, "not implemented")))
    with acquired(tmp_path):
        with pytest.raises(bench.FolderInUseError, match="is in use by process"), acquired(tmp_path):
            pass
        assert owner_alive(tmp_path).pid == os.getpid()
    with acquired(tmp_path):
        pass


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished_ends_the_workers_and_exits_130(tmp_path):
    path = toml(tmp_path / "spec.toml", solvers=["adam", f"{MODULE}:Hangs", "sgd"])
    out = tmp_path / "out"
    process = start("run", path, "--out", out, "--workers", 1)
    wait_for(lambda: len(contents(out)) == 1)
    (child,) = wait_for(lambda: trainers(process.pid))
    (nursery,) = nurseries(process.pid)
    status = bench.status(out)
    assert status.driver.pid == process.pid
    assert status.recorded == {"done": 1}
    process.send_signal(signal.SIGINT)
    code, _, stderr = finished(process)
    assert (code, stderr.strip()) == (130, "cmalight: interrupted")
    assert len(contents(out)) == 1
    wait_for(lambda: has_ended(child) and has_ended(nursery))
    assert bench.status(out).driver is None


@pytest.mark.slow
def test_a_killed_driver_takes_its_workers_along(tmp_path):
    path = toml(tmp_path / "spec.toml", solvers=[f"{MODULE}:Hangs"])
    process = start("run", path, "--out", tmp_path / "out", "--workers", 1)
    (child,) = wait_for(lambda: trainers(process.pid))
    (nursery,) = nurseries(process.pid)
    process.kill()
    finished(process)
    wait_for(lambda: has_ended(child) and has_ended(nursery))


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while_loses_nothing(tmp_path, monkeypatch, caplog):
    write, failures = driver.write_result, []

    def full(folder, key, content):
        if len(failures) < 3:
            failures.append(key)
            raise OSError(28, "No space left on device", str(folder))
        return write(folder, key, content)

    monkeypatch.setattr(driver, "write_result", full)
    summary = bench.run(spec(solvers=["adam", "sgd", "ig"]), tmp_path, workers=1)
    assert (summary.recorded, summary.not_written) == ({"done": 3}, {})
    assert "kept and tried again" in caplog.text
    assert len(contents(tmp_path)) == 3


def in_a_name_space(script):
    """A shell script whose mounts are gone when it ends."""
    try:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script],
            capture_output=True,
            text=True,
            timeout=600,
            env=ENVIRONMENT,
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if done.returncode == 77 or done.stderr.startswith("unshare"):
        pytest.skip("a file system can be mounted by root only")
    return done


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_next_call_goes_on(tmp_path):
    """A real one: a file system of 64 kB in a mount name space of its own."""
    path = toml(tmp_path / "spec.toml", solvers=["adam", "sgd", "nadam"], max_epochs=150)
    disk = tmp_path / "disk"
    disk.mkdir()
    command = f"{sys.executable} -m cmalight bench run {path} --out {disk}/out --workers 1 --quiet"
    script = (
        f"mount -t tmpfs -o size=64k none {disk} || exit 77; {command}; echo first $?; ls {disk}/out/runs | wc -l;"
        f"mount -o remount,size=10m {disk}; {command}; echo second $?; ls {disk}/out/runs | wc -l;"
        f"ls -A {disk}/out/runs | grep -c tmp"
    )
    done = in_a_name_space(script)
    first, files_then, second, files_now, leftovers = done.stdout.split("\n")[:5]
    assert (first, second, leftovers) == ("first 2", "second 0", "0")
    assert int(files_then) < 3 == int(files_now)
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_one_line_before_anything_runs(tmp_path):
    """A real one: a file system that is mounted for reading only."""
    path = toml(tmp_path / "spec.toml")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = in_a_name_space(
        f"mount -t tmpfs none {disk} || exit 77; mkdir -p {disk}/out/runs; mount -o remount,ro {disk} || exit 77;"
        f"{sys.executable} -m cmalight bench run {path} --out {disk}/out"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "Read-only file system" in done.stderr


def test_an_unknown_executor_is_refused(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'local'"):
        bench.run(spec(), tmp_path, executor="lokal")


@pytest.mark.parametrize(("seconds", "text"), [(None, "unknown"), (5, "0:05"), (3661, "1:01:01"), (90000, "1 d 01 h")])
def test_durations_read_well(seconds, text):
    assert duration(seconds) == text


def test_why_a_process_ended():
    assert supervise._cause(-11) == "killed by SIGSEGV"
    assert supervise._cause(3) == "exit code 3"
