"""Workflows and recipes for other channels: what can be checked of them without running them there."""

import re
import sys
import tomllib
import types
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn
from torch.utils.data import TensorDataset

from tests.helpers import script

ROOT = Path(__file__).parents[2]
WORKFLOWS = {path.stem: path.read_text() for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_pins_its_actions_and_grants_nothing_by_default(name):
    workflow = yaml.safe_load(WORKFLOWS[name])
    assert workflow["permissions"] == {}
    assert all("permissions" in job for job in workflow["jobs"].values())
    used = [line for line in re.findall(r"uses: (.*)", WORKFLOWS[name]) if not line.startswith("./")]
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)] == []
    steps = [step for job in workflow["jobs"].values() for step in job.get("steps", ())]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_a_tag_publishes_after_the_tests_and_without_a_secret():
    jobs = yaml.safe_load(WORKFLOWS["release"])["jobs"]
    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"
    assert jobs["publish"]["needs"] == "ci"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in WORKFLOWS["release"]
    ci = yaml.safe_load(WORKFLOWS["ci"])["jobs"]
    assert [step["run"] for step in ci["test"]["steps"] if "run" in step] == ["make demo", "make test"]
    assert ci["wheel"]["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]


def test_the_conda_recipe_asks_for_what_the_package_asks_for():
    recipe = yaml.safe_load((ROOT / "packaging" / "conda-forge" / "recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f">={recipe['context']['python_min']}" == project["requires-python"]
    assert recipe["requirements"]["run"][1:] == [f"py{line.replace('>=', ' >=')}" for line in project["dependencies"]]
    commands = [f"{name} = {target}" for name, target in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands


@pytest.mark.filterwarnings("ignore:Auto has no schedule")
def test_the_benchopt_solver_trains(monkeypatch):
    """Over a stand-in for benchopt's base class."""
    monkeypatch.setitem(sys.modules, "benchopt", types.SimpleNamespace(BaseSolver=object))
    solver = script("packaging/benchopt/cmalight.py").Solver()
    for name, values in solver.parameters.items():
        setattr(solver, name, values[0])
    torch.manual_seed(0)
    x = torch.randn(300, 4)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    solver.set_objective(model, TensorDataset(x, y))
    losses = []

    def callback():
        losses.append(nn.functional.cross_entropy(model(x), y).item())
        return len(losses) < 20

    solver.run(callback)
    assert solver.get_result() == {"model": model}
    assert losses[-1] < losses[0] / 2
