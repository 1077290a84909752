"""The command as a process: exit codes, signals, full disks, what is imported."""

import json
import os
import resource
import signal
import subprocess
import sys

import pytest

import cmalight as package


def start(*arguments, **options):
    """`cmalight ...`, whose progress is one line per epoch on stderr."""
    command = [sys.executable, "-m", "cmalight", *map(str, arguments)]
    environment = {**os.environ, "CI": "1", "OMP_NUM_THREADS": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    return subprocess.Popen(command, **{**streams, **options})


def run(*arguments, **options):
    with start(*arguments, **options) as process:
        stdout, stderr = process.communicate(timeout=600)
    return process.returncode, stdout, stderr


def interrupt_in_epoch(number, *arguments, **options):
    """Ctrl-C once so many epochs are over; gives the exit code and stderr.

    A small pipe, so that the run cannot get far ahead of a reader that is slow: hardly more than a hundred epochs.
    """
    with start(*arguments, pipesize=4096, **options) as process:
        for line in process.stderr:
            if line.startswith(f"epoch {number} "):
                break
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    return process.returncode, stderr


def test_the_version():
    assert run("--version") == (0, f"cmalight {package.__version__}\n", "")


def test_an_error_is_one_line_and_exit_2(tmp_path):
    code, stdout, stderr = run("train", "nowhere.csv", "--target", "y", cwd=tmp_path)
    assert (code, stdout) == (2, "")
    assert stderr == "cmalight: error: there is no file nowhere.csv; check the name and the directory\n"


def test_without_the_extra_the_command_says_what_to_install():
    code = "import sys; sys.modules['click'] = None; from cmalight.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert 'pip install "cmalight[cli]"' in done.stderr


@pytest.mark.parametrize("verb", [[], ["train"], ["predict"], ["datasets"]])
def test_help_imports_nothing_heavy(verb):
    code = f"""
import sys
from cmalight.cli import command
try:
    command({[*verb, "--help"]!r}, prog_name="cmalight")
except SystemExit as end:
    assert end.code == 0
print(*{{"torch", "numpy", "pandas", "pyarrow", "matplotlib", "rich"}} & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert "Usage: cmalight" in done.stdout
    assert done.stderr.strip() == ""


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished_and_exits_130(houses, tmp_path):
    arguments = [
        "train",
        houses,
        "--target",
        "price",
        "--time-limit",
        600,
        "--save",
        "model.pt",
        "--history",
        "h.jsonl",
    ]
    code, stderr = interrupt_in_epoch(3, *arguments, cwd=tmp_path)
    assert code == 130
    assert "Traceback" not in stderr
    records = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == list(range(len(records)))
    assert len(records) >= 3
    code, stdout, stderr = run("predict", "model.pt", houses, cwd=tmp_path)
    assert (code, stdout.count("\n")) == (0, 81)
    assert "r2" in stderr  # the target is in the file, so that there are scores
    assert {path.name for path in tmp_path.iterdir()} == {"houses.csv", "model.pt", "h.jsonl"}


@pytest.mark.slow
def test_after_ctrl_c_the_same_command_goes_on_as_if_nothing_had_been(houses, tmp_path):
    arguments = ["train", houses, "--target", "price", "--batch-size", 4, "--max-epochs", 300]
    again = [*arguments, "--checkpoint", "run.ck", "--save", "resumed.pt"]
    assert interrupt_in_epoch(5, *again, cwd=tmp_path)[0] == 130
    code, stdout, _ = run(*again, cwd=tmp_path)
    assert code == 0
    assert "training: 300 epochs" in stdout
    assert run(*arguments, "--save", "straight.pt", cwd=tmp_path)[0] == 0
    predictions = [run("predict", name, houses, cwd=tmp_path)[1] for name in ("resumed.pt", "straight.pt")]
    assert predictions[0] == predictions[1] != ""


@pytest.mark.slow
def test_being_killed_leaves_no_half_written_file(houses, tmp_path):
    process = start("train", houses, "--target", "price", "--time-limit", 600, "--save", "model.pt", cwd=tmp_path)
    with process:
        next(line for line in process.stderr if line.startswith("epoch 1 "))
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert {path.name for path in tmp_path.iterdir()} == {"houses.csv"}


def small_files_only():
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--save", "--plot"])
def test_a_disk_that_takes_no_more_is_one_line_and_leaves_nothing(houses, tmp_path, option):
    arguments = ["train", houses, "--target", "price", "--max-epochs", 1, "--quiet", option, "out.png"]
    code, _, stderr = run(*arguments, cwd=tmp_path, preexec_fn=small_files_only)
    assert code == 2
    # After one epoch the model is no better than a guess, which is a warning of its own.
    (error,) = [line for line in stderr.splitlines() if not line.startswith("cmalight: warning: ")]
    assert error.startswith("cmalight: error: out.png: ")
    assert {path.name for path in tmp_path.iterdir()} == {"houses.csv"}


@pytest.mark.slow
def test_a_full_disk_behind_stdout_is_one_line(houses, tmp_path):
    assert run("train", houses, "--target", "price", "--max-epochs", 1, "--save", "model.pt", cwd=tmp_path)[0] == 0
    with open("/dev/full", "w") as full:
        code, _, stderr = run("predict", "model.pt", houses, cwd=tmp_path, stdout=full)
    assert code == 2
    assert stderr.count("\n") == 1
    assert "No space left on device" in stderr


def test_a_second_ctrl_c_writes_nothing_and_exits_130(cmalight, houses, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("cmalight.tabular.train_and_predict.fit", interrupted)
    before = cmalight.files()
    result = cmalight("train", houses, "--target", "price", "--save", "model.pt")
    assert (result.exit_code, result.stderr.lstrip()) == (130, "cmalight: interrupted\n")
    assert cmalight.files() == before


def test_a_message_of_several_lines_is_made_one(cmalight, houses, monkeypatch):
    def failed(*_, **__):
        raise RuntimeError("something\n  is wrong")

    monkeypatch.setattr("cmalight.tabular.train_and_predict.fit", failed)
    assert "something is wrong" in cmalight.refused("train", houses, "--target", "price")


def test_an_error_of_ours_is_not_passed_off_as_the_users(cmalight, houses, monkeypatch):
    def broken(*_, **__):
        raise TypeError("a mistake in the program")

    monkeypatch.setattr("cmalight.tabular.train_and_predict.fit", broken)
    result = cmalight("train", houses, "--target", "price")
    assert isinstance(result.exception, TypeError)


def test_where_an_error_came_from_can_be_asked_for(cmalight, monkeypatch):
    monkeypatch.setenv("CMALIGHT_TRACEBACK", "1")
    assert isinstance(cmalight("train", "nowhere.csv").exception, FileNotFoundError)
