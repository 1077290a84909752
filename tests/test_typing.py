"""What a type checker sees: a user's script passes mypy --strict."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import torch
from torch import Tensor, nn

from cmalight import Auto, CMALight, Controlled, FitResult, Objective, WindowReport, fit


def train(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> float:
    loss_fn = nn.MSELoss()
    objective = Objective(model, loss_fn, batches)
    auto = Auto(model, objective=objective, total_steps=len(batches), lr=1e-2)
    base = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for optimizer in (auto, Controlled(base, model, total_steps=len(batches))):
        for x, y in batches:
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
    seen: Tensor = torch.zeros(())
    auto.observe(seen)
    auto.on_report(lambda report: print(report.outcome.name, report.loss)).remove()
    report: WindowReport | None = auto.report
    scale: float = auto.scale
    epochs = CMALight(model.parameters())
    with epochs.epoch(objective) as epoch:
        for x, y in epoch.batches(batches):
            epochs.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            epochs.step()
    result: FitResult = fit(model, loss_fn, batches, optimizer="auto", max_epochs=3, progress=False)
    print(result.status.value)
    return scale if report is None else report.scale
"""


@pytest.mark.slow
def test_a_script_that_uses_the_optimizers_and_fit_passes_mypy_strict(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", str(tmp_path / "script.py")]  # with the cache of `make types`
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
