"""The examples under torchrun, and a run that survives the death of its processes."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
SECONDS = 600  # for what hangs, not for slow machines


def torchrun(script, *arguments, folder, restarts=0):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", str(restarts), str(ROOT / "examples" / script), *map(str, arguments)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONUNBUFFERED": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # without it restarted ranks find the addresses of the dead ones
    }
    # A small pipe that is read byte by byte: the run cannot get more than some forty epochs ahead of a slow reader.
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "bufsize": 0, "pipesize": 4096}
    return subprocess.Popen(command, cwd=folder, env=environment, **streams)


def output_of(process):
    try:
        return process.communicate(timeout=SECONDS)[0].decode()
    finally:
        stop(process)


def stop(process):
    """torchrun takes its ranks with it when it is asked to end, but not when it is killed."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()


def workers(process):
    """The ranks, in their order."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def kill_worker_after(process, rank, epoch):
    """Waits for rank 0 to report that epoch."""
    deadline = threading.Timer(SECONDS, stop, (process,))
    deadline.start()
    try:
        for line in process.stdout:
            if line.startswith(f"epoch {epoch} ".encode()):
                os.kill(workers(process)[rank], signal.SIGKILL)
                return
    finally:
        deadline.cancel()
    raise AssertionError(f"the run was over before epoch {epoch}")


def same(left, right):
    """Two states, the tensors in them bit for bit."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the ranks in /proc")
def test_killed_ranks_go_on_from_the_checkpoint_as_if_never_killed(tmp_path):
    arguments = ("--epochs", 120, "--checkpoint")
    broken = torchrun("ddp.py", *arguments, tmp_path / "broken.pt", folder=tmp_path, restarts=4)
    try:
        kill_worker_after(broken, 1, 4)
        kill_worker_after(broken, 0, 60)
    except BaseException:
        stop(broken)
        raise
    rest = output_of(broken)
    assert broken.returncode == 0, rest
    assert "epoch 4 " not in rest  # what was done was not done again
    whole = torchrun("ddp.py", *arguments, tmp_path / "whole.pt", folder=tmp_path)
    expected = output_of(whole)
    assert whole.returncode == 0, expected
    assert rest.splitlines()[-1] == expected.splitlines()[-1]
    left, right = (torch.load(tmp_path / name, weights_only=True) for name in ("broken.pt", "whole.pt"))
    assert same(left["optimizer"], right["optimizer"])
    assert left["epochs"] == right["epochs"] == 120
    for name, value in right["model"].items():
        assert torch.equal(left["model"][name], value)


@pytest.mark.slow
@pytest.mark.parametrize("script", ["ddp.py", "fsdp2.py"])
def test_the_example_runs_on_two_ranks(script, tmp_path):
    process = torchrun(script, folder=tmp_path)
    output = output_of(process)
    assert process.returncode == 0, output
    assert "steps kept: loss" in output
    assert float(re.search(r"final loss ([\d.]+)", output).group(1)) < 0.01
    assert any(tmp_path.iterdir())  # its checkpoint
