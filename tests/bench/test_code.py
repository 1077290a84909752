"""The digest of the code of a run changes with the code that takes part in it, and with nothing else."""

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


def test_numbers_count_and_comments_docstrings_and_layout_do_not(mine):
    before = digest(mine)
    mine.write_text(SOURCE.replace("0.1", "0.2"))
    assert digest(mine) != before
    mine.write_text(SOURCE.replace("A solver.", "Another text.").replace("helper\n", "helper  # why\n\n\n"))
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
def test_modules_beside_a_users_file_count(mine, line, file):
    package = mine.with_name("package")
    package.mkdir()
    (package / "part.py").write_text("from package import base\nfrom . import base\n")
    (package / "base.py").write_text("import torch\n")
    mine.write_text(SOURCE.replace("import helper", line))
    before = digest(mine)
    (mine.parent / file).write_text("another = 1\n")
    assert digest(mine) != before


def test_changed_code_of_the_user_is_imported_anew(mine):
    mine.write_text("def make():\n    return 1\n")
    assert code.imported(f"{mine}:make")() == 1
    mine.write_text("def make():\n    return 2\n")
    assert code.imported(f"{mine}:make")() == 2


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package whose files may be changed."""
    copy = tmp_path / "copy" / "cmalight"
    shutil.copytree(Path(cmalight.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "_PACKAGE", copy)
    forget()
    yield copy
    forget()


def forget():
    code._package_digest.cache_clear()
    code._methods_of.cache_clear()


@pytest.mark.parametrize(
    ("solver", "taking_part", "others"),
    [
        ("adam", ["evaluation/objective.py", "bench/training.py", "compiled/kernel.cpp"], ["rules/paper.py"]),
        ("adam", ["models/layered.py", "datasets/catalogue.toml"], ["optim/auto.py", "bench/store.py"]),
        ("cmalight", ["optim/cmalight.py", "rules/paper.py"], ["rules/watchdog.py"]),
        ("auto", ["optim/controlled.py", "rules/watchdog.py"], ["rules/paper.py", "optim/cma.py"]),
    ],
)
def test_the_packages_code_counts_if_it_takes_part_in_the_run(package, solver, taking_part, others):
    for file in (*taking_part, *others):
        before = code.code_digest(solver)
        (package / file).write_text(f"{(package / file).read_text()}\nanother = 1\n")
        forget()
        assert (code.code_digest(solver) != before) is (file in taking_part), file


def test_the_optimizers_count_if_a_users_file_imports_the_package(package, mine):
    for line, counts in (("from cmalight import Controlled", True), ("from cmalight.bench import Problem", False)):
        mine.write_text(f"{line}\n{SOURCE}")
        before = code.code_digest("adam", f"{mine}:make")
        (package / "rules" / "watchdog.py").write_text(f"another = {counts}\n")
        forget()
        assert (code.code_digest("adam", f"{mine}:make") != before) is counts, line
