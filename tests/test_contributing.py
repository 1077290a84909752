"""The recipes of CONTRIBUTING.md run as they stand, and give what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from cmalight import fit
from cmalight.bench import load
from cmalight.bench.report import figures
from cmalight.bench.report.content import read_study
from cmalight.compiled import steps
from cmalight.datasets import load_dataset
from tests.bench import synthetic
from tests.helpers import table
from tests.training.common import needs_compiler

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = dict(re.findall(r"^### Add (.*?)\n.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))


def cooked(recipe):
    """What a recipe defines."""
    names = {"__name__": "recipe"}
    exec(RECIPES[recipe], names)
    return names


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 1)).double()


def test_there_are_five():
    assert list(RECIPES) == ["a control rule", "a solver", "a data set", "a compiled step", "a figure of the report"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_at_most_twenty_lines_long(recipe):
    assert len([line for line in RECIPES[recipe].splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize(
    ("recipe", "place"),
    [("a control rule", "rules/mine.py"), ("a figure of the report", "bench/report/mine.py")],
)
def test_a_recipe_passes_the_linter_where_it_goes(recipe, place):
    command = [sys.executable, "-m", "ruff", "check", "--stdin-filename", ROOT / "src" / "cmalight" / place]
    found = subprocess.run(command, input=f'"""Mine."""\n\n{RECIPES[recipe]}', capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stdout


def test_a_rule_judges_epochs():
    model = network()
    optimizer = cooked("a control rule")["Monotone"](model.parameters(), lr=50.0)
    result = fit(model, nn.MSELoss(), table(60), optimizer=optimizer, batch_size=10, max_epochs=25, progress=False)
    assert {record.outcome for record in result.history} == {"kept", "refused"}
    losses = [record.phi for record in result.history]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.slow
def test_a_solver_is_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cooked("a solver")
    runs = load("results").runs
    assert set(runs["solver"]) == {"adam", "my_solvers:slow_adam"}
    assert set(runs["status"]) == {"done"}


def test_a_data_set_is_found_by_its_name():
    data = cooked("a data set")["data"]
    assert len(load_dataset("sine").y_train) == len(data.y_train) == 750


@pytest.fixture
def sign_sgd():
    kind = cooked("a compiled step")["SignSGD"]
    yield kind
    del steps._MAKERS[kind]


@needs_compiler
@pytest.mark.slow
def test_a_compiled_step_is_the_eager_one(sign_sgd):
    losses = []
    for engine in ("eager", "compiled"):
        model = network()
        optimizer = sign_sgd(model.parameters(), lr=0.01)
        result = fit(
            model,
            nn.MSELoss(),
            table(60),
            optimizer=optimizer,
            batch_size=10,
            max_epochs=3,
            engine=engine,
            progress=False,
        )
        losses.append([record.f_tilde for record in result.history])
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)


@pytest.fixture
def added():
    yield
    figures._ADDED.clear()


@pytest.mark.usefixtures("added")
def test_a_figure_is_in_the_report(tmp_path):
    cooked("a figure of the report")
    runs = [synthetic.run(solver, [0.5, 0.2]) for solver in ("adam", "sgd")]
    study = read_study(synthetic.write(tmp_path / "results", runs))
    drawn = dict(figures.planned_figures(study))["final-losses"]()
    assert [text.get_text() for text in drawn.axes[0].get_yticklabels()] == ["adam", "sgd"]


@pytest.mark.usefixtures("added")
def test_a_figures_name_is_that_of_a_file():
    with pytest.raises(ValueError, match=r"Invalid figure name: '\.\./x y'.*'x-y'"):
        figures.add_figure("../x y", lambda _: None)
