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

ROOT = Path(__file__).parent.parent
MODULES = (cmalight, bench, datasets, models, training)
OTHERS = (cmalight.WatchedClassifier, cmalight.WatchedRegressor)
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
    found = re.findall(rf"^{title}:\n((?:    .*\n?|\n)*)", inspect.cleandoc(docstring), re.MULTILINE)
    return set(re.findall(r"^    \*?(\w+)(?: \([^)]*\))?:", "\n".join(found), re.MULTILINE))


def test_the_api_reference_lists_what_is_public():
    pages = (ROOT / "docs" / "reference" / "api").glob("*.md")
    listed = [
        name for page in pages for name in re.findall(r"^\.\. auto\w+:: ([\w.]+)", page.read_text(), re.MULTILINE)
    ]
    things = [pkgutil.resolve_name(":".join(name.rsplit(".", 1))) for name in listed]
    assert [one for one in PUBLIC.values() if not any(one is thing for thing in things)] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_a_docstring(name):
    thing = PUBLIC[name]
    assert thing.__doc__
    if inspect.isclass(thing):
        assert [n for n, function in methods(thing) if not inspect.getdoc(function)] == []


def described(kind, name, function):
    """What is said of a function, also where it overrides another; None where that is another library's."""
    overridden = [vars(one)[name] for one in kind.__mro__ if name in vars(one)] if kind else [function]
    foreign = any(name in vars(one) for one in kind.__mro__ if not is_ours(one)) if kind else False
    own = [getattr(one, "__func__", one) for one in overridden if is_ours(one)]
    return None if foreign else "\n\n".join(inspect.getdoc(one) or "" for one in own)


def is_ours(thing):
    return getattr(getattr(thing, "__func__", thing), "__module__", "").startswith("cmalight")


FUNCTIONS = {
    f"{function.__module__}.{function.__qualname__}": (thing if inspect.isclass(thing) else None, name, function)
    for thing in PUBLIC.values()
    for name, function in (methods(thing) if inspect.isclass(thing) else [(thing.__name__, thing)])
    if inspect.isfunction(function)
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_function_takes_gives_and_raises_by_itself_is_described(name):
    *_, function = FUNCTIONS[name]
    if (text := described(*FUNCTIONS[name])) is not None:
        assert [one for one in arguments(function) if one not in section(text, "Args")] == []
        told = text.startswith("Return") or re.search("^(Returns|Yields):$", text, re.MULTILINE)
        assert told or function.__annotations__.get("return") == "None"
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    raised = [node for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
    assert not raised or section(inspect.getdoc(function), "Raises")


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
