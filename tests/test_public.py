"""What is public is documented, completely: every class, function, method, argument, field, result and exception."""

import ast
import dataclasses
import enum
import inspect
import pkgutil
import re
import textwrap
from pathlib import Path

import pytest

import cmalight
from cmalight import bench, datasets, models, training

PAGES = Path(__file__).parent.parent / "docs" / "reference" / "api"
NAMED = [getattr(module, name) for module in (cmalight, bench, datasets, models, training) for name in module.__all__]
NAMED += [cmalight.WatchedClassifier, cmalight.WatchedRegressor]
THINGS = list(dict.fromkeys(thing for thing in NAMED if inspect.isclass(thing) or inspect.isfunction(thing)))
KINDS = [thing for thing in THINGS if inspect.isclass(thing)]


def full_name(thing):
    return f"{thing.__module__}.{thing.__qualname__}"


def is_ours(thing):
    return (getattr(thing, "__module__", None) or "").startswith("cmalight")


def members(kind):
    """The public functions and properties that the package defines, by their names."""
    for name, member in ((name, member) for one in kind.__mro__ if is_ours(one) for name, member in vars(one).items()):
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and (inspect.isfunction(function) or isinstance(member, property)):
            yield name, function


METHODS = {
    full_name(function): (kind, name, function)
    for kind in KINDS
    for name, function in members(kind)
    if inspect.isfunction(function)
}
FUNCTIONS = METHODS | {full_name(one): (None, one.__name__, one) for one in THINGS if inspect.isfunction(one)}


def arguments(function):
    """The names of a signature, but for `self` and those that a library's hook is given."""
    names = [name for name, one in inspect.signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD]
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def section(docstring, title):
    """The names that are described one by one under a title of Google's style."""
    found = re.findall(rf"^{title}:\n((?:    .*\n?|\n)*)", inspect.cleandoc(docstring or ""), re.MULTILINE)
    return set(re.findall(r"^    \*?(\w+)(?: \([^)]*\))?:", "\n".join(found), re.MULTILINE))


def test_the_api_reference_lists_what_is_public():
    text = "\n".join(page.read_text() for page in PAGES.glob("*.md"))
    listed = re.findall(r"^\.\. auto\w+:: ([\w.]+)", text, re.MULTILINE)
    found = [pkgutil.resolve_name(":".join(name.rsplit(".", 1))) for name in listed]
    assert [one for one in THINGS if not any(one is thing for thing in found)] == []


def test_everything_public_has_a_docstring():
    described = [one for kind in KINDS for _, one in members(kind)]
    assert [one for one in (*THINGS, *described) if not inspect.getdoc(one)] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_function_takes_gives_and_raises_by_itself_is_described(name):
    """What overrides another function is described with it; another library describes what overrides its own."""
    kind, short, function = FUNCTIONS[name]
    homes = [one for one in kind.__mro__ if short in vars(one)] if kind else []
    if all(map(is_ours, homes)):
        overridden = [getattr(vars(one)[short], "__func__", vars(one)[short]) for one in homes] or [function]
        text = "\n\n".join(inspect.getdoc(one) or "" for one in overridden)
        assert [one for one in arguments(function) if one not in section(text, "Args")] == []
        told = text.startswith("Return") or re.search("^(Returns|Yields):$", text, re.MULTILINE)
        assert told or function.__annotations__.get("return") == "None"
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    raised = [node for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
    assert not raised or section(function.__doc__, "Raises")


@pytest.mark.parametrize("kind", KINDS, ids=full_name)
def test_every_argument_and_field_of_a_class_is_described_by_itself(kind):
    own = [one for one in kind.__mro__ if is_ours(one)]
    described = set().union(*(section(one.__doc__, title) for one in own for title in ("Args", "Attributes")))
    wanted = []
    if dataclasses.is_dataclass(kind):
        wanted = [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    elif not issubclass(kind, enum.Enum | Exception) and not getattr(kind, "_is_protocol", False):
        described |= section(kind.__init__.__doc__, "Args")
        wanted = arguments(kind.__init__) if any("__init__" in vars(one) for one in own) else []
    assert [one for one in wanted if one not in described] == []
