"""The documents describe what is there now."""

import re
import subprocess
import sys
import unicodedata
import xml.etree.ElementTree
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import cmalight
from cmalight.rules import tolerant
from tests.test_rooms import FLOORS
from tests.training.common import needs_compiler

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

CHANGES = (ROOT / "CHANGELOG.md").read_text()


def lines_marked_in(*files):
    """The numbers in the comments `# line 13` of files below src/cmalight."""
    texts = [path.read_text() for file in files for path in (ROOT / "src" / "cmalight").glob(file)]
    comments = re.findall(r"# line (.*)$", "\n".join(texts), re.MULTILINE)
    return {int(number) for comment in comments for number in re.findall(r"\d+", comment)}


def test_every_line_of_the_listing_is_marked_in_the_code():
    listing = {1, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22}
    assert lines_marked_in("rules/paper.py") >= listing - {1, 3, 5, 12, 16, 20}  # 12 and 16 are an "else"
    assert lines_marked_in("optim/**/*.py") >= {1, 3, 5, 20}
    assert lines_marked_in("rules/linesearch.py") >= {2, 3, 6, 7, 10}


def numbered_lines(document):
    """Of the listings in a page: lines that are indented and begin with their number."""
    return {int(number) for number in re.findall(r"^    (\d+) ", (ROOT / document).read_text(), re.MULTILINE)}


def test_the_listings_have_every_line_that_an_outcome_names():
    assert {line for o in cmalight.Outcome for line in (o.line, o.last)} <= numbered_lines(
        "docs/understand/algorithm.md"
    ) | numbered_lines("docs/understand/controlled.md")


def test_the_tolerant_rules_listing_is_complete_with_its_constants():
    """What is only in the code is not in the listing, and what is only there is not in the code."""
    code = (ROOT / "src" / "cmalight" / "rules" / "tolerant.py").read_text()
    marked = re.findall(r"[Ll]ines? (\d+)(?: (?:and|to) (\d+))?", code)
    assert (
        numbered_lines("docs/understand/controlled.md")
        == {int(n) for pair in marked for n in pair if n}
        == set(range(31, 41))
    )
    page = (ROOT / "docs" / "understand" / "controlled.md").read_text()
    stated = {
        name: float(value) for value, name in re.findall(r"^\|[^|]*\| ([\d.]+) \| `(\w+)` \|$", page, re.MULTILINE)
    }
    fixed = {name: value for name, value in vars(tolerant).items() if name.isupper()}
    settings = asdict(tolerant.Settings())
    del settings["usual"]  # which is the base's, and said in words
    assert stated == {**fixed, **settings}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_every_measurement_has_a_date():
    speed = (DOCS / "results" / "speed.md").read_text()
    headings = re.findall(r"^## (.*)\n\n(.*)$", speed, re.MULTILINE)
    assert len(headings) > 10
    assert [heading for heading, line in headings if not re.match(r"\*\d+ \w+ \d{4}", line)] == []
    for study in DOCS.glob("studies/*.md"):
        assert study.name == "index.md" or re.search(r"^Date: \d+ \w+ \d{4}", study.read_text(), re.MULTILINE)


def test_lines_of_documents_are_short():
    """Rows of tables, addresses and what a program prints cannot be broken; a combining mark takes no room."""
    scripts = [path for folder in ("", "pictures", "understand/pictures") for path in (DOCS / folder).glob("*.py")]
    assert len(scripts) == 3
    assert [
        f"{document.relative_to(ROOT)}:{number}: {len(line)}"
        for document in [*DOCUMENTS, DOCS / "llms.txt", *scripts]
        for number, line in enumerate(document.read_text().splitlines(), 1)
        if sum(not unicodedata.combining(c) for c in line) > 100
        and not re.search(r"^\s*\||^cmalight: error|https?://\S{60}", line)
    ] == []


@pytest.mark.parametrize("document", sorted(ROOT.glob("*.md")), ids=lambda d: d.name)
def test_links_from_the_repositorys_front_lead_somewhere(document):
    """Those between pages of the site are checked when it is built."""
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)", document.read_text()):
        file = (document.parent / target) if target else document
        assert file.exists(), f"{document.name} points to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor[1:] in slugs, f"{document.name} points to {target}{anchor}"


def test_pages_name_extras_in_the_form_of_the_page_on_installing():
    """`pip install ".[cli]"`: the package is on no index that the pages know of."""
    others = [page for page in DOCUMENTS if page.name != "install.md"]  # which explains the form of the messages
    assert [page.name for page in others if 'pip install "cmalight[' in page.read_text()] == []


def test_the_page_on_words_gives_each_word_one_meaning():
    """But for those at its end, which say that they have two."""
    page = (ROOT / "docs" / "understand" / "words.md").read_text()
    one, two = (re.findall(r"\*\*(.+?):?\*\*", part) for part in page.split("## Words with two meanings"))
    assert len(one) > 50
    assert sorted(set(one)) == sorted(one)
    assert two == ["tolerance", "sample", "tau"]
    assert not set(one) & set(two)


def test_every_module_that_a_page_names_is_there():
    """By its path in the package, or the end of it."""
    rooms = "|".join({room.partition(".")[0] for floor in FLOORS for room in floor})
    modules = [f"/{path.relative_to(ROOT / 'src' / 'cmalight')}" for path in (ROOT / "src").rglob("*.py")]
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    named = {
        (page.name, path)
        for page in pages
        for path in re.findall(rf"`(?:src/cmalight/)?((?:{rooms})/[\w/]+\.py)`(?!:\n\n```python)", page.read_text())
    }
    assert len(named) > 10
    assert [one for one in named if not any(module.endswith(f"/{one[1]}") for module in modules)] == []


def test_the_architecture_names_what_is_there_and_every_room():
    page = (ROOT / "docs" / "contribute" / "architecture.md").read_text()
    drawn = [picture.read_text() for picture in sorted((ROOT / "docs" / "contribute" / "pictures").glob("*.mmd"))]
    modules = {part for way in drawn for part in re.findall(r"[\w/]+\.py", way)}
    rooms = ("", "bench/running", "bench/spec", "bench/store", "optim", "optim/bracket", "optim/control")
    places = [ROOT / "src" / "cmalight" / room for room in rooms]
    assert len(modules) > 30
    assert [name for name in modules if not any((place / name).exists() for place in places)] == []
    rooms = {room.partition(".")[0] for floor in FLOORS for room in floor}
    assert [room for room in rooms if f"`{room}/`" not in page and f"`{room}.py`" not in page] == []


@pytest.mark.parametrize("way", ["way-of-fit", "way-of-bench-run"])
def test_the_pictures_of_the_architecture_are_those_of_their_sources(way):
    picture = ROOT / "docs" / "contribute" / "pictures" / f"{way}.svg"
    shown = "".join(xml.etree.ElementTree.parse(picture).getroot().itertext()).replace(" ", "")
    labels = re.findall(r'"(.*?)"', picture.with_suffix(".mmd").read_text())
    assert len(labels) > 14
    assert [line for label in labels for line in label.split("<br>") if line.replace(" ", "") not in shown] == []


def test_fit_goes_the_way_that_the_architecture_draws():
    """Every module of the picture, in its order, from the first call to the last of one epoch."""
    source = (ROOT / "docs" / "contribute" / "pictures" / "way-of-fit.mmd").read_text()
    labels = {int(number): label for number, label in re.findall(r'"(\d+) · (.*?)"', source)}
    assert sorted(labels) == list(range(1, 17))
    drawn = [path for _, label in sorted(labels.items()) for path in re.findall(r"[\w/]+\.py", label)]
    called = []

    def look(frame, event, _):
        if event == "call" and "/cmalight/" in frame.f_code.co_filename:
            called.append(frame.f_code.co_filename)

    torch.manual_seed(0)
    x = torch.rand(60, 2)
    sys.setprofile(look)
    try:
        cmalight.fit(
            nn.Linear(2, 1), nn.MSELoss(), (x, x.sum(1, keepdim=True)), max_epochs=1, engine="eager", progress=False
        )
    finally:
        sys.setprofile(None)
    places = iter(called)
    assert [path for path in drawn if not any(place.endswith(f"/{path}") for place in places)] == []


def test_the_pictures_show_what_the_page_says(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "understand" / "pictures")
    import draw

    small, (undone, after) = draw.run(draw.SMALL, 5), draw.run(draw.LARGE, 2)
    outcomes = [one.report.outcome.name for one in (small[0], undone, after, small[4])]
    assert outcomes == ["ACCEPTED", "SEARCH_FAILED_REJECTED", "ACCEPTED", "SEARCH_SUCCEEDED"]
    page = " ".join((ROOT / "docs" / "understand" / "pictures.md").read_text().split())
    claims = (ROOT / "docs" / "results" / "paper.md").read_text()
    rate = re.search(r"line 7 takes the point: ([\d.]+ \[[\d., ]+\]) against", claims)[1]
    assert 0.2 < float(rate.split()[0]) < 0.3  # what the page calls about a quarter
    for said in (
        f"about a quarter of CMALight's epochs ({rate})",
        f"f̃ = {small[0].report.f_tilde:.2f}, where f(w⁰) was {draw.mean_loss(small[0].path[0]):.2f}",
        f"f̃ is {undone.report.f_tilde:.2f}, and at w̃ the loss is {draw.mean_loss(undone.path[-1]):.0f}",
        f"The next epoch, at {after.report.lr:g}, is accepted",
        f"f̃ = {small[4].report.f_tilde:.3f} does not beat φ = {small[3].report.phi:.3f}",
        f"f(w⁴) = {draw.mean_loss(small[4].path[0]):.3f}",
        f"α = {small[4].report.alpha / small[4].report.lr:.2f} ζ, with a loss of {draw.mean_loss(small[4].left):.3f}",
    ):
        assert said in page, said
    for drawn in draw.run(draw.LARGE, 25, "certified"):
        assert draw.mean_loss(drawn.left) <= draw.mean_loss(undone.path[0])


def python_blocks(document):
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


@pytest.mark.parametrize("document", ["README.md", "docs/start/five-minutes.md"])
def test_the_first_result_runs_and_goes_on_when_it_is_run_again(document, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = python_blocks(document)[0]
    exec(script, {})
    assert "30 epochs done" in capsys.readouterr().out
    exec(script, {})
    assert "nothing left to train: 30 epochs done" in capsys.readouterr().out
    exec(script.replace("max_epochs=30", "max_epochs=31"), {})
    assert "31 epochs done" in capsys.readouterr().out


def test_the_pages_on_choosing_the_loop_and_reports_run_and_know_every_outcome(capsys):
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    y = x.sum(1, keepdim=True).sin()
    loader = list(zip(x.split(20), y.split(20), strict=True))
    names = {"x": x, "y": y, "loader": loader, "loss_fn": nn.MSELoss(), "epochs": 2, "model": nn.Linear(3, 1)}
    (brief,) = python_blocks("docs/start/choosing.md")
    exec(brief.replace("time_limit=60", "max_epochs=2, progress=False"), dict(names))
    exec(python_blocks("docs/guides/loop.md")[0], names)
    assert "kept (line 34)" in capsys.readouterr().out
    rows = re.findall(r"^\| (`[^|]*) \|", (ROOT / "docs" / "guides" / "reading.md").read_text(), re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+?)(?:_\.\.\.)?`", row)}
    named = {outcome.name.lower() for outcome in cmalight.Outcome}
    assert not [name for name in named if name not in described and name.split("_")[0] not in described]


def run_with_checkpoints(path, epochs, limit):
    """The loop of the page on checkpoints, made anew as after a crash: the weights it ends with."""
    torch.manual_seed(0)
    x = torch.rand(60, 3)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True).sin()), batch_size=10, shuffle=True)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1), nn.Linear(4, 1))
    optimizer = cmalight.Controlled(torch.optim.Adam(model.parameters(), lr=7e-3), max_epochs=limit)
    names = {"torch": torch, "model": model, "optimizer": optimizer, "path": path, "epochs": epochs}
    objective = cmalight.Objective(model, nn.MSELoss(), loader)

    def train_one_epoch():
        with optimizer.epoch(objective) as epoch:
            for inputs, target in epoch.batches(loader):
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(inputs), target)
                loss.backward()
                epoch.observe(loss, len(target))
                optimizer.step()

    exec(python_blocks("docs/guides/checkpoints.md")[0], {**names, "train_one_epoch": train_one_epoch})
    return nn.utils.parameters_to_vector(model.parameters())


def test_the_loop_with_checkpoints_goes_on_bit_for_bit(tmp_path):
    whole = run_with_checkpoints(tmp_path / "whole.pt", 6, limit=6)
    stopped = run_with_checkpoints(tmp_path / "run.pt", 3, limit=6)
    assert not torch.equal(stopped, whole)
    assert torch.equal(run_with_checkpoints(tmp_path / "run.pt", 6, limit=6), whole)


def test_the_readmes_command_runs(tmp_path):
    line = re.search(r"^cmalight train wine.*$", (ROOT / "README.md").read_text(), re.MULTILINE).group(0)
    run = subprocess.run(
        [sys.executable, "-m", *line.split()], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )
    assert "accuracy" in run.stdout
    assert (tmp_path / "wine.pt").exists()


def test_what_assistants_are_shown_runs(capsys):
    (block,) = python_blocks("docs/llms.txt")
    exec(block, {})
    assert "(line 34)" in capsys.readouterr().out


def test_the_training_pages_example_runs(capsys):
    exec(python_blocks("docs/guides/fit.md")[0], {})
    assert "30 epochs done" in capsys.readouterr().out


@needs_compiler
@pytest.mark.slow
def test_the_page_on_engines_runs(capsys):
    names = {}
    for block in python_blocks("docs/guides/engines.md"):
        exec(block, names)
    assert capsys.readouterr().out.startswith("compiled ")
    assert len(names["result"].starts) == 5


def test_every_page_with_code_is_run_by_a_test():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    with_code = [page for page in DOCUMENTS if "```python\n" in page.read_text()]
    assert [page.name for page in with_code if f'{page.name}"' not in tests] == []


def test_help_does_not_wait_for_torch():
    code = """
import atexit, sys
sys.argv = ["cmalight", "--help"]
atexit.register(lambda: print("torch" in sys.modules))
from cmalight.__main__ import main
main()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert "Commands:" in run.stdout
    assert run.stdout.splitlines()[-1] == "False"


def test_the_version_is_the_same_everywhere():
    assert f"version: {cmalight.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{cmalight.__version__}}}" in (ROOT / "docs" / "results" / "citing.md").read_text()
    assert re.search(rf"^## \[{re.escape(cmalight.__version__)}\] - \d{{4}}-\d\d-\d\d$", CHANGES, re.MULTILINE)


def test_the_changelog_keeps_its_form():
    """Keep a Changelog: versions in brackets, the kinds of change in its order, each once and as one list."""
    first, *versions = re.split(r"^## ", CHANGES, flags=re.MULTILINE)[1:]
    assert first.startswith("[Unreleased]\n")
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for version in (first, *versions):
        found = re.findall(r"^### (.*)$", version, re.MULTILINE)
        assert found == [kind for kind in kinds if kind in found]
        lists = re.split(r"^### .*$", version, flags=re.MULTILINE)[1:]
        assert [one for one in lists if "\n\n" in one.strip()] == []


def test_the_core_imports_torch_alone():
    """Nothing that torch itself does not need may be imported with the package."""
    code = (
        "import torch, sys; before = set(sys.modules)\n"
        "from cmalight import *; print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    foreign = {name for name in run.stdout.split() if name.partition(".")[0] not in {"cmalight", "torch"}}
    assert not {name for name in foreign if name.partition(".")[0] not in sys.stdlib_module_names}


def test_the_networks_page_runs():
    exec(python_blocks("docs/guides/networks.md")[0], {})


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
    exec(python_blocks("docs/guides/distributed.md")[2], names)
    assert names["epoch"].report.f_tilde < 2.0
