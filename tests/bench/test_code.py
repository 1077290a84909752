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


@pytest.mark.parametrize(
    ("old", "new"), [('"""A solver."""', '"""Another text."""'), ("import helper\n", "import helper  # why\n\n\n")]
)
def test_numbers_count_and_comments_docstrings_and_layout_do_not(mine, old, new):
    before = digest(mine)
    mine.write_text(SOURCE.replace("0.1", "0.2"))
    assert digest(mine) != before
    mine.write_text(SOURCE.replace(old, new))
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


ADAM = {"solver": "adam", "dataset": "diabetes", "network": "1x5"}


@pytest.mark.parametrize(
    ("run", "taking_part", "others"),
    [
        (ADAM, ["evaluation/objective.py", "bench/training.py"], ["rules/paper.py", "datasets/storage.py"]),
        (ADAM, ["models/layered.py", "datasets/loading.py"], ["compiled/kernel.cpp", "bench/store.py"]),
        ({**ADAM, "engine": "auto"}, ["compiled/kernel.cpp"], ["optim/auto.py"]),
        ({"solver": "adam", "workload": "w.py:w"}, ["training/loop.py"], ["models/layered.py", "datasets/loading.py"]),
        ({**ADAM, "solver": "cmalight"}, ["optim/cmalight.py", "rules/paper.py"], ["rules/watchdog.py"]),
        ({**ADAM, "solver": "auto"}, ["optim/controlled.py", "rules/watchdog.py"], ["rules/paper.py", "optim/cma.py"]),
    ],
)
def test_the_packages_code_counts_if_it_takes_part_in_the_run(package, run, taking_part, others):
    for file in (*taking_part, *others):
        before = code.code_digest(**run)
        (package / file).write_text(f"{(package / file).read_text()}\nanother = 1\n")
        forget()
        assert (code.code_digest(**run) != before) is (file in taking_part), file


def test_the_rooms_that_a_users_file_imports_count(package, mine):
    for line, file, counts in (
        ("from cmalight import Controlled", "rules/watchdog.py", True),
        ("from cmalight.models import resnet", "models/resnet.py", True),
        ("from cmalight.bench import Problem", "optim/auto.py", False),
    ):
        mine.write_text(f"{line}\n{SOURCE}")
        before = digest(mine)
        (package / file).write_text("another = 1\n")
        forget()
        assert (digest(mine) != before) is counts, line


def test_how_a_file_of_the_catalogue_is_read_counts(monkeypatch):
    from dataclasses import replace

    from cmalight.datasets import registry

    before = code.code_digest("adam", dataset="bikes", network="1x5")
    entry = registry._CATALOGUE["bikes"]
    monkeypatch.setitem(registry._CATALOGUE, "bikes", replace(entry, urls=("http://127.0.0.1:9",), title="other words"))
    assert code.code_digest("adam", dataset="bikes", network="1x5") == before
    monkeypatch.setitem(registry._CATALOGUE, "bikes", replace(entry, source=replace(entry.source, one_hot=())))
    assert code.code_digest("adam", dataset="bikes", network="1x5") != before
