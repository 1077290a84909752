"""The documents describe what is there now, and their code runs."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import cmalight
from tests.test_rooms import FLOORS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packaging/**/*.md")])
README = (ROOT / "README.md").read_text()
CHANGES = (ROOT / "CHANGELOG.md").read_text()


def python_blocks(document):
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def problem():
    """The names that pages take for granted."""
    torch.manual_seed(0)
    x = torch.randn(200, 3)
    y = x.sum(1, keepdim=True).sin()
    loader = list(zip(x.split(20), y.split(20), strict=True))
    model = nn.Sequential(nn.Linear(3, 10), nn.Tanh(), nn.Linear(10, 1))
    return {"torch": torch, "x": x, "y": y, "loader": loader, "loss_fn": nn.MSELoss(), "epochs": 5, "model": model}


# What a reader can take in.


def test_the_readme_fits_a_few_screens():
    assert len(README.splitlines()) <= 110
    assert README.count("```python") == 2
    figures = re.findall(
        r"(?<![\w.:/-])\d[\d,.]*", re.sub(r"```.*?```|\]\([^)]*\)|arXiv:\S+|!\[.*?\]", "", README, flags=re.DOTALL)
    )
    versions = {"3.11", "2.6"}
    assert len([one for one in figures if one.rstrip(".,") not in versions]) <= 10, figures


def test_the_site_is_short():
    """The bars of tables, and other signs that stand alone, are no words."""
    pages = [page for page in DOCS.rglob("*.md") if "tutorials" not in page.parts]
    words = {page: len(re.findall(r"\S*\w\S*", page.read_text())) for page in pages}
    assert sum(words.values()) <= 20_000, sorted(words.items(), key=lambda item: -item[1])[:5]


PRIVATE_WORDS = ("goes on from", "line to zero", "step size")


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/guides/loop.md", "docs/start/choosing.md"]
)
def test_pages_use_the_words_of_the_field(page):
    text = " ".join((ROOT / page).read_text().split()).lower()
    assert [word for word in PRIVATE_WORDS if word in text] == []


# Links, names, versions.


@pytest.mark.parametrize("document", [*sorted(ROOT.glob("*.md")), *ROOT.glob("packaging/*.md")], ids=lambda d: d.name)
def test_links_outside_the_site_lead_somewhere(document):
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


def test_every_file_that_a_page_names_is_there():
    """Modules by their path in the package, or the end of it; scripts by their path in the repository."""
    rooms = "|".join(room for floor in FLOORS for room in floor)
    module = rf"`(?:src/cmalight/|cmalight/)?((?:{rooms})/[\w/]+\.(?:py|cpp|toml))`"
    script = r"((?:benchmarks|docs/pictures|examples|tests)/[\w/]+\.(?:py|toml))"
    modules = [f"/{path.relative_to(ROOT / 'src' / 'cmalight')}" for path in (ROOT / "src").rglob("*.*")]
    pages = {page.name: page.read_text() for page in DOCUMENTS if page.name != "CHANGELOG.md"}
    named = {(name, path) for name, text in pages.items() for path in re.findall(module, text)}
    assert len(named) > 10
    assert [one for one in named if not any(path.endswith(f"/{one[1]}") for path in modules)] == []
    named = {(name, path) for name, text in pages.items() for path in re.findall(script, text)}
    assert len(named) > 5
    assert [one for one in named if not (ROOT / one[1]).exists()] == []


def test_the_architecture_names_every_room():
    page = (DOCS / "contribute" / "architecture.md").read_text()
    rooms = {room for floor in FLOORS for room in floor} - {"errors", "files", "__main__"}
    assert [room for room in rooms if f"{room}/" not in page] == []


def lines_marked_in(*files):
    """The numbers in the comments `# line 13` of files below src/cmalight."""
    texts = [path.read_text() for file in files for path in (ROOT / "src" / "cmalight").glob(file)]
    comments = re.findall(r"# line (.*)$", "\n".join(texts), re.MULTILINE)
    return {int(number) for comment in comments for number in re.findall(r"\d+", comment)}


def test_the_lines_of_the_listing_are_marked_in_the_code():
    assert lines_marked_in("rules/paper.py") >= {6, 7, 8, 10, 11, 13, 14, 15, 17, 18, 21, 22}
    assert lines_marked_in("rules/linesearch.py") >= {2, 3, 6, 7, 10}


def test_the_page_on_the_watchdog_names_its_constants():
    from cmalight.rules.watchdog import Watchdog

    page = (DOCS / "understand" / "watchdog.md").read_text()
    assert [name for name in Watchdog.__dataclass_fields__ if f"`{name}`" not in page] == []


def test_every_outcome_is_explained():
    page = (DOCS / "reference" / "outcomes.md").read_text()
    described = set(re.findall(r"`(\w+?)(?:_\.\.\.)?`", page))
    named = {outcome.name.lower() for outcome in cmalight.Outcome}
    assert not [name for name in named if name not in described and name.split("_")[0] not in described]


def test_the_version_is_the_same_everywhere():
    assert f"version: {cmalight.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{cmalight.__version__}}}" in (DOCS / "results" / "citing.md").read_text()
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


# Code that pages show.


def test_the_readmes_loops_train():
    names = problem()
    objective = cmalight.Objective(names["model"], names["loss_fn"], names["loader"])
    paper, loop = python_blocks("README.md")
    for block in (paper, loop):
        before = objective()
        exec(block, names)
        assert objective() < before
    base = re.search(r"`(Controlled\(.*?\), model\))`", README)[1]
    assert isinstance(eval(base, {**names, "Controlled": cmalight.Controlled}), cmalight.Controlled)


@pytest.mark.filterwarnings("ignore:torch.cuda.amp|User provided device_type")
@pytest.mark.filterwarnings("ignore:.*has no schedule")
def test_the_page_on_loops_runs(capsys):
    names = problem()
    for block in python_blocks("docs/guides/loop.md"):
        exec(block, names)
    assert "window of 5 steps kept" in capsys.readouterr().out


def test_the_page_on_the_papers_methods_runs(capsys):
    exec(python_blocks("docs/guides/cmalight.md")[0], problem())
    assert "(line " in capsys.readouterr().out


def test_the_five_minutes_run_and_resume(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    loop, one_call = python_blocks("docs/start/five-minutes.md")
    exec(loop, {})
    assert float(re.search(r"final loss (\S+)", capsys.readouterr().out)[1]) < 0.05
    exec(one_call, {})
    assert "30 epochs done" in capsys.readouterr().out
    exec(one_call, {})
    assert "nothing left to train: 30 epochs done" in capsys.readouterr().out
    exec(one_call.replace("max_epochs=30", "max_epochs=31"), {})
    assert "31 epochs done" in capsys.readouterr().out


def run_with_checkpoints(path, epochs, limit):
    """The loop of the page on checkpoints, made anew as after a crash: the weights it ends with."""
    torch.manual_seed(0)
    x = torch.rand(60, 3)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True).sin()), batch_size=10, shuffle=True)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1), nn.Linear(4, 1))
    objective = cmalight.Objective(model, nn.MSELoss(), loader)
    optimizer = cmalight.Auto(model, objective=objective, total_steps=limit * len(loader))
    names = {"torch": torch, "model": model, "optimizer": optimizer, "path": path, "epochs": epochs}

    def train_one_epoch():
        for inputs, target in loader:
            loss = nn.functional.mse_loss(model(inputs), target)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()

    own_loop = next(block for block in python_blocks("docs/guides/checkpoints.md") if "train_one_epoch()" in block)
    exec(own_loop, {**names, "train_one_epoch": train_one_epoch})
    return nn.utils.parameters_to_vector(model.parameters())


def test_the_loop_with_checkpoints_resumes_bit_for_bit(tmp_path):
    whole = run_with_checkpoints(tmp_path / "whole.pt", 6, limit=6)
    stopped = run_with_checkpoints(tmp_path / "run.pt", 3, limit=6)
    assert not torch.equal(stopped, whole)
    assert torch.equal(run_with_checkpoints(tmp_path / "run.pt", 6, limit=6), whole)


@pytest.mark.parametrize(
    ("page", "printed"),
    [("docs/llms.txt", "kept"), ("docs/guides/fit.md", "30 epochs done")],
)
def test_the_first_block_of_a_page_runs(page, printed, capsys):
    exec(python_blocks(page)[0], {})
    assert printed in capsys.readouterr().out


def test_every_page_with_code_is_run_by_a_test():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    with_code = [page for page in DOCUMENTS if "```python\n" in page.read_text()]
    assert [page.name for page in with_code if f'{page.name}"' not in tests] == []
