"""`cmalight bench`: one line for what is wrong, exit 2; every verb is one call of the library."""

import pytest
from click.testing import CliRunner

from cmalight import bench
from cmalight.bench.running.one_run import Job, train
from cmalight.bench.store.folder_status import add_call
from cmalight.bench.store.results import runs_folder, write_result
from cmalight.bench.store.schema import DriverCall
from cmalight.cli import command
from tests.bench.common import spec, toml


@pytest.fixture
def cmalight(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(command, ["bench", *map(str, arguments)], prog_name="cmalight")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runn"], "Unknown verb of `bench` 'runn'; did you mean 'run'?"),
        (["run", "demoo"], "Unknown preset 'demoo'; did you mean 'demo'?"),
        (["run", "nowhere.toml", "--out", "x"], "there is no file nowhere.toml"),
        (["run", "demo"], "needs --out DIR"),
        (["run", "demo", "--out", "x", "--only", "adan"], "did you mean 'adam'?"),
        (["run", "demo", "--out", "x", "--seeds", "9"], "Invalid --seeds: '9'"),
        (["run", "demo", "--out", "x", "--workers", "0"], "--workers"),
        (["run", "demo", "--out", "x", "--time-limit", "-1"], "--time-limit"),
        (["status", "x"], "x is not a results folder"),
        (["merge", "x", "--out", "y"], "x is not a results folder"),
        (["merge", "--out", "y"], "DIR..."),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(cmalight, tmp_path, arguments, message):
    result = cmalight(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_executor_runs_nothing(cmalight, tmp_path):
    result = cmalight("run", toml(tmp_path / "a.toml"), "--out", "out", "--executor", "lokal")
    assert (result.exit_code, "did you mean 'local'?" in result.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_writes_nothing(cmalight, tmp_path):
    result = cmalight("run", "paper-small", "--dry-run", "--workers", "4")
    assert result.exit_code == 0
    assert "220 cells x 6 solvers" in result.stdout
    assert "1320 runs of at most 300 s of training, 4 at once: at most 1 d 03 h" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_without_a_time_limit_does_not_guess(cmalight, tmp_path):
    assert "how long that takes is not known" in cmalight("run", toml(tmp_path / "a.toml"), "--dry-run").stdout


def test_a_dry_run_counts_what_is_there_already(cmalight, tmp_path):
    fill(tmp_path / "out", spec(seeds=2, time_limit=7), 1)
    lines = cmalight("run", toml(tmp_path / "a.toml", seeds=2, time_limit=7), "--dry-run", "--out", "out").stdout
    assert "1 of 2 runs have a result in out\n1 runs of at most 7 s of training" in lines


def fill(folder, chosen, count=None):
    runs_folder(folder).mkdir(parents=True, exist_ok=True)
    for run in bench.plan(chosen)[:count]:
        write_result(folder, run.key, train(Job(run), lambda told: None))


def test_status_counts_what_is_there_and_what_is_left(cmalight, tmp_path):
    chosen = spec(solvers=["adam", "tests.bench.solvers:Raises", "sgd"])
    fill(tmp_path / "out", chosen, 2)
    add_call(tmp_path / "out", DriverCall(chosen.to_plain(), [run.key for run in bench.plan(chosen)], 1))
    damaged = runs_folder(tmp_path / "out") / f"{bench.plan(chosen)[2].key}.json"
    damaged.write_text("{")
    lines = cmalight("status", "out").stdout.splitlines()
    assert lines[:4] == ["done     1", "running  0", "failed   1 (1 failed)", "left     1"]
    assert lines[4].startswith("time     ")
    assert lines[5] == "driver   none"
    assert "damaged" in lines[6]


def test_status_of_results_without_a_spec(cmalight, tmp_path):
    fill(tmp_path / "out", spec())
    assert "left     unknown" in cmalight("status", "out").stdout


def test_merge_says_what_came_of_it(cmalight, tmp_path):
    fill(tmp_path / "a", spec())
    fill(tmp_path / "b", spec(seeds=[1]))
    result = cmalight("merge", "a", "b", "--out", "c")
    assert (result.exit_code, result.stdout) == (0, "c has 2 results\n")


def test_merge_rounds_an_archive_alone(cmalight, tmp_path):
    fill(tmp_path / "a", spec())
    result = cmalight("merge", "a", "--out", "c.tar.xz", "--rounded")
    assert (result.exit_code, result.stdout) == (0, "c.tar.xz has 1 results\n")
    result = cmalight("merge", "a", "--out", "c", "--rounded")
    assert (result.exit_code, "only these are rounded" in result.stderr) == (2, True)


def test_everything_there_is_a_run_that_does_nothing(cmalight, tmp_path):
    path = toml(tmp_path / "a.toml")
    fill(tmp_path / "out", spec())
    result = cmalight("run", path, "--out", "out")
    assert (result.exit_code, result.stdout) == (0, "out: 1 of 1 runs recorded (1 done)\n")
