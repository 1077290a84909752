"""docs/guides/testbed.md says what is there, and its examples run."""

import re
import shlex

import pytest
from click.testing import CliRunner

from cmalight.bench import PRESETS, Spec, load
from cmalight.bench.running.one_run import STATUSES
from cmalight.bench.spec.solvers import SOLVERS
from cmalight.cli import command
from tests.bench.common import ROOT

PAGE = (ROOT / "docs" / "guides" / "testbed.md").read_text().replace(" \\\n    ", " ")  # a command on two lines


SPEC = (ROOT / "docs" / "reference" / "spec.md").read_text()
FRAMES = (ROOT / "docs" / "reference" / "results.md").read_text()


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_every_key_preset_solver_and_status_is_described():
    names = [*Spec.__dataclass_fields__, *PRESETS, *SOLVERS, *STATUSES]
    missing = [name for name in names if f"`{name}`" not in PAGE + SPEC and name != "name"]
    assert missing == []


@pytest.mark.slow
def test_the_examples_run_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (spec,) = blocks("toml")
    assert len([line for line in spec.splitlines() if line.strip()]) <= 20
    (tmp_path / "mine.toml").write_text(spec)
    (console,) = blocks("console")
    for example in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        line, output = example.split("\n", 1)
        result = CliRunner().invoke(command, shlex.split(line)[1:], prog_name="cmalight")
        assert (result.stdout, result.stderr, result.exit_code) == (output, "", 0), line


@pytest.mark.slow
def test_the_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(blocks("python")[-1], names)
    assert names["summary"].recorded == {"done": 2}
    results = load("results")
    assert set(results.runs["solver"]) == {"adam", "sgd"}
    columns = [*results.runs, *results.epochs]
    assert [name for name in columns if f"`{name}`" not in FRAMES and not name.startswith("version_")] == []
    exec(re.search(r"```python\n(.*?)```", FRAMES, re.DOTALL)[1], {})
