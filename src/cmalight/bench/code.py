"""Which code takes part in a run: the package's and the user's, by content, without comments and docstrings."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from cmalight.errors import unknown_name

_PACKAGE = Path(__file__).parents[1]
_ROOMS = (  # that take part in every run
    *("errors.py", "evaluation", "training", "compiled", "datasets", "models"),
    *("bench/training.py", "bench/problems.py"),
)
_METHODS = ("optim", "rules")  # the solver decides which files of these
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def is_user_code(name: str) -> bool:
    """Whether a name stands for the user's code, "file.py:name"."""
    return name.partition(":")[0].endswith(".py")


def is_table(name: str) -> bool:
    """Whether a data set is the user's file, "file.csv:target=column" or the same for parquet."""
    return name.partition(":")[0].endswith((".csv", ".parquet"))


def code_digest(solver: str, *names: str) -> str:
    """Digest of the code that takes part in a run of this solver, of the package and of the user.

    Of the package these are the rooms that train, measure and read data, and from `optim` and `rules` what the module
    of the solver imports; all of both if a file of the user imports the package. The user's files are those among the
    names, such as that of a network, and what they import.
    """
    places = [Path(name.partition(":")[0]) for name in (solver, *names) if is_user_code(name)]
    users = {file for place in places for file in _with_imports(place, place.parent)}
    rooms = (*_ROOMS, *(_METHODS if any(map(_needs_methods, users)) else ()))
    package = set() if is_user_code(solver) else set(_methods_of(solver))
    for place in (_PACKAGE / room for room in rooms):
        package |= {file for file in (place, *place.rglob("*")) if file.suffix in (".py", ".cpp", ".toml")}
    parts = [f"{file.name} {_digest(file)}" for file in users]
    parts += [f"{file.relative_to(_PACKAGE)} {_package_digest(file)}" for file in package]
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


@functools.cache
def _methods_of(solver: str) -> set[Path]:
    """The file of the package that defines a solver, and what it imports; none for other libraries' solvers."""
    from cmalight.training.solvers import make_solver

    made: Any = make_solver(solver).make
    while isinstance(made, functools.partial):
        made = made.func
    package, _, rest = made.__module__.partition(".")
    module = _PACKAGE.joinpath(*rest.split(".")).with_suffix(".py")
    rooms = tuple(f"cmalight.{room}." for room in _METHODS)
    return _with_imports(module, _PACKAGE.parent, rooms) if package == "cmalight" else set()


def _needs_methods(file: Path) -> bool:
    """Whether a user's file imports more of the package than the test-bed."""
    imports = [name.split(".") for name in _imports(file)]
    return any(package == "cmalight" and rest[:1] != ["bench"] for package, *rest in imports)


def imported(name: str) -> Callable[..., Any]:
    """The user's callable "file.py:name"; ValueError if there is none."""
    file, _, attribute = name.partition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise ValueError(f"{name}: there is no file {path}")
    module = _module(path, _digest(path))
    found = getattr(module, attribute, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ValueError(f"{path}: {unknown_name('callable', attribute, known)}")
    return found  # type: ignore[no-any-return]


@functools.lru_cache
def _module(path: Path, digest: str) -> ModuleType:
    """The file as a module of its own, so that two files of one name do not meet; modules beside it are found, too."""
    name = f"cmalight_user_{digest[:12]}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    _refuse_namesakes(path)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _refuse_namesakes(path: Path) -> None:
    """Raise if Python would import another module in the place of one beside the user's file."""
    root = path.parent
    for file in sorted(_with_imports(path, root) - {path}):
        name = file.relative_to(root).parts[0].removesuffix(".py")
        found = importlib.util.find_spec(name)
        places = [found.origin] if found and found.origin else (found and found.submodule_search_locations) or []
        for place in map(Path, places):
            if place.parent.resolve() not in (root, (root / name).resolve()):
                raise ValueError(f"{file} and {place} have one module name, {name}; rename one")


def _digest(file: Path) -> str:
    content = file.read_bytes()
    if file.suffix == ".py":
        with contextlib.suppress(SyntaxError):  # importing it says what is wrong
            content = ast.dump(_without_docstrings(ast.parse(content))).encode()
    return hashlib.sha256(content).hexdigest()


_package_digest = functools.cache(_digest)  # the code of this process does not change


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _with_imports(file: Path, root: Path, prefixes: tuple[str, ...] = ("",)) -> set[Path]:
    """The file, the files at `root` that it imports by names that begin so, and those that they import."""
    found: set[Path] = set()
    new = {file} if file.is_file() else set()
    while new:
        found |= new
        beside = (
            folder.joinpath(*name.split("."))
            for one in new
            for name, folder in itertools.product(_imports(one), (root, one.parent))
            if name.startswith(prefixes)
        )
        places = (place for path in beside for place in (path.with_suffix(".py"), path / "__init__.py"))
        new = set(filter(Path.is_file, places)) - found
    return found


def _imports(file: Path) -> set[str]:
    """What a file imports, wherever; of `from a import b` both `a` and `a.b`, because b may be a module."""
    names: set[str] = set()
    with contextlib.suppress(SyntaxError):  # importing it says what is wrong
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {node.module or "", *(f"{node.module or ''}.{alias.name}".strip(".") for alias in node.names)}
    return names - {""}
