"""What `make release` asks for before it builds and tags."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers import script

ROOT = Path(__file__).parent.parent
NAMING = ("CITATION.cff", "docs/results/citing.md", "packaging/conda-forge/recipe.yaml")
release = script("tools/release.py")


def git(folder, *words):
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, timeout=60)


def commit(folder):
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")


@pytest.fixture
def tree(tmp_path):
    """A repository that is ready."""
    for name in (*NAMING, "src/cmalight/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changes = f"# Changelog\n\n## [Unreleased]\n\n## [{release.version_of(ROOT)}] - 2026-01-01\n\n### Added\n- It.\n"
    (tmp_path / "CHANGELOG.md").write_text(changes)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def test_a_tree_that_is_ready_gives_its_version(tree, capsys):
    assert release.main(tree) == 0
    assert capsys.readouterr().out == f"{release.version_of(ROOT)}\n"


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("CHANGELOG.md", "[Unreleased]\n", "[Unreleased]\n\n### Fixed\n- More.\n", '"Unreleased"'),
        *((name, release.version_of(ROOT), "0.0.1", name) for name in NAMING),
    ],
)
def test_a_file_that_speaks_against_a_release_is_named(tree, capsys, file, old, new, complaint):
    (tree / file).write_text((tree / file).read_text().replace(old, new))
    commit(tree)
    assert release.main(tree) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_an_untracked_file_and_a_version_that_is_tagged_are_named(tree, capsys):
    git(tree, "tag", f"v{release.version_of(tree)}")
    (tree / "src" / "cmalight" / "stray.py").touch()
    assert release.main(tree) == 1
    untracked, tagged = capsys.readouterr().err.splitlines()
    assert untracked == "commit or remove: ?? src/cmalight/stray.py"
    assert "tagged already" in tagged


def test_the_tree_is_looked_at_before_anything_is_built():
    recipe = re.search(r"^release:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert 0 < recipe.index("tools/release.py") < recipe.index("dist") < recipe.index("git tag")
