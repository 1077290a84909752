"""Which code trains: the package's and the user's, by content, without comments and docstrings."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from cmalight.errors import unknown_name

# Everything that decides what a run computes, relative to the package.
_TRAINING = (
    *("errors.py", "rules", "evaluation", "optim", "compiled", "training", "models", "datasets"),
    *("bench/training.py", "bench/problems.py", "bench/workloads.py"),
)
_PACKAGE = Path(__file__).parents[1]
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def is_own(name: str) -> bool:
    """Whether a name stands for the user's own code, "file.py:name"."""
    return name.partition(":")[0].endswith(".py")


@functools.cache
def package_digest() -> str:
    """Digest of the package's code that trains, without comments, docstrings and layout."""
    places = [_PACKAGE / name for name in _TRAINING]
    files = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    files = [file for file in files if file.is_file() and "__pycache__" not in file.parts]
    parts = [f"{file.relative_to(_PACKAGE).as_posix()} {_digest(file)}" for file in files]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def code_digest(*names: str) -> str:
    """Digest of the package's code and of the user's files among `names`, with the modules beside them they import."""
    own = {Path(name.partition(":")[0]) for name in names if is_own(name)}
    files = sorted({found for file in own for found in _with_imports(file)})
    parts = [package_digest(), *(f"{file.name} {_digest(file)}" for file in files)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def imported(name: str) -> Callable[..., Any]:
    """The user's own callable "file.py:name"; ValueError if it cannot be had."""
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


def arguments_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The arguments of a callable by name; none for a callable of C that does not say."""
    try:
        return inspect.signature(function).parameters
    except ValueError:
        return {}


@functools.lru_cache
def _module(path: Path, digest: str) -> ModuleType:
    """The file as a module of its own, so that two files of one name do not meet; modules beside it are found, too."""
    name = f"cmalight_own_{digest[:12]}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _digest(file: Path) -> str:
    content = file.read_bytes()
    if file.suffix == ".py":
        with contextlib.suppress(SyntaxError):  # importing it says what is wrong
            content = ast.dump(_without_docstrings(ast.parse(content))).encode()
    return hashlib.sha256(content).hexdigest()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _with_imports(file: Path) -> set[Path]:
    """The file, and the modules in its folder that it imports, and those that they import."""
    found: set[Path] = set()
    new = {file} if file.is_file() else set()
    while new:
        found |= new
        new = {beside for one in new for beside in _imports(one, file.parent)} - found
    return found


def _imports(file: Path, root: Path) -> Iterator[Path]:
    """The files of the user that a file imports."""
    names: set[str] = set()
    with contextlib.suppress(SyntaxError):  # importing it says what is wrong
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {node.module or "", *(f"{node.module or ''}.{alias.name}".strip(".") for alias in node.names)}
    for name, folder in itertools.product(names - {""}, (root, file.parent)):
        beside = folder.joinpath(*name.split("."))
        yield from filter(Path.is_file, (beside.with_suffix(".py"), beside / "__init__.py"))
