"""The house: dependencies point one way, nobody reaches into another's private names, no class is a heap."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from torch import nn

SOURCE = Path(__file__).parent.parent / "src" / "cmalight"

# From the ground up; a room may need those before it, and nothing else. Rooms on one line do not need each other.
FLOORS = (
    ("errors", "files", "rules"),
    ("evaluation", "models", "datasets"),
    ("optim",),
    ("compiled",),
    ("training",),
    ("integrations",),
    ("bench",),
    ("cli",),
    ("__main__",),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def modules():
    """Each module by its dotted name below the package, with its syntax tree."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text())
    return found


MODULES = modules()


def room_of(module):
    return module.partition(".")[0]


def imports_of(tree):
    """The modules of the package that it imports, wherever: at the top, inside functions, for types only, by a name."""
    loggers = {
        id(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger"
        for argument in node.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in loggers and str(node.value).startswith("cmalight."):
            named = str(node.value).removeprefix("cmalight.")
            yield from [named] if named in MODULES else []
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("cmalight.") for a in node.names if a.name.startswith("cmalight."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cmalight":
            home = node.module.removeprefix("cmalight").lstrip(".")
            for alias in node.names:
                inner = f"{home}.{alias.name}".lstrip(".")
                if inner in MODULES:
                    yield inner
                elif home:
                    yield home


def test_every_folder_is_a_room_with_a_floor():
    folders = {path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py") if path.parent != SOURCE}
    assert folders <= FLOOR.keys()


def test_a_room_needs_those_below_it_alone():
    upward = []
    for module, tree in MODULES.items():
        relative = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
        assert not relative, f"{module}: import by the whole name, which this test can follow"
        rooms = {room_of(needed) for needed in imports_of(tree)} - {room_of(module)} if module else set()
        upward += [f"{module} needs {room}" for room in rooms if FLOOR[room] >= FLOOR[room_of(module)]]
    assert not upward


def test_no_two_modules_need_each_other():
    """Imports for types only do not count: they are not made at run time."""
    needs = {name: set(imports_of(at_run_time(tree))) - {name, ""} for name, tree in MODULES.items() if name}
    while loose := [name for name, needed in needs.items() if not needed & needs.keys()]:
        for name in loose:
            del needs[name]
    # A package's __init__ and its modules: `from cmalight.optim import X` names the package.
    assert not needs, f"in a circle: { {name: sorted(n & needs.keys()) for name, n in needs.items()} }"


def at_run_time(tree):
    """The syntax tree without what is imported for types only."""
    body = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    return ast.Module(body=body, type_ignores=[])


def test_no_private_name_is_reached_from_another_module():
    """Torch's own are not ours to hide."""
    owners = defaultdict(set)
    for name, tree in MODULES.items():
        for private in private_definitions(tree):
            owners[private].add(name)
    reached = [
        f"{name}:{node.lineno} {node.attr}"
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and is_private(node.attr) and is_foreign(node)
        if owners.get(node.attr) and name not in owners[node.attr] and not hasattr(nn.Module(), node.attr)
    ]
    reached += [
        f"{name}:{node.lineno} {alias.name}"
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cmalight"
        for alias in node.names
        if is_private(alias.name)
    ]
    assert not reached, "\n".join(reached)


def test_no_private_name_of_a_parent_is_used_in_another_room():
    """What a class inherits across rooms is a public seam, and documented."""
    nodes = [(module, node) for module, tree in MODULES.items() for node in tree.body]
    homes = {node.name: (module, node) for module, node in nodes if isinstance(node, ast.ClassDef)}

    def ancestors(node):
        for base in [homes[ast.unparse(one)] for one in node.bases if ast.unparse(one) in homes]:
            yield base
            yield from ancestors(base[1])

    used = []
    for name, (module, node) in homes.items():
        foreign = [parent for home, parent in ancestors(node) if room_of(home) != room_of(module)]
        theirs = {private for parent in foreign for private in private_definitions(parent)}
        own = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and not is_foreign(one)}
        overridden = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        used += [f"{module}: {name} {private}" for private in sorted(theirs & (own | overridden))]
    assert not used, "\n".join(used)


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def is_foreign(node):
    """Not by `self` or `super()`, whose private names are a class's own."""
    value = node.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "super":
        return False
    return not (isinstance(value, ast.Name) and value.id in ("self", "cls"))


def private_definitions(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and is_private(node.name):
            yield node.name
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_private(node.attr):
            yield node.attr


def test_a_library_message_does_not_speak_command_line():
    """An argument is called by its name in Python, and what to do is said so that it holds for both."""
    described_by_docstring = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for module, tree in MODULES.items():
        if room_of(module) in ("cli", "__main__"):
            continue
        nodes = [
            node for node in ast.walk(tree) if isinstance(node, described_by_docstring) and ast.get_docstring(node)
        ]
        docstrings = {id(node.body[0].value) for node in nodes}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                assert not re.search(r"(?<!\w)--[a-z]|`cmalight ", node.value), f"{module}, line {node.lineno}"


def test_a_name_is_that_of_one_class():
    """Where a reader meets it again, it is the same thing."""
    homes = defaultdict(list)
    for module, tree in MODULES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not is_private(node.name):
                homes[node.name].append(module)
    twice = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert not twice
