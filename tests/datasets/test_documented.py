"""What docs/guides/datasets.md shows works as it is written there; and what is missing says what to install."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cmalight.datasets import dataset_info, known

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "datasets.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_python_shown_runs(code):
    names = {}
    exec(code, names)
    assert "data" not in names or names["data"].x_train.max() == 1


def test_the_table_has_every_set_of_the_paper_with_its_numbers():
    rows = re.findall(r"^\| `([\w-]+)` \| (\d+) \| (\d+) \| (\d+) \|", PAGE, re.MULTILINE)
    papers = [dataset_info(name) for name in known()[:11]]
    assert rows == [(entry.name, str(entry.rows), str(entry.training_rows), str(entry.d)) for entry in papers]


def test_a_missing_library_names_the_extra():
    code = """
import sys
for module in ("pandas", "pooch", "sklearn.datasets"):
    for name in [one for one in sys.modules if one.startswith("cmalight.datasets")]:
        del sys.modules[name]
    sys.modules[module] = None
    try:
        from cmalight.datasets import load_dataset
        load_dataset("wine")
    except ImportError as missing:
        print(missing)
    del sys.modules[module]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert [line.endswith('pip install "cmalight[data]"') for line in done.stdout.splitlines()] == [True] * 3
