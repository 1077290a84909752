"""The recipes of CONTRIBUTING.md run as they stand, and give what they promise."""

import re
from pathlib import Path

import pytest
from torch import nn

from cmalight import fit
from cmalight.bench import load
from cmalight.datasets import load_dataset
from tests.helpers import network, table

PAGE = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
SECTIONS = dict(re.findall(r"^### Add (.*?)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))
RECIPES = {name: "\n\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)) for name, text in SECTIONS.items()}


def cooked(recipe):
    """What a recipe defines."""
    names = {"__name__": "recipe"}
    exec(RECIPES[recipe], names)
    return names


def test_a_rule_judges_epochs():
    optimizer = cooked("a rule")["Greedy"]((model := network()).parameters(), lr=50.0)
    result = fit(model, nn.MSELoss(), table(60), optimizer=optimizer, batch_size=10, max_epochs=25, progress=False)
    assert {record.outcome for record in result.history} == {"accepted", "unconfirmed"}
    losses = [record.phi for record in result.history]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.slow
def test_a_solver_is_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cooked("a solver")
    runs = load("results").runs
    assert set(runs["solver"]) == {"adam", "slow_adam"}
    assert set(runs["status"]) == {"done"}


def test_a_data_set_is_found_by_its_name():
    data = cooked("a data set")["data"]
    assert len(load_dataset("sine").y_train) == len(data.y_train) == 750
