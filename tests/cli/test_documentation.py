"""The examples of docs/guides/tables.md run, and say what the page says but for the numbers."""

import random
import re
import shlex
from pathlib import Path

import pytest

PAGE = (
    (Path(__file__).parents[2] / "docs" / "guides" / "tables.md").read_text().replace(" \\\n    ", " ")
)  # a command on two lines


@pytest.fixture
def files(tmp_path):
    random.seed(0)
    rows = ["age,city,size,price"]
    for _ in range(400):
        age, city, size = random.randint(1, 80), random.choice(["Rome", "Oslo", "Lima"]), random.uniform(20, 200)
        rows.append(f"{age},{city},{size:.1f},{size * (1500 if city == 'Oslo' else 900) * (1 - age / 160):.0f}")
    (tmp_path / "houses.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "new.csv").write_text("city,size,age\nOslo,120,10\nLima,55,3\n")


def examples():
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            yield example.split("\n", 1)


def without_numbers(text):
    lines = [line for line in text.splitlines() if not line.startswith(("epoch ", "stopped: "))]  # the progress
    return [re.sub(r"-?\d+\.?\d*(e[+-]\d+)?| +", " ", line).split() for line in lines]


def test_every_example_runs_as_shown(cmalight, files):
    shown = list(examples())
    assert len(shown) >= 4
    for line, output in shown:
        result = cmalight(*shlex.split(line)[1:])
        assert without_numbers(result.stdout + result.stderr) == without_numbers(output), line


def test_the_python_example_runs(cmalight, files):
    names = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1), names)
    assert names["result"].scores.table.loc["network", "r2"] > 0.9
    assert (cmalight.folder / "houses.model").exists()
