"""What is public is documented, completely: every class, function, method, argument and field."""

import dataclasses
import enum
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import cmalight
from cmalight import bench, datasets, models, tabular, training
from cmalight.bench.report.figures import add_figure
from cmalight.bench.store import results
from cmalight.compiled import steps
from cmalight.integrations.lightning import WatchdogCallback
from cmalight.optim.host import EpochOptimizer
from cmalight.rules.rule import Decision, Evaluations, InnerCycle, Known, Rule
from cmalight.tabular import model_file
from cmalight.training.checkpoints import checkpoint

ROOT = Path(__file__).parent.parent
VERSIONS = (ROOT / "docs" / "reference" / "versions.md").read_text()
MODULES = (cmalight, bench, datasets, tabular, training)
NETWORKS = ("layered", "paper_network", "resnet", "network_to_dict", "network_from_dict")
OTHERS = (
    cmalight.CMALightClassifier,
    cmalight.CMALightRegressor,
    *(getattr(models, name) for name in NETWORKS),
    WatchdogCallback,
    EpochOptimizer,
    Rule,
    InnerCycle,
    Known,
    Evaluations,
    Decision,
    steps.StepRule,
    steps.register,
    add_figure,
)
PUBLIC = {
    f"{thing.__module__}.{thing.__qualname__}": thing
    for thing in (*(getattr(module, name) for module in MODULES for name in module.__all__), *OTHERS)
    if inspect.isclass(thing) or inspect.isfunction(thing)
}


def methods(kind):
    """Those that the package defines; a class that is only told, as a protocol or a hook, has none to call."""
    for one in kind.__mro__:
        if one.__module__.startswith("cmalight"):
            for name, member in vars(one).items():
                function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
                if not name.startswith("_") and (inspect.isfunction(function) or isinstance(member, property)):
                    yield name, function


def arguments(function):
    """The names of a signature, but for `self` and those that a library's hook is given."""
    names = [name for name, one in inspect.signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD]
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def section(docstring, title):
    """The names that are described one by one under a title of Google's style."""
    found = re.search(rf"^{title}:\n((?:    .*\n?|\n)*)", inspect.cleandoc(docstring), re.MULTILINE)
    return set(re.findall(r"^    \*?(\w+)(?: \([^)]*\))?:", found[1], re.MULTILINE)) if found else set()


def test_the_page_on_versions_names_the_formats_of_files():
    page = " ".join(VERSIONS.split())
    assert f"checkpoints of `fit` (format {checkpoint.VERSION};" in page
    assert f"networks saved by `cmalight train` (format {model_file.VERSION})" in page
    assert f"results of the test-bed (format {results.VERSION})" in page


def test_the_page_on_versions_names_the_public_modules():
    named = [*(module.__name__ for module in MODULES), *(thing.__name__ for thing in OTHERS)]
    assert [name for name in named if f"`{name}`" not in VERSIONS] == []


def test_the_api_reference_lists_what_is_public():
    pages = (ROOT / "docs" / "reference" / "api").glob("*.md")
    listed = [
        name for page in pages for name in re.findall(r"^\.\. auto\w+:: ([\w.]+)", page.read_text(), re.MULTILINE)
    ]
    things = [pkgutil.resolve_name(":".join(name.rsplit(".", 1))) for name in listed]
    public = [*(getattr(module, name) for module in MODULES for name in module.__all__), *OTHERS]
    assert [name for name, thing in zip(listed, things, strict=True) if not any(thing is one for one in public)] == []
    assert [one for one in public if not any(one is thing for thing in things)] == [cmalight.__version__]


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_a_docstring(name):
    thing = PUBLIC[name]
    assert thing.__doc__
    if inspect.isclass(thing):
        assert [n for n, function in methods(thing) if not inspect.getdoc(function)] == []


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if inspect.isfunction(thing)])
def test_every_argument_of_a_function_is_described_by_itself(name):
    function = PUBLIC[name]
    assert [one for one in arguments(function) if one not in section(function.__doc__, "Args")] == []


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if inspect.isclass(thing)])
def test_every_argument_and_field_of_a_class_is_described_by_itself(name):
    kind = PUBLIC[name]
    own = [one for one in kind.__mro__ if one.__module__.startswith("cmalight")]
    described = set().union(*(section(one.__doc__ or "", title) for one in own for title in ("Args", "Attributes")))
    if dataclasses.is_dataclass(kind):
        wanted = [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    elif issubclass(kind, enum.Enum | Exception) or getattr(kind, "_is_protocol", False):
        wanted = []
    else:
        described |= section(kind.__init__.__doc__ or "", "Args")
        wanted = arguments(kind.__init__) if any("__init__" in vars(one) for one in own) else []
    assert [one for one in wanted if one not in described] == []
