"""The recipes of CONTRIBUTING.md run as they stand, and give what they promise."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cmalight.bench.report.content import read_study
from torch import nn

import cmalight.optim
import cmalight.rules
from cmalight import fit
from cmalight.bench import load
from cmalight.bench.report import figures
from cmalight.compiled import steps
from cmalight.datasets import load_dataset
from tests.bench import synthetic
from tests.helpers import table
from tests.training.common import needs_compiler

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SECTIONS = dict(re.findall(r"^### Add (.*?)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
RECIPES = {name: "\n\n".join(BLOCK.findall(text)) for name, text in SECTIONS.items()}
# Those blocks of the recipe for a rule that say in which file they go.
FILES = dict(re.findall(r"`(src/[\w/]+\.py)`:\n\n```python\n(.*?)```", SECTIONS["a control rule"], re.DOTALL))


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
    ("place", "text"),
    [
        *FILES.items(),
        ("src/cmalight/bench/report/mine.py", f'"""Mine."""\n\n{RECIPES["a figure of the report"]}'),
    ],
)
def test_a_recipe_passes_the_linter_where_it_goes(place, text):
    command = [sys.executable, "-m", "ruff", "check", "--stdin-filename", ROOT / place]
    found = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stdout


@pytest.fixture
def house(tmp_path):
    """A copy of the package, and of what says how it is built, with the files of the recipe for a rule."""
    for part in ("src/cmalight", "docs/contribute"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "test_rooms.py", tmp_path / "tests")
    for place, text in FILES.items():
        assert not (tmp_path / place).exists()
        (tmp_path / place).write_text(text)
    return tmp_path


@pytest.mark.slow
def test_a_rule_goes_into_the_house_where_its_recipe_says(house):
    assert len(FILES) == len(BLOCK.findall(SECTIONS["a control rule"])) == 2
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_rooms.py"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=house)
    assert found.returncode == 0, found.stdout


@pytest.fixture
def greedy(house, monkeypatch):
    """The optimizer of the recipe, from the modules that it names."""
    for room in (cmalight.rules, cmalight.optim):
        own = house / "src" / room.__name__.replace(".", "/")
        monkeypatch.setattr(room, "__path__", [*room.__path__, str(own)])
    yield importlib.import_module("cmalight.optim.greedy").Greedy
    for name in ("cmalight.rules.greedy", "cmalight.optim.greedy"):
        del sys.modules[name]


def test_a_rule_judges_epochs(greedy):
    model = network()
    optimizer = greedy(torch.optim.SGD(model.parameters(), lr=50.0))
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
