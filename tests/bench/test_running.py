"""The driver: a run that misbehaves costs its own result only, and what is finished is never run again."""

import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pandas
import pytest

from cmalight import bench
from cmalight.bench import isolation, plan, running
from tests.bench.common import ENVIRONMENT, descendants, spec, user_code
from tests.helpers import wait_for

NAMES = ("Raises", "Aborts", "Prints", "Good")


@pytest.fixture(scope="module")
def misbehaved(tmp_path_factory):
    """A solver of each kind, in one process each."""
    folder = tmp_path_factory.mktemp("misbehaved")
    hanging = bench.run(spec(solvers=[user_code("Hangs")], wall_limit=5, name="hanging"), folder)
    summary = bench.run(spec(solvers=[user_code(name) for name in NAMES]), folder, workers=2)
    return folder, summary, hanging, bench.load(folder).runs.set_index("solver")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "status", "error"),
    [
        ("Raises", "failed", "KeyError: 'momentum'"),
        ("Aborts", "crashed", "the process died: Fatal Python error: Aborted"),
        ("Hangs", "timed_out", "did not end within 5 s"),
        ("Prints", "done", None),
        ("Good", "done", None),
    ],
)
def test_a_run_that_misbehaves_costs_its_own_result_only(misbehaved, solver, status, error):
    row = misbehaved[3].loc[solver]
    assert row.status == status
    assert (error in row.error) if error else pandas.isna(row.error)


@pytest.mark.slow
def test_the_summary_has_the_last_line_of_each_traceback_and_no_process_is_left(misbehaved):
    _, summary, hanging, runs = misbehaved
    assert runs.loc["Prints"].log.splitlines() == ["a word from the solver"] * 6  # the steps, not the warm-up
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(os.getpid())]
    assert [command for command in commands if b"forkserver" in command] == []
    assert summary.statuses == {"failed": 1, "crashed": 1, "done": 2}
    assert hanging.statuses == {"timed_out": 1}
    assert "diabetes 1x5, seed 0, Raises: failed: KeyError: 'momentum'" in summary.failures
    assert str(summary) == "4 of 4 runs: 1 crashed, 2 done, 1 failed"


@pytest.mark.slow
def test_a_finished_folder_starts_no_process_and_failures_are_repeated_on_demand(misbehaved, monkeypatch):
    folder, summary, _, _ = misbehaved
    started = []
    monkeypatch.setattr(running, "isolated", lambda run, _: started.append(run) or isolation.isolated(run))
    again = bench.run(spec(solvers=[user_code(name) for name in NAMES]), folder)
    assert (again.statuses, started) == (summary.statuses, [])
    only = spec(solvers=[user_code("Raises"), user_code("Good")])
    assert bench.run(only, folder, retry_failed=True).statuses == {"failed": 1, "done": 1}
    assert [run.solver_label for run in started] == ["Raises"]


@pytest.mark.slow
def test_a_killed_worker_is_a_crash(tmp_path):
    at = tmp_path / "at"
    study = spec(solvers=[{"solver": user_code("Waits"), "options": {"at": str(at)}}])
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(bench.run, study, tmp_path / "out")
        os.kill(int(wait_for(lambda: at.exists() and at.read_text())), signal.SIGKILL)
        summary = future.result()
    assert summary.statuses == {"crashed": 1}
    assert "killed by the system or by hand" in summary.failures[0]


@pytest.mark.slow
def test_a_script_needs_no_guard_and_keeps_its_name(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from cmalight import bench\n"
        "spec = dict(datasets=['diabetes'], networks=['1x5'], solvers=['adam'], epochs=1)\n"
        "print(bench.run(spec, 'out'), __file__)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"1 of 1 runs: 1 done {script}\n"


def test_in_process_trains_here(tmp_path, capsys):
    summary = bench.run(
        spec(solvers=[user_code("Prints"), user_code("Raises")]), tmp_path, in_process=True, progress=True
    )
    assert summary.statuses == {"done": 1, "failed": 1}
    said = capsys.readouterr().out
    assert said.count("a word from the solver") == 6
    assert "diabetes 1x5, seed 0, Raises: failed: KeyError: 'momentum'" in said
    assert 'return {}["momentum"]' in said


def test_shards_are_parts_of_the_starts_that_merge_into_the_whole(tmp_path):
    study = spec(seeds=3, solvers=["adam", "sgd"])
    for number in (1, 2):
        bench.run(study, tmp_path / str(number), in_process=True, shard=f"{number}/2")
    starts = [set(bench.load(tmp_path / str(number)).runs["seed"]) for number in (1, 2)]
    assert starts == [{0, 2}, {1}]  # every solver of a start is in one part
    assert [bench.status(tmp_path / str(number))["done"] for number in (1, 2)] == [4, 2]
    assert bench.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "all") == 6
    assert bench.status(tmp_path / "all") == {"done": 6, "left": 0}


def test_a_forecast_has_the_runs_the_starts_and_the_most_they_can_take():
    *runs, total = bench.forecast(spec(seeds=3, solvers=["adam", "sgd"], epochs=None, seconds=100))
    assert len(runs) == 6
    assert total == "6 runs from 3 starts; one after the other they take at most 10:00 of training"
    assert bench.forecast(spec(wall_limit=60))[-1].endswith("at most 1:00 until they are killed")
    (run,) = plan(spec(epochs=None, seconds=1e6))
    assert 1e6 < run.killed_after < 2**31 / 1000  # the longest that the system can wait


def test_data_that_are_not_here_are_named_once_before_the_first_run_and_never_tried(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CMALIGHT_DATA", raising=False)
    study = spec(datasets=["diabetes", "cifar10:rows=10"], seeds=2)
    summary = bench.run(study, tmp_path / "out", in_process=True)
    advice = "the data set cifar10 is not on this machine; get it by: cmalight datasets fetch cifar10"
    assert [record.getMessage() for record in caplog.records] == [f"{advice}; 2 runs wait for it"]
    assert summary.failures == (f"2 runs unavailable: {advice}",)
    assert summary.statuses == {"done": 2, "unavailable": 2}
    assert not (tmp_path / "cache").exists()
    assert bench.status(tmp_path / "out") == {"done": 2, "left": 2}


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2"])
def test_a_wrong_shard_is_refused(shard):
    with pytest.raises(ValueError, match="Invalid shard"):
        bench.forecast(spec(), shard)


@pytest.mark.slow
def test_any_executor_will_do_and_the_results_are_the_same(tmp_path):
    study = spec(solvers=["cmalight", "adam"])
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        bench.run(study, tmp_path / "pool", executor=pool)
    bench.run(study, tmp_path / "here", in_process=True)
    losses = [bench.load(tmp_path / name).points["train_loss"].tolist() for name in ("pool", "here")]
    assert losses[0] == losses[1]


@dataclass
class Losing(Executor):
    """Loses its workers, with this error."""

    error: BaseException

    def submit(self, *_, **__):
        future = Future()
        future.set_exception(self.error)
        return future


def test_a_run_whose_workers_were_lost_crashed_and_an_interrupted_one_is_no_result(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        bench.run(spec(), tmp_path, executor=Losing(KeyboardInterrupt()))
    assert bench.status(tmp_path) == {"left": 1}
    summary = bench.run(spec(), tmp_path, executor=Losing(RuntimeError("KilledWorker")))
    assert summary.statuses == {"crashed": 1}
    assert "its worker was lost: KilledWorker" in summary.failures[0]


def test_other_code_than_planned_is_not_run_and_not_recorded(tmp_path, monkeypatch):
    run = plan(spec())[0].model_copy(update={"code": "another commit"})
    monkeypatch.setattr(running, "plan", lambda _: [run])
    summary = bench.run(spec(), tmp_path)
    assert summary.statuses == {"unavailable": 1}
    assert "not the code that the runs were planned with" in summary.failures[0]
    assert list((tmp_path / "runs").iterdir()) == []
