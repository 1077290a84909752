"""The documents describe what is there now, and their code runs."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import cmalight
from cmalight.rules.watchdog import Watchdog
from tests.helpers import script
from tests.test_rooms import FLOORS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text()
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packaging/**/*.md"))
    if "tutorials" not in page.parts
}
FILLED = re.compile(r"<!-- [\w-]+ -->\n.*?<!-- end -->", re.DOTALL)  # by scripts, from published runs
README, CHANGES = PAGES["README.md"], PAGES["CHANGELOG.md"]


def python_blocks(document):
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


# What a reader can take in.


def test_the_readme_fits_a_few_screens():
    assert len(README.splitlines()) <= 110
    assert README.count("```python") == 2
    words = re.sub(r"```.*?```|\]\([^)]*\)|arXiv:\S+|!\[.*?\]", "", README, flags=re.DOTALL)
    numbers = [one.rstrip(".,") for one in re.findall(r"(?<![\w.:/-])\d[\d,.]*", words)]
    assert len([one for one in numbers if one not in ("3.11", "2.6")]) <= 25, numbers  # versions do not count


def test_the_site_is_short():
    """Signs that stand alone are no words, and tables that scripts fill are not read like pages."""
    pages = {name: FILLED.sub("", text) for name, text in PAGES.items() if name.startswith("docs/")}
    words = {name: len(re.findall(r"\S*\w\S*", text)) for name, text in pages.items()}
    assert sum(words.values()) <= 15_500, sorted(words.items(), key=lambda item: -item[1])[:5]


# Links, names, versions.


@pytest.mark.parametrize("name", [name for name in PAGES if not name.startswith("docs/")])
def test_links_outside_the_site_lead_somewhere(name):
    """Those between pages of the site are checked when it is built."""
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)", PAGES[name]):
        file = (ROOT / name).parent / target if target else ROOT / name
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor[1:] in slugs, f"{target}{anchor}"


def test_every_file_that_a_page_names_is_there():
    """Modules by their path in the package, or the end of it; scripts by their path in the repository."""
    rooms = "|".join(room for floor in FLOORS for room in floor)
    module = rf"`(?:src/cmalight/|cmalight/)?((?:{rooms})/[\w/]+\.(?:py|cpp|toml))`"
    script = r"((?:benchmarks|docs/pictures|examples|tests)/[\w/]+\.(?:py|toml))"
    text = "\n".join(text for name, text in PAGES.items() if name != "CHANGELOG.md")
    modules, scripts = re.findall(module, text), re.findall(script, text)
    assert min(len(modules), len(scripts)) > 5
    assert [path for path in modules if not list((ROOT / "src" / "cmalight").rglob(path))] == []
    assert [path for path in scripts if not (ROOT / path).exists()] == []


def test_pages_name_all_rooms_outcomes_and_constants_of_the_watchdog():
    rooms = {room for floor in FLOORS for room in floor} - {"errors", "files", "__main__"}
    assert [room for room in rooms if f"{room}/" not in PAGES["docs/contribute/architecture.md"]] == []
    constants = Watchdog.__dataclass_fields__
    assert [name for name in constants if f"`{name}`" not in PAGES["docs/understand/watchdog.md"]] == []
    explained = set(re.findall(r"`(\w+?)(?:_\.\.\.)?`", PAGES["docs/reference/outcomes.md"]))
    outcomes = {outcome.name.lower() for outcome in cmalight.Outcome}
    assert [name for name in outcomes if not explained & {name, name.partition("_")[0]}] == []


def test_the_lines_of_the_listings_are_marked_in_the_rules():
    texts = [path.read_text() for path in (ROOT / "src" / "cmalight" / "rules").glob("*.py")]
    comments = re.findall(r"# line (.*)$", "\n".join(texts), re.MULTILINE)
    marked = {int(number) for comment in comments for number in re.findall(r"\d+", comment)}
    assert marked >= {2, 3, 6, 7, 8, 10, 11, 13, 14, 15, 17, 18, 21, 22}


def test_the_version_is_the_same_everywhere():
    """The changelog has a section for it, with a date."""
    version = cmalight.__version__
    assert script("tools/release.py").naming_another(ROOT, version) == []
    assert re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", CHANGES, re.MULTILINE)


def test_the_changelog_keeps_its_form():
    """Keep a Changelog: versions in brackets, the kinds of change in its order, each once and as one list."""
    versions = re.split(r"^## ", CHANGES, flags=re.MULTILINE)[1:]
    assert versions[0].startswith("[Unreleased]\n")
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for version in versions:
        _, *parts = re.split(r"^### (.*)$", version, flags=re.MULTILINE)
        assert parts[::2] == [kind for kind in kinds if kind in parts[::2]]
        assert [one for one in parts[1::2] if "\n\n" in one.strip()] == []


# Code that pages show.


@pytest.fixture
def problem():
    """The names that pages take for granted."""
    torch.manual_seed(0)
    x = torch.randn(200, 3)
    y = x.sum(1, keepdim=True).sin()
    loader = list(zip(x.split(20), y.split(20), strict=True))
    model = nn.Sequential(nn.Linear(3, 10), nn.Tanh(), nn.Linear(10, 1))
    return {"torch": torch, "x": x, "y": y, "loader": loader, "loss_fn": nn.MSELoss(), "epochs": 5, "model": model}


def test_the_readmes_loops_train(problem):
    objective = cmalight.Objective(problem["model"], problem["loss_fn"], problem["loader"])
    for block in python_blocks("README.md"):
        before = objective()
        exec(block, problem)
        assert objective() < before
    base = re.search(r"`(Controlled\(.*?\), model\))`", README)[1]
    assert isinstance(eval(base, {**problem, "Controlled": cmalight.Controlled}), cmalight.Controlled)


@pytest.mark.filterwarnings("ignore:torch.cuda.amp|User provided device_type")
@pytest.mark.filterwarnings("ignore:.*has no schedule")
@pytest.mark.parametrize(
    ("page", "blocks", "printed"),
    [
        ("docs/guides/loop.md", None, "window of 5 steps kept"),
        ("docs/guides/cmalight.md", 1, "(line "),
        ("docs/guides/fit.md", 1, "30 epochs done"),
        ("docs/llms.txt", 1, "kept"),
    ],
)
def test_the_blocks_of_a_page_run(problem, page, blocks, printed, capsys):
    for block in python_blocks(page)[:blocks]:
        exec(block, problem)
    assert printed in capsys.readouterr().out


def test_the_five_minutes_run_and_resume(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    loop, one_call = python_blocks("docs/start/five-minutes.md")
    exec(loop, {})
    assert float(re.search(r"final loss (\S+)", capsys.readouterr().out)[1]) < 0.05
    for epochs, printed in ((30, "30 epochs done"), (30, "nothing left to train: 30 epochs done"), (31, "31 epochs")):
        exec(one_call.replace("max_epochs=30", f"max_epochs={epochs}"), {})
        assert printed in capsys.readouterr().out


def run_with_checkpoints(path, epochs):
    """The loop of the page on checkpoints, made anew as after a crash: the weights it ends with."""
    torch.manual_seed(0)
    x = torch.rand(60, 3)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True).sin()), batch_size=10, shuffle=True)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1), nn.Linear(4, 1))
    objective = cmalight.Objective(model, nn.MSELoss(), loader)
    optimizer = cmalight.Auto(model, objective=objective, total_steps=6 * len(loader))

    def train_one_epoch():
        for inputs, target in loader:
            loss = nn.functional.mse_loss(model(inputs), target)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()

    names = {"torch": torch, "model": model, "optimizer": optimizer, "path": path, "epochs": epochs}
    loop = next(block for block in python_blocks("docs/guides/checkpoints.md") if "train_one_epoch()" in block)
    exec(loop, {**names, "train_one_epoch": train_one_epoch})
    return nn.utils.parameters_to_vector(model.parameters())


def test_the_loop_with_checkpoints_resumes_bit_for_bit(tmp_path):
    whole = run_with_checkpoints(tmp_path / "whole.pt", 6)
    assert not torch.equal(run_with_checkpoints(tmp_path / "run.pt", 3), whole)
    assert torch.equal(run_with_checkpoints(tmp_path / "run.pt", 6), whole)


def test_every_page_with_code_is_run_by_a_test():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    with_code = [Path(name).name for name, text in PAGES.items() if "```python\n" in text]
    assert [name for name in with_code if f'{name}"' not in tests] == []
