"""The process that others are forked from: what it saves, where it must not be used, and what its end costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cmalight import bench
from cmalight.bench.running import child, nursery, supervise
from tests.bench.common import ENVIRONMENT, spec
from tests.helpers import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
MODULE = "tests.bench.solvers"


@pytest.fixture
def children():
    """Processes that train, until the test is over."""
    started = []

    def start():
        started.append(supervise.Child(1))
        return started[-1]

    supervise.allow_children()
    yield start
    for one in started:
        one.kill()
    nursery.close()


def number(one):
    return wait_for(lambda: one._process.pid)


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def command(pid):
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


@pytest.mark.slow
def test_all_processes_are_forked_from_one_that_has_no_thread_beside_its_first(children):
    first, second = number(children()), number(children())
    assert first != second
    assert parent(first) == parent(second)
    assert parent(parent(first)) == os.getpid()
    assert command(first)[1] == command(parent(first))[1] == nursery.__file__
    assert len(os.listdir(f"/proc/{parent(first)}/task")) == 1
    assert {os.getpgid(one) for one in (first, second)} == {first, second}  # each can be killed with what it started


@pytest.mark.slow
def test_where_an_import_starts_a_thread_every_process_is_a_fresh_interpreter(children, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pid = number(children())
    wait_for(lambda: child.__file__ in command(pid))


@pytest.mark.slow
def test_an_import_that_fails_is_told_by_the_process_that_could_not_start(tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('this torch is broken')")
    monkeypatch.syspath_prepend(tmp_path)
    summary = bench.run(spec(), tmp_path / "out", workers=1)
    assert "ended before the run began (exit code 1: ImportError: this torch is broken)" in str(summary.left_out)


@pytest.mark.slow
def test_a_nursery_that_is_killed_costs_no_run(tmp_path):
    """Those under way go on, and the next are forked from another."""
    chosen = spec(solvers=[f"{MODULE}:KillsItsNursery", f"{MODULE}:Prints", "adam"])
    assert bench.run(chosen, tmp_path, workers=1).recorded == {"done": 3}
    assert set(bench.load(tmp_path).runs["attempts"]) == {1}


def test_the_command_starts_it_before_it_imports_torch(tmp_path):
    code = (
        "import sys\nfrom cmalight.bench.running import nursery\nfrom cmalight.cli import command\n"
        "nursery.prepare = lambda threads: print(threads, 'torch' in sys.modules)\n"
        f"command(['bench', 'run', 'no such preset', '--out', {str(tmp_path)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (2, "1 False\n")
