"""Lightning's DDP and Accelerate's launcher with two real processes each, against one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.integrations.lightning_modules import BOLD, QUIETLY, Regression, batches, fitted, flat
from tests.optim.steady import line

pytest.importorskip("cmalight.parallel.ranks")
ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.slow, *QUIETLY]


def run(*command, folder):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("early", ["early", "late"])
def test_lightning_ddp_with_half_the_batch_is_one_process_with_the_whole(early, tmp_path):
    run(ROOT / "tests" / "integrations" / "lightning_on_two_processes.py", tmp_path, early, folder=tmp_path)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
    alone = Regression(BOLD, early_rejection=early == "early")
    reports = fitted(alone, data=batches(16, samples=96), max_epochs=20).reports
    assert torch.equal(ranks[0]["weights"], ranks[1]["weights"])
    torch.testing.assert_close(ranks[0]["weights"], flat(alone), rtol=1e-10, atol=1e-10)
    assert ranks[0]["lr"] == reports[-1].next_lr
    if early == "late":  # an early rejection is noticed after another batch
        assert ranks[0]["reports"] == [str(r) for r in reports]
    assert any("epoch undone" in report for report in ranks[0]["reports"])
    assert any("line search found" in report for report in ranks[0]["reports"])


def test_batches_that_the_trainer_leaves_out_are_not_waited_for(tmp_path):
    run(ROOT / "tests" / "integrations" / "lightning_on_two_processes.py", tmp_path, "limited", folder=tmp_path)
    for rank in range(2):
        rates = torch.load(tmp_path / f"rank{rank}.pt", weights_only=True)["rates"]
        assert rates == pytest.approx(line(12, begins=6))


def test_the_accelerate_example_runs_on_two_processes(tmp_path):
    script = ROOT / "examples" / "accelerate_loop.py"
    options = "--cpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0"
    printed = run("-m", "accelerate.commands.launch", *options.split(), script, folder=tmp_path)
    losses = [float(line.split()[2]) for line in printed.splitlines() if "to beat" in line]
    assert len(losses) == 10
    assert losses[-1] < 0.1 < losses[0]
