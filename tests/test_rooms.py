"""The house: dependencies point one way, and nobody reaches into another's private names."""

import ast
from collections import Counter, defaultdict
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
NODES = [(module, node) for module, tree in MODULES.items() for node in ast.walk(tree)]


def room_of(module):
    return module.partition(".")[0]


def is_ours(node):
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cmalight"


def imports_of(tree):
    """The modules of the package that it imports, wherever: at the top, inside functions, or by a name in a string."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    loggers = {id(arg) for call in calls if ast.unparse(call.func) == "logging.getLogger" for arg in call.args}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name.removeprefix("cmalight.") for a in node.names if a.name.startswith("cmalight."))
        elif is_ours(node):
            home = node.module.removeprefix("cmalight").lstrip(".")
            names = [f"{home}.{alias.name}".lstrip(".") for alias in node.names]
            yield from (name if name in MODULES else home for name in names if name in MODULES or home)
        elif isinstance(node, ast.Constant) and id(node) not in loggers and str(node.value).startswith("cmalight."):
            named = str(node.value).removeprefix("cmalight.")
            yield from [named] if named and named in MODULES else []


def at_run_time(tree):
    """The syntax tree without what is imported for types only."""
    body = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    return ast.Module(body=body, type_ignores=[])


def test_a_room_needs_those_below_it_alone():
    assert [name for name in MODULES if name and room_of(name) not in FLOOR] == []
    relative = [(module, node.lineno) for module, node in NODES if isinstance(node, ast.ImportFrom) and node.level]
    assert relative == []  # the whole name is what this test can follow
    needs = {module: {room_of(one) for one in imports_of(tree)} for module, tree in MODULES.items() if module}
    upward = [
        f"{module} needs {room}"
        for module, rooms in needs.items()
        for room in rooms - {room_of(module)}
        if FLOOR[room] >= FLOOR[room_of(module)]
    ]
    assert upward == []


def test_no_two_modules_need_each_other():
    needs = {name: set(imports_of(at_run_time(tree))) - {name, ""} for name, tree in MODULES.items() if name}
    while loose := [name for name, needed in needs.items() if not needed & needs.keys()]:
        for name in loose:
            del needs[name]
    # A package's __init__ and its modules: `from cmalight.optim import X` names the package.
    assert needs == {}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def private_definitions(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and is_private(node.name):
            yield node.name
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_private(node.attr):
            yield node.attr


def test_no_private_name_is_reached_from_another_module():
    """Torch's own are not ours to hide; those of `self` and `super()` are a class's own."""
    owners = defaultdict(set)
    for module, tree in MODULES.items():
        for private in private_definitions(tree):
            owners[private].add(module)
    reached = [
        f"{module}:{node.lineno} {node.attr}"
        for module, node in NODES
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls", "super()")
        if owners.get(node.attr) and module not in owners[node.attr] and not hasattr(nn.Module(), node.attr)
    ]
    imported = [(module, alias.name) for module, node in NODES if is_ours(node) for alias in node.names]
    assert reached == []
    assert [one for one in imported if is_private(one[1])] == []


def test_a_name_is_that_of_one_class():
    """Where a reader meets it again, it is the same thing."""
    classes = [node.name for tree in MODULES.values() for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [name for name, count in Counter(classes).items() if count > 1 and not is_private(name)] == []
