"""The documents describe what is there now."""

import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import nn

import cmalight
from cmalight.rules import tolerant
from tests.test_rooms import FLOORS

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


def lines_marked_in(*files):
    """The numbers in the comments `# line 13` of files below src/cmalight."""
    texts = [path.read_text() for file in files for path in (ROOT / "src" / "cmalight").glob(file)]
    comments = re.findall(r"# line (.*)$", "\n".join(texts), re.MULTILINE)
    return {int(number) for comment in comments for number in re.findall(r"\d+", comment)}


def test_every_line_of_the_listing_is_marked_in_the_code():
    listing = {1, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22}
    assert lines_marked_in("rules/paper.py") >= listing - {1, 3, 5, 12, 16, 20}  # 12 and 16 are an "else"
    assert lines_marked_in("optim/*.py") >= {1, 3, 5, 20}
    assert lines_marked_in("rules/linesearch.py") >= {2, 3, 6, 7, 10}


def numbered_lines(document):
    """Of the listings in a page: lines that are indented and begin with their number."""
    return {int(number) for number in re.findall(r"^    (\d+) ", (ROOT / document).read_text(), re.MULTILINE)}


def test_the_listings_have_every_line_that_an_outcome_names():
    assert {o.line for o in cmalight.Outcome} <= numbered_lines("docs/algorithm.md") | numbered_lines(
        "docs/controlled.md"
    )


def test_the_tolerant_rules_listing_is_complete_with_its_constants():
    """What is only in the code is not in the listing, and what is only there is not in the code."""
    code = (ROOT / "src" / "cmalight" / "rules" / "tolerant.py").read_text()
    marked = re.findall(r"[Ll]ines? (\d+)(?: (?:and|to) (\d+))?", code)
    assert numbered_lines("docs/controlled.md") == {int(n) for pair in marked for n in pair if n} == set(range(31, 41))
    page = (ROOT / "docs" / "controlled.md").read_text()
    stated = {
        name: float(value) for value, name in re.findall(r"^\|[^|]*\| ([\d.]+) \| `(\w+)` \|$", page, re.MULTILINE)
    }
    fixed = {name: value for name, value in vars(tolerant).items() if name.isupper()}
    settings = asdict(tolerant.Settings())
    del settings["usual"]  # which is the base's, and said in words
    assert stated == {**fixed, **settings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_between_documents_lead_somewhere(document):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)", document.read_text()):
        file = (document.parent / target) if target else document
        assert file.exists(), f"{document.name} points to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor[1:] in slugs, f"{document.name} points to {target}{anchor}"


def test_the_architecture_names_what_is_there_and_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text()
    drawn = re.findall(r'\["([^<]*)<br>', page)  # the first line of a box of a picture: modules
    modules = {part for box in drawn for part in re.findall(r"[\w/]+\.py", box)}
    places = [
        ROOT / "src" / "cmalight",
        *(ROOT / "src" / "cmalight" / room for room in ("bench/running", "bench/spec")),
    ]
    assert len(modules) > 30
    assert [name for name in modules if not any((place / name).exists() for place in places)] == []
    rooms = {room.partition(".")[0] for floor in FLOORS for room in floor}
    assert [room for room in rooms if f"`{room}/`" not in page and f"`{room}.py`" not in page] == []


def python_blocks(document):
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_the_readmes_quick_start_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(python_blocks("README.md")[0], {})
    assert "30 epochs done" in capsys.readouterr().out
    assert (tmp_path / "run.pt").exists()


def test_the_page_on_choosing_runs_and_knows_every_outcome(capsys):
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    y = x.sum(1, keepdim=True).sin()
    loader = list(zip(x.split(20), y.split(20), strict=True))
    names = {"x": x, "y": y, "loader": loader, "loss_fn": nn.MSELoss(), "epochs": 2, "model": nn.Linear(3, 1)}
    brief, loop = python_blocks("docs/choosing.md")
    exec(brief.replace("time_limit=60", "max_epochs=2, progress=False"), dict(names))
    exec(loop, dict(names))
    assert "kept (line 34)" in capsys.readouterr().out
    rows = re.findall(r"^\| (`[^|]*) \|", (ROOT / "docs" / "choosing.md").read_text(), re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+?)(?:_\.\.\.)?`", row)}
    named = {outcome.name.lower() for outcome in cmalight.Outcome}
    assert not [name for name in named if name not in described and name.split("_")[0] not in described]


def test_the_readmes_command_runs(tmp_path):
    line = re.search(r"^cmalight train wine.*$", (ROOT / "README.md").read_text(), re.MULTILINE).group(0)
    run = subprocess.run(
        [sys.executable, "-m", *line.split()], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )
    assert "accuracy" in run.stdout
    assert (tmp_path / "wine.pt").exists()


def test_the_readmes_loop_runs():
    torch.manual_seed(0)
    x = torch.rand(100, 3)
    names = {
        "model": nn.Linear(3, 1),
        "loss_fn": nn.MSELoss(),
        "loader": [(x[:50], x[:50].sum(1, keepdim=True)), (x[50:], x[50:].sum(1, keepdim=True))],
        "epochs": 100,
    }
    exec(python_blocks("README.md")[1], names)
    assert names["epoch"].report.f_tilde < 2.0


def test_the_training_pages_example_runs(capsys):
    exec(python_blocks("docs/training.md")[0], {})
    assert "30 epochs done" in capsys.readouterr().out


def test_help_does_not_wait_for_torch():
    code = """
import atexit, sys
sys.argv = ["cmalight", "--help"]
atexit.register(lambda: print("torch" in sys.modules))
from cmalight.__main__ import main
main()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert "Commands:" in run.stdout
    assert run.stdout.splitlines()[-1] == "False"


def test_the_version_is_the_same_everywhere():
    assert f"version: {cmalight.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_core_imports_torch_alone():
    """Nothing that torch itself does not need may be imported with the package."""
    code = (
        "import torch, sys; before = set(sys.modules)\n"
        "from cmalight import *; print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    foreign = {name for name in run.stdout.split() if name.partition(".")[0] not in {"cmalight", "torch"}}
    assert not {name for name in foreign if name.partition(".")[0] not in sys.stdlib_module_names}


def test_the_networks_page_runs():
    exec(python_blocks("docs/networks.md")[0], {})


def test_the_distributed_pages_mixed_precision_runs():
    torch.manual_seed(0)
    x = torch.rand(100, 3)
    model = nn.Linear(3, 1)
    names = {
        "torch": torch,
        "Objective": cmalight.Objective,
        "model": model,
        "optimizer": cmalight.CMALight(model.parameters(), lr=0.1),
        "loss_fn": nn.MSELoss(),
        "loader": [(x[:50], x[:50].sum(1, keepdim=True)), (x[50:], x[50:].sum(1, keepdim=True))],
    }
    exec(python_blocks("docs/distributed.md")[2], names)
    assert names["epoch"].report.f_tilde < 2.0
