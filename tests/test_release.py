"""What `make release` asks for before it builds and tags."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers import script

ROOT = Path(__file__).parent.parent
FILES = ("CITATION.cff", "docs/results/citing.md", "src/cmalight/__init__.py")


@pytest.fixture(scope="module")
def release():
    return script("tools/release.py")


@pytest.fixture
def tree(tmp_path, release):
    """A repository that is ready."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    version = release.version_of(tmp_path)
    changes = f"# Changelog\n\n## [Unreleased]\n\n## [{version}] - 2026-01-01\n\n### Added\n- It.\n"
    (tmp_path / "CHANGELOG.md").write_text(changes)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder, *words):
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, timeout=60)


def commit(folder):
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")


def test_a_tree_that_is_ready_gives_its_version(tree, release, capsys):
    assert release.main(tree) == 0
    assert capsys.readouterr().out == f"{release.version_of(tree)}\n"


def untracked(tree, version):
    (tree / "src" / "cmalight" / "stray.py").touch()


def unreleased(tree, version):
    changes = (tree / "CHANGELOG.md").read_text()
    (tree / "CHANGELOG.md").write_text(changes.replace("## [Unreleased]\n", "## [Unreleased]\n\n### Fixed\n- More.\n"))
    commit(tree)


def cited_otherwise(name):
    def change(tree, version):
        (tree / name).write_text((tree / name).read_text().replace(version, "0.0.1"))
        commit(tree)

    return change


def tagged(tree, version):
    git(tree, "tag", f"v{version}")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (untracked, "commit or remove: ?? src/cmalight/stray.py"),
        (unreleased, '"Unreleased"'),
        *((cited_otherwise(name), name) for name in FILES[:2]),
        (tagged, "tagged already"),
    ],
)
def test_what_speaks_against_a_release_is_named(tree, release, capsys, change, complaint):
    change(tree, release.version_of(tree))
    assert release.main(tree) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_the_tree_is_looked_at_before_anything_is_built():
    recipe = re.search(r"^release:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert 0 < recipe.index("tools/release.py") < recipe.index("dist") < recipe.index("git tag")
