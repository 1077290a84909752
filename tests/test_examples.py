"""Every script of examples/, run as a user runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

UNDER_TORCHRUN = {"ddp", "fsdp2"}  # they need its ranks: tests/parallel/test_torchrun.py starts them
EXAMPLES = [
    script
    for script in sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
    if script.stem not in UNDER_TORCHRUN
]


def run(script, folder):
    """What it prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_an_example_runs_and_says_what_it_did(script, tmp_path):
    printed = run(script, tmp_path)
    assert len(printed.splitlines()) > 1
    check = CHECKS.get(script.stem)
    if check is not None:
        check(printed, tmp_path)


def amp_resnet(printed, _folder):
    assert float(re.search(r"final loss ([\d.]+)", printed)[1]) < 0.7


def raw_loop(printed, folder):
    losses = [float(loss) for loss in re.findall(r"final loss ([\d.]+)", printed)]
    assert len(losses) == 2
    assert max(losses) < 0.1
    assert printed.count("window of") == 20
    assert {path.name for path in folder.glob("*.pt")} == {"auto.pt", "controlled.pt"}


def fit_table(printed, folder):
    assert "best validation in epoch" in printed
    assert (folder / "fit_table.pt").exists()


def sklearn_estimators(printed, _folder):
    assert float(re.search(r"digits: ([\d.]+)", printed)[1]) > 0.9
    assert float(re.search(r"diabetes: R² ([\d.]+)", printed)[1]) > 0.3


def accelerate_loop(printed, _folder):
    assert float(re.search(r"final loss ([\d.]+)", printed)[1]) < 0.05


def lightning_module(printed, folder):
    assert len(re.findall(r"^epoch +\d+ +window of", printed, re.MULTILINE)) == 10
    assert len(list((folder / "lightning_checkpoints").glob("*.ckpt"))) == 1


def hf_trainer(printed, folder):
    assert float(re.search(r"final loss ([\d.]+)", printed)[1]) < 0.1
    assert (folder / "hf_trainer").is_dir()


CHECKS = {
    "accelerate_loop": accelerate_loop,
    "hf_trainer": hf_trainer,
    "lightning_module": lightning_module,
    "amp_resnet": amp_resnet,
    "fit_table": fit_table,
    "raw_loop": raw_loop,
    "sklearn_estimators": sklearn_estimators,
}
