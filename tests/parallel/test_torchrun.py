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


EPOCHS = 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the DDP example prints in a run that nobody disturbs, and its checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    process = torchrun("ddp.py", "--epochs", EPOCHS, "--checkpoint", folder / "whole.pt", folder=folder)
    output = output_of(process)
    assert process.returncode == 0, output
    return output, torch.load(folder / "whole.pt", weights_only=True)


def assert_trained(output):
    assert "steps kept: loss" in output
    assert float(re.search(r"final loss ([\d.]+)", output).group(1)) < 0.01


@pytest.mark.slow
def test_the_example_with_copies_runs_on_two_ranks(whole):
    assert_trained(whole[0])


@pytest.mark.slow
def test_the_example_with_shards_runs_on_two_ranks(tmp_path):
    process = torchrun("fsdp2.py", folder=tmp_path)
    output = output_of(process)
    assert process.returncode == 0, output
    assert_trained(output)
    assert any(tmp_path.iterdir())  # its checkpoint


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the ranks in /proc")
def test_a_killed_rank_goes_on_from_the_checkpoint_as_if_never_killed(whole, tmp_path):
    path = tmp_path / "broken.pt"
    broken = torchrun("ddp.py", "--epochs", EPOCHS, "--checkpoint", path, folder=tmp_path, restarts=4)
    try:
        kill_worker_after(broken, 0, 4)
    except BaseException:
        stop(broken)
        raise
    rest = output_of(broken)
    assert broken.returncode == 0, rest
    assert "epoch 4 " not in rest  # what was done was not done again
    assert rest.splitlines()[-1] == whole[0].splitlines()[-1]
    assert same(torch.load(path, weights_only=True), whole[1])
