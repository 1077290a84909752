"""What is built, what is in it, and that it works where nothing but torch is installed."""

import functools
import http.server
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import threading
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cmalight
from tests.helpers import script

ROOT = Path(__file__).parent.parent


def call(*command, check=True, **options):
    """The finished process; PYTHONPATH would lead back to the sources."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(part) for part in command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0 or not check, done.stderr
    return done


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from it and from nothing else."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def empty_environment(built, tmp_path_factory):
    """The python of an environment with the wheel, torch, and what torch itself requires."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    site = Path(call(python, "-c", "import site; print(site.getsitepackages()[0])").stdout.strip())
    for name in required("torch"):
        link(name, site)
    call(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", built[1])
    return python


def required(name):
    """A package and everything it requires, without extras."""
    names, waiting = set(), [name]
    while waiting:
        name = waiting.pop()
        if name in names:
            continue
        names.add(name)
        for line in importlib.metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return names


def link(name, site):
    """Torch is large, so that packages are linked and not copied."""
    distribution = importlib.metadata.distribution(name)
    for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
        (site / top).symlink_to(Path(distribution.locate_file(top)).resolve())


def pins(text):
    """By name: the pinned requirement, and the hashes of its files."""
    entries = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace(" \\\n", "").splitlines()
    parts = ((Requirement(line.partition(" --hash=")[0]), re.findall(r"--hash=sha256:(\S+)", line)) for line in entries)
    return {canonicalize_name(pin.name): (pin, hashes) for pin, hashes in parts}


@pytest.mark.slow
def test_the_wheel_has_the_package_and_its_extras(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(next(n for n in names if n.endswith("METADATA"))).decode()
    sources = {str(f.relative_to(ROOT / "src")) for f in (ROOT / "src").rglob("*") if f.suffix in (".py", ".toml")}
    assert sources <= names
    assert "cmalight/py.typed" in names
    assert {name.partition("/")[0] for name in names} == {"cmalight", f"cmalight-{cmalight.__version__}.dist-info"}
    assert {"bench", "sklearn", "tensorboard", "dask", "all"} <= set(
        re.findall(r"^Provides-Extra: (.*)$", metadata, re.MULTILINE)
    )
    without_extras = [r for r in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE) if "extra ==" not in r]
    assert [Requirement(r).name for r in without_extras] == ["torch"]
    assert "Metadata-Version: 2.4\n" in metadata  # the newest that the tools which publish read
    assert "Classifier: Operating System :: POSIX :: Linux\n" in metadata
    assert "Author: The CMALight maintainers\n" in metadata
    assert "# cmalight" in metadata
    assert "](docs/" not in metadata


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(("workflow", "command"), [("ci", "make test"), ("oldest", "make test-oldest")])
def test_the_tests_run_on_the_oldest_python_that_is_claimed(workflow, command):
    steps = yaml.safe_load((ROOT / f".github/workflows/{workflow}.yml").read_text())["jobs"]["test"]["steps"]
    (python,) = [step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", "")]
    assert python == PROJECT["requires-python"].removeprefix(">=")
    assert command in [step.get("run") for step in steps]


def test_the_pages_name_the_oldest_torch_and_no_newer_one_is_refused():
    (torch,) = PROJECT["dependencies"]
    oldest = re.fullmatch(r"torch>=([\d.]+)", torch)[1]
    pages = [
        " ".join((ROOT / "docs" / page).read_text().split()) for page in ("start/install.md", "reference/versions.md")
    ]
    assert [f"torch {oldest}" in page for page in pages] == [True, True]


def test_every_pin_has_the_hashes_of_its_files():
    for pin, hashes in pins((ROOT / "constraints.txt").read_text()).values():
        assert re.fullmatch(r"==[^,*]+", str(pin.specifier)), pin
        assert hashes, pin
        assert all(re.fullmatch("[0-9a-f]{64}", value) for value in hashes), pin


def test_every_requirement_is_pinned_at_a_version_it_allows():
    """Torch is pinned in the Makefile: its build, and so its hash, depends on the machine."""
    pinned = pins((ROOT / "constraints.txt").read_text())
    torch = re.search(r"^TORCH \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    pinned["torch"] = (Requirement(f"torch=={torch}"), [])
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    for requirement in map(Requirement, lines):
        if requirement.name != "cmalight":
            pin = pinned[canonicalize_name(requirement.name)][0]
            assert requirement.specifier.contains(str(pin.specifier).removeprefix("==")), requirement


def test_the_hashes_of_a_pin_are_those_of_all_its_files(tmp_path):
    """In an index as pip reads it: two files of the version, one of another version, one of another package."""
    (tmp_path / "some-package").mkdir()
    links = {"some_package-1.0.tar.gz": "a", "some_package-1.0-py3-none-any.whl": "b", "some_package-1.1.tar.gz": "c"}
    page = "".join(f'<a href="../../files/{name}#sha256={value * 64}">{name}</a>' for name, value in links.items())
    (tmp_path / "some-package" / "index.html").write_text(page)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}"
        before = "# A comment.\nSome.Package==1.0 \\\n    --hash=sha256:old\n"
        text = script("tools/hashes.py").with_hashes(before, index)
        server.shutdown()
    assert text.startswith("# A comment.\nSome.Package==1.0 \\\n    --hash=sha256:")
    assert pins(text)["some-package"][1] == ["a" * 64, "b" * 64]


@pytest.mark.slow
def test_the_sdist_has_what_the_two_commands_and_the_readme_need(built):
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    linked = re.findall(r"\]\((?!https?:)([^)#\s]+)", (ROOT / "README.md").read_text())
    assert {link for link in linked if not link.endswith("/")} <= names
    assert {
        "Makefile",
        "constraints.txt",
        "pyproject.toml",
        "tests/conftest.py",
        "examples/raw_loop.py",
    } <= names


LOOP = """
import torch
from cmalight import CMALight, Objective, fit
from torch import nn
torch.manual_seed(0)
x = torch.rand(100, 3)
data = list(zip(x.split(20), x.sum(1, keepdim=True).split(20)))
model = nn.Linear(3, 1)
optimizer = CMALight(model.parameters())
objective = Objective(model, nn.MSELoss(), data)
for _ in range(5):
    with optimizer.epoch(objective) as epoch:
        for inputs, target in epoch.batches(data):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), target)
            loss.backward()
            epoch.observe(loss, len(target))
            optimizer.step()
print(fit(model, nn.MSELoss(), (x, x.sum(1, keepdim=True)), max_epochs=3, checkpoint="run.pt"))
try:
    from cmalight import WatchedRegressor
except ImportError as missing:
    print(missing)
"""


@pytest.mark.slow
def test_the_loop_and_fit_work_with_torch_alone(empty_environment, tmp_path):
    found = "from importlib.util import find_spec; print(*filter(find_spec, ('numpy', 'click', 'sklearn', 'pytest')))"
    assert call(empty_environment, "-c", found).stdout == "\n"
    call(sys.executable, "-m", "pip", "--python", empty_environment, "check")
    done = call(empty_environment, "-c", LOOP, cwd=tmp_path)
    assert "3 epochs done" in done.stdout
    assert 'pip install "cmalight[sklearn]"' in done.stdout.splitlines()[-1]
    assert (tmp_path / "run.pt").exists()


@pytest.mark.slow
def test_the_command_without_its_extra(empty_environment):
    script = empty_environment.parent / "cmalight"
    assert call(empty_environment, "-m", "cmalight", "--version").stdout == f"cmalight {cmalight.__version__}\n"
    done = call(script, "demo", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'cmalight: error: the command needs click: pip install "cmalight[bench]"\n'


@pytest.mark.parametrize("repository", ["", "owner/name"])
def test_no_link_of_the_published_page_leads_to_a_file_that_is_not_there(repository):
    pytest.importorskip("hatchling")
    module = script("tools/metadata.py")
    page = module.readable_anywhere((ROOT / "README.md").read_text(), repository, "1.2.3")
    targets = re.findall(r"\]\(([^)\s]+)\)", page)
    assert targets
    assert [target for target in targets if not target.startswith("https://")] == []
    ours = [re.split(r"/v1\.2\.3/", target)[1] for target in targets if "owner/name" in target]
    assert [path for path in ours if not (ROOT / path.partition("#")[0]).exists()] == []
    assert bool(ours) == bool(module.addresses(repository, "1.2.3")) == bool(repository)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert pictures
    assert all((picture in page) == bool(repository) for picture in pictures)


@pytest.mark.slow
def test_the_metadata_passes_twine(built):
    call(sys.executable, "-m", "twine", "check", "--strict", *built)
