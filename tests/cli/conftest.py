"""The command inside this process."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from cmalight.cli import command


@dataclass(frozen=True)
class Command:
    """Runs `cmalight ...` in a folder of its own."""

    folder: Path

    def __call__(self, *arguments):
        return CliRunner().invoke(command, [str(argument) for argument in arguments], prog_name="cmalight")

    def refused(self, *arguments):
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

    def files(self):
        return {str(path): path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}


@pytest.fixture
def cmalight(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return Command(tmp_path)
