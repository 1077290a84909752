"""Every script of examples/ runs, and says what it did."""

import re
import runpy
from pathlib import Path

import pytest

from tests.helpers import script

FOLDER = Path(__file__).parent.parent / "examples"
# On two processes: tests/parallel/test_torchrun.py and tests/integrations/test_two_processes.py start them.
ELSEWHERE = {"ddp", "fsdp2", "accelerate_loop"}
# A number that each prints, the range that it is in, and the files that it writes.
EXPECTED = {
    "amp_resnet": (r"final loss ([\d.]+)", 0.0, 0.7, []),
    "fit_table": (r"best validation in epoch \d+: loss ([\d.]+)", 0.0, 0.05, ["fit_table.pt"]),
    "hf_trainer": (r"final loss ([\d.]+)", 0.0, 0.1, ["hf_trainer"]),
    "lightning_module": (r"best validation loss ([\d.]+)", 0.0, 0.05, ["lightning_checkpoints"]),
    "raw_loop": (r"final loss ([\d.]+)", 0.0, 0.1, ["auto.pt", "controlled.pt"]),
    "sklearn_estimators": (r"digits: ([\d.]+) of the test rows right", 0.9, 1.0, []),
}


def test_every_example_is_run():
    assert {path.stem for path in FOLDER.glob("*.py")} == {*EXPECTED, *ELSEWHERE, "counterexamples"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the libraries that the examples are for
@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_and_says_what_it_did(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    pattern, least, most, files = EXPECTED[name]
    numbers = [float(number) for number in re.findall(pattern, capsys.readouterr().out)]
    assert numbers
    assert least < min(numbers) <= max(numbers) < most
    assert [file for file in files if not (tmp_path / file).exists()] == []


def test_the_counterexamples_are_printed_as_tables(monkeypatch, capsys):
    """With fewer epochs; tests/optim/test_counterexamples.py tests what they come to."""
    example = script("examples/counterexamples.py")
    run = example.noisy_least_squares
    monkeypatch.setattr(example, "noisy_least_squares", lambda *words, **more: run(*words, **{**more, "epochs": 3}))
    example.main()
    assert len(re.findall(r"^\| (?:light|certified) \| (?:fixed|reshuffled) \|", capsys.readouterr().out, re.M)) == 16
