"""What an editor and a type checker see: a user's script passes mypy --strict, and signatures show the arguments."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import cmalight

ROOT = Path(__file__).parent.parent
SCRIPT = """
import torch
from torch import Tensor, nn

from cmalight import Auto, CMALight, Controlled, FitResult, Objective, WindowReport, fit


def train(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> float:
    loss_fn = nn.MSELoss()
    objective = Objective(model, loss_fn, batches)
    auto = Auto(model, objective=objective, total_steps=len(batches), lr=1e-2)
    controlled = Controlled(torch.optim.AdamW(model.parameters(), lr=1e-3), model, total_steps=len(batches))
    for optimizer in (auto, controlled):
        for x, y in batches:
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
    seen: Tensor = torch.zeros(())
    auto.observe(seen)
    handle = auto.on_report(lambda report: print(report.outcome.name, report.loss))
    handle.remove()
    report: WindowReport | None = auto.report
    scale: float = auto.scale
    return scale if report is None else report.scale


def train_in_epochs(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> float:
    loss_fn = nn.MSELoss()
    objective = Objective(model, loss_fn, batches)
    optimizer = CMALight(model.parameters())
    with optimizer.epoch(objective) as epoch:
        for x, y in epoch.batches(batches):
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
    return objective()


def in_one_call(model: nn.Module, x: Tensor, y: Tensor) -> str:
    result: FitResult = fit(model, nn.MSELoss(), (x, y), optimizer="auto", max_epochs=3, progress=False)
    return result.status.value
"""


@pytest.mark.slow
def test_a_script_that_uses_the_optimizers_and_fit_passes_mypy_strict(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", str(tmp_path / "script.py")]  # with the cache of `make types`
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (cmalight.Auto, ["objective", "total_steps", "progress", "lr", "betas", "eps", "weight_decay"]),
        (cmalight.Controlled, ["base", "model", "objective", "total_steps", "progress", "snapshot_device"]),
        (cmalight.CMALight, ["params"]),
        (cmalight.WatchedRegressor, ["hidden_layer_sizes", "optimizer", "lr", "max_epochs"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_signature_shows_the_arguments(kind, arguments):
    shown = inspect.signature(kind).parameters
    assert [name for name in arguments if name not in shown] == []
    assert [one for one in shown.values() if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)] == []
