"""The command on small tables, inside this process."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from cmalight.cli import command


@dataclass(frozen=True)
class Command:
    """Runs `cmalight ...` in a folder of its own."""

    folder: Path

    def __call__(self, *arguments: object) -> Result:
        return CliRunner().invoke(command, [str(argument) for argument in arguments], prog_name="cmalight")

    def refused(self, *arguments: object) -> str:
        """The one line of an error: exit 2, and the folder is as it was."""
        before = self.files()
        result = self(*arguments)
        assert result.exit_code == 2, result.output + repr(result.exception)
        assert isinstance(result.exception, SystemExit), repr(result.exception)
        lines = result.stderr.splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("cmalight: error: "), result.stderr
        assert self.files() == before
        return lines[0]

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}


@pytest.fixture
def cmalight(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return Command(tmp_path)


@pytest.fixture
def houses(tmp_path):
    """A price that is 1000 times the size, and 50000 more in Oslo."""
    random = np.random.default_rng(0)
    rows = ["age,city,size,price"]
    for _ in range(80):
        age, city, size = random.integers(1, 80), random.choice(["Rome", "Oslo", "Lima"]), random.uniform(20, 200)
        rows.append(f"{age},{city},{size:.1f},{1000 * size + 50000 * (city == 'Oslo'):.0f}")
    path = tmp_path / "houses.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def flowers(tmp_path):
    """Three kinds that differ in their petals."""
    random = np.random.default_rng(0)
    rows = ["petal;kind"]
    for kind, centre in (("rose", 1.0), ("tulip", 5.0), ("lily", 9.0)):
        rows += [f"{random.normal(centre, 0.3):.3f};{kind}" for _ in range(20)]
    path = tmp_path / "flowers.csv"
    path.write_text("\n".join(rows) + "\n")
    return path
