"""Whose code runs: that of the package, and of a spec that names its own; never what happens to lie in the folder."""

import subprocess
import sys

from .common import ENVIRONMENT, ROOT, contents, finished, toml

_LAUNCHER = "from cmalight.__main__ import main\nmain()\n"
_TRAP = "from pathlib import Path\nPath(__file__).with_name('executed').write_text('')\n"


def bench(folder, *arguments):
    """The installed command, called in `folder`: unlike `python -m`, it has no current folder on its path."""
    launcher = folder / "bin" / "command.py"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER)
    package = ENVIRONMENT["PYTHONPATH"].removeprefix(str(ROOT)).lstrip(":")
    return finished(
        subprocess.Popen(
            [sys.executable, str(launcher), "bench", *map(str, arguments)],
            cwd=folder,
            env={**ENVIRONMENT, "PYTHONPATH": package},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    )


def test_modules_in_the_current_folder_are_not_executed(tmp_path):
    for name in ("queue", "json", "numpy", "torch", "numbers"):
        (tmp_path / f"{name}.py").write_text(_TRAP)
    code, _, stderr = bench(tmp_path, "run", toml(tmp_path / "spec.toml"), "--out", "results", "--workers", 1)
    assert code == 0, stderr
    assert not (tmp_path / "executed").exists()
    assert [content["status"] for content in contents(tmp_path / "results").values()] == ["done"]


def test_a_spec_that_names_own_code_finds_it_in_the_current_folder_which_comes_last(tmp_path):
    (tmp_path / "queue.py").write_text(_TRAP)
    (tmp_path / "mine.py").write_text("import torch\ndef sgd(params): return torch.optim.SGD(params, lr=0.1)\n")
    spec = toml(tmp_path / "spec.toml", solvers=["mine:sgd"])
    code, _, stderr = bench(tmp_path, "run", spec, "--out", "results", "--workers", 1)
    assert code == 0, stderr
    assert not (tmp_path / "executed").exists()
    assert [content["status"] for content in contents(tmp_path / "results").values()] == ["done"]
