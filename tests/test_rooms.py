"""The house: dependencies point one way, nobody reaches into another's private names, no class is a heap."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "cmalight"

# From the ground up; a room may need those before it, and nothing else. Rooms on one line do not need each other.
FLOORS = (
    ("errors", "files", "rules"),
    ("locks", "sealed", "parallel"),
    ("evaluation", "models", "tables"),
    ("optim", "datasets"),
    ("compiled",),
    ("training",),
    ("tabular", "bench.spec"),
    ("integrations", "bench.store"),
    ("bench.running", "bench.analysis"),
    ("bench.report",),
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
    parts = module.split(".")
    if parts[0] == "bench" and len(parts) > 1 and f"bench.{parts[1]}" in FLOOR:
        return f"bench.{parts[1]}"
    return parts[0]


def imports_of(tree):
    """The modules of the package that it imports, wherever: at the top, inside functions, for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name.removeprefix("cmalight.") for a in node.names if a.name.startswith("cmalight."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cmalight":
            home = node.module.removeprefix("cmalight").lstrip(".")
            for alias in node.names:
                inner = f"{home}.{alias.name}".lstrip(".")
                if inner in MODULES:
                    yield inner
                elif home:
                    yield home


@pytest.mark.parametrize("module", [name for name in MODULES if name])
def test_a_room_needs_those_below_it_alone(module):
    own = room_of(module)
    upward = {
        needed
        for needed in imports_of(MODULES[module])
        if room_of(needed) != own and FLOOR[room_of(needed)] >= FLOOR[own]
    }
    assert not upward, f"{module} is in {own}, and needs {sorted(upward)}, which are not below it"


def test_no_two_modules_need_each_other():
    needs = {name: set(imports_of(tree)) - {name, ""} for name, tree in MODULES.items() if name}
    while loose := [name for name, needed in needs.items() if not needed & needs.keys()]:
        for name in loose:
            del needs[name]
    # A package's __init__ and its modules: `from cmalight.optim import X` names the package.
    assert not needs, f"in a circle: {sorted(needs)}"


def test_few_private_names_are_reached_from_another_module():
    owners = defaultdict(set)
    for name, tree in MODULES.items():
        for private in private_definitions(tree):
            owners[private].add(name)
    reached = sorted(
        f"{name}:{node.lineno} {node.attr}"
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and is_private(node.attr) and is_foreign(node)
        if owners.get(node.attr) and name not in owners[node.attr]
    )
    assert len(reached) <= 8, "\n".join(reached)


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


@pytest.mark.parametrize("module", [name for name in MODULES if name])
def test_no_class_has_more_than_twenty_methods(module):
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.ClassDef):
            methods = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
            assert len(methods) <= 20, f"{node.name} has {len(methods)}"


def test_the_top_level_holds_few_modules():
    assert len(list(SOURCE.glob("*.py"))) <= 6
