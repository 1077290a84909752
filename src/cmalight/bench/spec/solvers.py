"""The solvers of the test-bed by name, and those of the user by `module:callable`."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from cmalight.bench.spec.study import Solver, SpecError, is_own_code
from cmalight.datasets.fetching import sha256_of
from cmalight.errors import unknown_name
from cmalight.training.solvers.optimizers import SOLVERS as OPTIMIZERS
from cmalight.training.solvers.optimizers import package

Maker = Callable[..., Optimizer]  # called as `make(parameters, **options)`

_PACKAGES = {"schedule-free-adamw": "schedulefree", "prodigy": "prodigyopt", "prodigy-cosine": "prodigyopt"}
# All samples in one batch, unless the spec says otherwise.
_FULL_BATCH: dict[str, Maker] = {
    "lbfgs": torch.optim.LBFGS,
    "lbfgs-wolfe": lambda params, /, **options: torch.optim.LBFGS(
        params, **{"line_search_fn": "strong_wolfe", **options}
    ),
}
SOLVERS: dict[str, Maker] = {**OPTIMIZERS, **_FULL_BATCH}


def known_solver(solver: Solver) -> Maker:
    """What the name stands for, if it can be imported."""
    if solver.solver in SOLVERS:
        if solver.solver in _PACKAGES:
            package(_PACKAGES[solver.solver])
        return SOLVERS[solver.solver]
    if ":" in solver.solver:
        return imported(solver.solver)
    raise SpecError(f"{unknown_name('solver', solver.solver, SOLVERS)}; or module:callable")


def is_full_batch(solver: Solver) -> bool:
    if solver.full_batch is not None:
        return solver.full_batch
    return solver.solver in _FULL_BATCH


def make_optimizer(solver: Solver, params: Iterable[Tensor]) -> Optimizer:
    optimizer: object = known_solver(solver)(params, **solver.options)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{solver.solver} gave a {type(optimizer).__name__}; expected a torch.optim.Optimizer")
    return optimizer


def check_solver(solver: Solver) -> None:
    """Finds a wrong name or option before hours are spent; a user's own solver is only looked up."""
    known = known_solver(solver)
    if ":" in solver.solver:
        return
    _check_names(solver, known)
    try:
        make_optimizer(solver, [torch.nn.Parameter(torch.zeros(1))])
    except (TypeError, ValueError) as error:
        raise SpecError(f"Invalid options of solver {solver.name}: {error}") from error


def _check_names(solver: Solver, make: Callable[..., Any]) -> None:
    parameters = inspect.signature(make).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return
    known = [one.name for one in parameters][1:]
    for option in solver.options:
        if option not in known:
            raise SpecError(unknown_name(f"option of solver {solver.name}", option, known))


def imported(name: str) -> Callable[..., Any]:
    """`package.module:callable`; a module in the folder where the command was called is found, too."""
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute):
        raise SpecError(f"Invalid name: {name!r}; expected module:callable")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"{name} could not be imported: {error}; is its folder in PYTHONPATH?") from error
    except (Exception, SystemExit) as error:  # whatever a user's module does when it is imported
        raise SpecError(f"{name} could not be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise SpecError(f"{name} is a {type(found).__name__}, which cannot be called")
    made: Callable[..., Any] = found
    return made


def code_digest(*names: str) -> str | None:
    """Of the files of the modules behind `module:callable`; what they import does not count.

    Args:
        names: of solvers and networks.

    Returns:
        None where no name is a user's own.

    Raises:
        SpecError: where one cannot be imported.
    """
    own = [name for name in names if is_own_code(name)]
    files = []
    for name in own:
        imported(name)
        files.append(getattr(sys.modules[name.partition(":")[0]], "__file__", None))
    digests = [sha256_of(Path(file)) if file else "built in" for file in files]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest() if own else None
