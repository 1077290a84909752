"""What is built, what is in it, what is pinned, and that nothing but torch is needed."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cmalight
from tests.helpers import script

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()


def call(*command, check=True, path="", **options):
    """The finished process."""
    environment = {**os.environ, "PYTHONPATH": str(path)}
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


# What is published.


@pytest.mark.slow
def test_sdist_and_wheel_have_what_they_need_and_pass_twine(built):
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    linked = re.findall(r"\]\((?!https?:)([^)#\s]+)", README)
    needed = ("Makefile", "constraints.txt", "pyproject.toml", "tests/conftest.py", "examples/raw_loop.py")
    assert {*needed, *linked} <= names
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".toml", ".cpp", ".typed")]
    assert {path.relative_to(ROOT / "src").as_posix() for path in sources} <= names
    assert {name.partition("/")[0] for name in names} == {"cmalight", f"cmalight-{cmalight.__version__}.dist-info"}
    call(sys.executable, "-m", "twine", "check", "--strict", *built)


@pytest.mark.slow
def test_the_metadata_are_those_of_the_project(built):
    with zipfile.ZipFile(built[1]) as wheel:
        metadata = wheel.read(f"cmalight-{cmalight.__version__}.dist-info/METADATA").decode()
    fields = re.findall(r"^([\w-]+): (.*)$", metadata, re.MULTILINE)
    assert ("Metadata-Version", "2.4") in fields  # twine before 7 refuses a newer one
    assert ("Author", "The CMALight maintainers") in fields
    assert {("Classifier", one) for one in PROJECT["classifiers"]} <= set(fields)
    assert {("Provides-Extra", one) for one in PROJECT["optional-dependencies"]} <= set(fields)
    always = [value for name, value in fields if name == "Requires-Dist" and "extra ==" not in value]
    assert always == PROJECT["dependencies"] == [f"torch>={oldest_torch()}"]
    assert "# cmalight" in metadata
    assert "](docs/" not in metadata


@pytest.mark.parametrize("repository", ["", "owner/name"])
def test_no_link_of_the_published_page_leads_to_a_file_that_is_not_there(repository):
    pytest.importorskip("hatchling")
    module = script("tools/metadata.py")
    page = module.readable_anywhere(README, repository, "1.2.3")
    targets = re.findall(r"\]\(([^)\s]+)\)", page)
    assert [target for target in targets if not target.startswith("https://")] == []
    ours = [target.partition("/v1.2.3/")[2] for target in targets if "owner/name" in target]
    assert [path for path in ours if not (ROOT / path.partition("#")[0]).exists()] == []
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert pictures
    assert {picture in ours for picture in pictures} == {bool(repository)}
    assert bool(module.addresses(repository, "1.2.3")) == bool(repository)


# What is claimed of other packages, and pinned.


def oldest_torch():
    (torch,) = PROJECT["dependencies"]
    return re.fullmatch(r"torch>=([\d.]+)", torch)[1]


@pytest.mark.parametrize(("workflow", "command"), [("ci", "make test"), ("oldest", "make test-oldest")])
def test_the_tests_run_on_the_oldest_python_that_is_claimed(workflow, command):
    steps = yaml.safe_load((ROOT / f".github/workflows/{workflow}.yml").read_text())["jobs"]["test"]["steps"]
    (python,) = [step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", "")]
    assert python == PROJECT["requires-python"].removeprefix(">=")
    assert command in [step.get("run") for step in steps]


@pytest.mark.parametrize("page", ["start/install.md", "reference/versions.md"])
def test_the_pages_name_the_oldest_torch(page):
    assert f"torch {oldest_torch()}" in " ".join((ROOT / "docs" / page).read_text().split())


def pins(text):
    """By name: the pinned requirement, and the hashes of its files."""
    entries = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace(" \\\n", "").splitlines()
    parts = ((Requirement(line.partition(" --hash=")[0]), re.findall(r"--hash=sha256:(\S+)", line)) for line in entries)
    return {canonicalize_name(pin.name): (pin, hashes) for pin, hashes in parts}


def test_every_requirement_is_pinned_with_its_hashes_at_a_version_it_allows():
    """Torch is pinned in the Makefile: its build, and so its hash, depends on the machine."""
    pinned = pins((ROOT / "constraints.txt").read_text())
    for pin, hashes in pinned.values():
        assert re.fullmatch(r"==[^,*]+", str(pin.specifier)), pin
        assert hashes, pin
        assert all(re.fullmatch("[0-9a-f]{64}", value) for value in hashes), pin
    assert "torch" not in pinned
    torch = re.search(r"^TORCH \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    pinned["torch"] = (Requirement(f"torch=={torch}"), [])
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    for requirement in map(Requirement, lines):
        if requirement.name != "cmalight":
            pin, _ = pinned[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(str(pin.specifier).removeprefix("==")), requirement


# With torch alone.


EXTRAS = ("click", "numpy", "pandas", "plotly", "pooch", "pyarrow", "pydantic", "requests", "rich", "scipy", "sklearn")
TORCH_ALONE = f"import runpy, sys, warnings; sys.modules |= dict.fromkeys({EXTRAS}); "
TORCH_ALONE += "warnings.filterwarnings('ignore', 'Failed to initialize NumPy'); "


def with_torch_alone(code, *arguments, check=True, **options):
    """A process of the sources in which nothing else can be imported."""
    return call(sys.executable, "-c", TORCH_ALONE + code, *arguments, check=check, path=ROOT / "src", **options)


@pytest.mark.slow
def test_the_five_minutes_need_torch_alone(tmp_path):
    page = (ROOT / "docs" / "start" / "five-minutes.md").read_text()
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL)):
        (tmp_path / f"{number}.py").write_text(block)
        with_torch_alone("runpy.run_path(sys.argv[1])", tmp_path / f"{number}.py", cwd=tmp_path)
    assert (tmp_path / "run.pt").exists()


def test_what_needs_more_than_torch_says_how_to_get_it():
    missing = with_torch_alone("from cmalight import WatchedRegressor", check=False).stderr
    assert 'pip install "cmalight[sklearn]"' in missing.splitlines()[-1]
    run = "sys.argv[0] = 'cmalight'; runpy.run_module('cmalight', run_name='__main__')"
    assert with_torch_alone(run, "--version").stdout == f"cmalight {cmalight.__version__}\n"
    done = with_torch_alone(run, "demo", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'cmalight: error: the command needs click: pip install "cmalight[bench]"\n'
