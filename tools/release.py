"""Whether a version can be tagged: `python tools/release.py` prints its number, or what is to be done first.

Run by `make release` before anything is built. What it looks at: that the tree is what the tag would have, with no file
beside it that would enter the wheel; that the changelog has closed the version; that all name the same one.
"""

import re
import subprocess
import sys
from pathlib import Path


def version_of(root: Path) -> str:
    """As the package has it."""
    return re.search(r'__version__ = "(.+)"', (root / "src/cmalight/__init__.py").read_text())[1]


def changelog_sections(text: str) -> dict[str, str]:
    """What each heading has below it, by its name without brackets and date."""
    pieces = re.split(r"^## \[?([^\]\s]+)\]?.*\n", text, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], (piece.strip() for piece in pieces[2::2]), strict=True))


def naming_another(root: Path, version: str) -> list[str]:
    """The files that do not name this version."""
    lines = {
        "CITATION.cff": f"version: {version}\n",
        "docs/results/citing.md": f"version = {{{version}}}",
        "packaging/conda-forge/recipe.yaml": f'version: "{version}"\n',
    }
    return [name for name, line in lines.items() if line not in (root / name).read_text(encoding="utf-8")]


def left_to_do(root: Path) -> list[str]:
    """One line for each thing that speaks against a release."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout

    version = version_of(root)
    todo = [f"commit or remove: {line}" for line in git("status", "--porcelain").splitlines()]
    sections = changelog_sections((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if not sections.get(version):
        todo.append(f"CHANGELOG.md has no section for {version}, or an empty one")
    if sections.get("Unreleased"):
        todo.append(f'CHANGELOG.md: move what is under "Unreleased" to {version}, or raise the version')
    todo += [f"{name} does not have the version {version}" for name in naming_another(root, version)]
    if git("tag", "--list", f"v{version}"):
        todo.append(f"v{version} is tagged already")
    return todo


def main(root: Path) -> int:
    """The exit code."""
    todo = left_to_do(root)
    print("\n".join(todo) if todo else version_of(root), file=sys.stderr if todo else sys.stdout)
    return 1 if todo else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1]))
