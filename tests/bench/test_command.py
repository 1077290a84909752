"""`cmalight bench` and `cmalight demo`: exit codes, Ctrl-C, kill -9, and one line for every mistake."""

import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from cmalight import bench
from cmalight.cli import command
from tests.bench.common import ENVIRONMENT, descendants, finish, is_alive, start, user_code, waits, write_toml
from tests.helpers import wait_for


def invoke(*arguments):
    return CliRunner().invoke(command, [str(one) for one in arguments], prog_name="cmalight")


def waiting(tmp_path):
    """A spec with a run that is quick, and one that waits."""
    at = tmp_path / "at"
    return write_toml(tmp_path / "spec.toml", f'solvers = ["adam", {waits(at)}]'), at


def test_a_run_ends_with_0_and_says_what_there_is(tmp_path):
    path = write_toml(tmp_path / "spec.toml", 'solvers = ["adam"]')
    result = invoke("bench", "run", path, "--out", tmp_path / "out", "--in-process", "--set", "epochs = 1")
    assert result.exit_code == 0, result.output
    assert "1 of 1 runs: 1 done" in result.stdout
    assert bench.load(tmp_path / "out").runs["epochs"].tolist() == [1]
    status = invoke("bench", "status", tmp_path / "out").stdout.split()
    assert status == ["done", "1", "left", "0"]


def test_failed_runs_end_with_1_and_the_last_line_of_the_traceback_also_the_second_time(tmp_path):
    path = write_toml(tmp_path / "spec.toml", f'solvers = ["adam", "{user_code("Raises")}"]')
    for _ in range(2):
        result = invoke("bench", "run", path, "--out", tmp_path / "out", "--in-process", "--quiet")
        assert result.exit_code == 1
        assert "Raises: failed: KeyError: 'momentum'" in result.stderr
        assert "2 of 2 runs: 1 done, 1 failed" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "dmo", "--out", "out"), "did you mean 'demo'?"),
        (("run", "demo"), "Missing option '--out'"),
        (("run", "demo", "--out", "out", "--set", "seeds 2"), "is not TOML"),
        (("run", "demo", "--out", "out", "--set", "sedes = 2"), "did you mean 'seeds'?"),
        (("run", "demo", "--out", "out", "--executor", "cloud"), "Unknown executor"),
        (("status", "nowhere"), "is not a results folder"),
        (("merge", "nowhere", "--out", "out"), "is not a results folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2_and_leaves_nothing(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = invoke("bench", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out" / "runs").exists() or not list((tmp_path / "out" / "runs").iterdir())


def test_a_dry_run_lists_the_runs_and_says_what_they_can_take(tmp_path):
    result = invoke("bench", "run", "demo", "--out", tmp_path / "out", "--dry-run", "--set", "seeds = 2")
    assert "diabetes 1x50, seed 1, adam" in result.stdout.splitlines()
    assert "192 runs from 24 starts" in result.stdout.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_the_help_lists_the_presets():
    text = " ".join(invoke("bench", "run", "--help").stdout.split())
    for name in bench.PRESETS:
        assert f" {name}," in text or f" {name}." in text


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 0.8, 1.5, 2.5, 4])
def test_ctrl_c_in_the_first_seconds_is_no_traceback(tmp_path, seconds):
    path = write_toml(tmp_path / "spec.toml", 'solvers = ["adam"]', "seeds = 200")
    process = start("bench", "run", path, "--out", tmp_path / "out")
    time.sleep(seconds)
    children = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    code, _, stderr = finish(process)
    assert (code, "Traceback" in stderr) == (130, False), stderr
    wait_for(lambda: not any(map(is_alive, children)))


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_driver_leaves_no_process_and_keeps_what_is_finished_and_the_same_command_goes_on(tmp_path, sent):
    path, at = waiting(tmp_path)
    process = start("bench", "run", path, "--out", tmp_path / "out")
    pid = int(wait_for(lambda: at.exists() and at.read_text()))
    children = descendants(process.pid)
    assert pid in children
    (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
    code, _, stderr = finish(process)
    assert (code, "Traceback" in stderr) == (130 if sent == signal.SIGINT else -sent, False), stderr
    wait_for(lambda: not any(map(is_alive, children)))
    assert bench.status(tmp_path / "out") == {"done": 1, "left": 1}
    at.with_suffix(".go").touch()
    code, stdout, _ = finish(start("bench", "run", path, "--out", tmp_path / "out"))
    assert (code, "2 of 2 runs: 2 done" in stdout, "adam: done" in stdout) == (0, True, False)


@pytest.mark.slow
def test_the_demo_writes_a_report(tmp_path):
    changes = "seconds = 0.2\nsolvers = ['auto', 'adam']\nnetworks = ['1x50']\ndatasets = ['diabetes']"
    result = invoke("bench", "run", "demo", "--out", tmp_path, "--set", changes)
    assert result.exit_code == 0, result.output
    report = invoke("bench", "report", tmp_path)
    assert report.stdout.startswith("report: ")
    assert (tmp_path / "report" / "index.html").stat().st_size > 1000


def test_looking_at_a_folder_does_not_wait_for_torch(tmp_path):
    (tmp_path / "runs").mkdir()
    code = f"from cmalight import bench; bench.status({str(tmp_path)!r}); import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, check=True)
