"""Workflows and recipes for other channels: what can be checked of them without running them there."""

import importlib.util
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

import cmalight

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PACKAGING = ROOT / "packaging"


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job.get("steps", ())]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_pins_its_actions_and_grants_nothing_by_default(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    used = re.findall(r"uses: (\S+)(.*)", path.read_text())
    outside = [(action, version) for action, version in used if not action.startswith("./")]
    assert outside
    for action, version in outside:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", version), version
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    for job in workflow["jobs"].values():
        assert "permissions" in job


def test_a_tag_publishes_after_the_tests_and_without_a_secret():
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"
    assert jobs["publish"]["needs"] == "ci"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in text
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert [step["run"] for step in ci["test"]["steps"] if "run" in step] == ["make demo", "make test"]
    assert ci["wheel"]["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]


def test_the_conda_recipe_asks_for_what_the_package_asks_for():
    recipe = yaml.safe_load((PACKAGING / "conda-forge" / "recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert recipe["context"]["version"] == cmalight.__version__
    assert f">={recipe['context']['python_min']}" == project["requires-python"]
    torches = [line for line in project["dependencies"] if line.startswith("torch>=")]
    assert recipe["requirements"]["run"][1:] == [f"pytorch {line.removeprefix('torch')}" for line in torches]
    commands = [f"{name} = {target}" for name, target in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands


@pytest.fixture
def solver(monkeypatch):
    """Benchopt's solver over a stand-in for benchopt's base class."""
    benchopt = types.ModuleType("benchopt")
    benchopt.BaseSolver = object
    monkeypatch.setitem(sys.modules, "benchopt", benchopt)
    spec = importlib.util.spec_from_file_location("benchopt_solver", PACKAGING / "benchopt" / "cmalight.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Solver()


@pytest.mark.filterwarnings("ignore:Auto has no schedule")
def test_the_benchopt_solver_trains(solver):
    torch.manual_seed(0)
    x = torch.randn(300, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    for name, values in solver.parameters.items():
        setattr(solver, name, values[0])
    solver.set_objective(model, TensorDataset(x, (x[:, 0] > 0).long()))
    losses = []

    def callback():
        with torch.no_grad():
            losses.append(nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).item())
        return len(losses) < 20

    solver.run(callback)
    assert solver.get_result() == {"model": model}
    assert losses[-1] < losses[0] / 2
