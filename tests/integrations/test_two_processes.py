"""Lightning's DDP and Accelerate's launcher with two real processes each."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.slow

LIGHTNING = """
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from cmalight import Controlled, Objective

class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net, self.loss = nn.Linear(4, 1), nn.MSELoss()

    def training_step(self, batch):
        return self.loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        steps = self.trainer.estimated_stepping_batches
        objective = Objective(self.net, self.loss, self.trainer.train_dataloader)
        return Controlled(torch.optim.Adam(self.parameters(), lr=0.05), self, objective=objective, total_steps=steps)

x = torch.randn(512, 4, generator=torch.Generator().manual_seed(0))
trainer = Trainer(
    devices=2, strategy=DDPStrategy(process_group_backend="gloo"), accelerator="cpu", max_epochs=4, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
module = Regression()
trainer.fit(module, DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8))
optimizer = trainer.optimizers[0]
with open(f"rank{trainer.global_rank}", "w") as file:
    file.write(f"{optimizer.steps} {optimizer.report} {module.net.weight.tolist()}")
"""


def run(*command, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lightnings_ddp_decides_alike_on_both_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(LIGHTNING)
    run(script, folder=tmp_path)
    first, second = ((tmp_path / f"rank{rank}").read_text() for rank in range(2))
    assert first == second
    assert first.startswith("128 window")


def test_the_accelerate_example_runs_on_two_processes(tmp_path):
    script = ROOT / "examples" / "accelerate_loop.py"
    options = "--cpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0"
    printed = run("-m", "accelerate.commands.launch", *options.split(), script, folder=tmp_path)
    assert len(re.findall(r"^epoch \d", printed, re.MULTILINE)) == 10
    assert float(re.search(r"final loss ([\d.]+)", printed).group(1)) < 0.05
