"""The digest of the code that trains changes with the code, and with nothing else."""

import shutil
from pathlib import Path

import pytest

import cmalight
from cmalight.bench import code

SOURCE = 'import helper\n\ndef make(params, lr=0.1):\n    """A solver."""\n    return helper.solver(params, lr)\n'


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "helper.py").write_text("import torch\nsolver = torch.optim.SGD\n")
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path / "mine.py"


def digest(path):
    return code.code_digest(f"{path}:make")


@pytest.mark.parametrize(
    ("old", "new"), [('"""A solver."""', '"""Another text."""'), ("import helper\n", "import helper  # why\n\n\n")]
)
def test_comments_docstrings_and_layout_change_nothing(mine, old, new):
    before = digest(mine)
    mine.write_text(SOURCE.replace(old, new))
    assert digest(mine) == before


def test_a_changed_number_changes_it_and_taking_it_back_too(mine):
    before = digest(mine)
    mine.write_text(SOURCE.replace("0.1", "0.2"))
    assert digest(mine) != before
    mine.write_text(SOURCE)
    assert digest(mine) == before


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("import helper", "helper.py"),
        ("from package import part", "package/part.py"),
        ("from package.part import solver", "package/part.py"),
        ("import package.part", "package/base.py"),  # that part.py imports
    ],
)
def test_modules_beside_an_own_file_count(mine, line, file):
    package = mine.with_name("package")
    package.mkdir()
    (package / "part.py").write_text("from package import base\nfrom . import base\n")
    (package / "base.py").write_text("import torch\n")
    mine.write_text(SOURCE.replace("import helper", line))
    before = digest(mine)
    (mine.parent / file).write_text("another = 1\n")
    assert digest(mine) != before


def test_changed_own_code_is_imported_anew(mine):
    mine.write_text("def make():\n    return 1\n")
    assert code.imported(f"{mine}:make")() == 1
    mine.write_text("def make():\n    return 2\n")
    assert code.imported(f"{mine}:make")() == 2


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package whose files may be changed."""
    copy = tmp_path / "cmalight"
    shutil.copytree(Path(cmalight.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "_PACKAGE", copy)
    return copy


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("rules/paper.py", True),
        ("evaluation/objective.py", True),
        ("optim/cmalight.py", True),
        ("training/fitting.py", True),
        ("models/layered.py", True),
        ("datasets/loading.py", True),
        ("bench/training.py", True),
        ("bench/workloads.py", True),
        ("bench/store.py", False),
        ("cli/bench.py", False),
    ],
)
def test_the_packages_own_code_counts_where_it_trains(package, file, counts):
    compute = code.package_digest.__wrapped__
    before = compute()
    path = package / file
    path.write_text(f"# a comment\n{path.read_text()}")
    assert compute() == before
    path.write_text(f"{path.read_text()}\nanother = 1\n")
    assert (compute() != before) is counts
