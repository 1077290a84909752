"""What would go wrong in the runs of a spec, found before any of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cmalight.bench.code import imported, is_own
from cmalight.bench.spec import DatasetEntry, NetworkEntry, SolverEntry, Spec, WorkloadEntry, solvers_of
from cmalight.errors import unknown_name


def problems_of(spec: Spec) -> Iterator[str]:
    """What cannot work.

    Args:
        spec: Whose keys and values are of the right types.

    Yields:
        One sentence each.
    """
    checks: list[tuple[Callable[[Any], None], Any]] = [
        *((_check_dataset, one) for one in spec.datasets),
        *((_check_network, one) for one in spec.networks),
        *((_check_workload, one) for one in spec.workloads),
        *((_check_solver, one) for one in solvers_of(spec)),
    ]
    for check, entry in checks:
        try:
            check(entry)
        except (ValueError, TypeError, ImportError, OSError) as error:
            yield f"{entry.name}: {error}" if entry.name not in str(error) else str(error)


def _check_dataset(entry: DatasetEntry) -> None:
    if is_own(entry.dataset):
        _check_arguments(imported(entry.dataset), entry.dataset)
        return
    if entry.target is None:
        if entry.task is not None:
            raise ValueError("task goes with a CSV file and its target")
        if entry.dataset.endswith(".csv"):
            raise ValueError(f"say which column to predict: {Path(entry.dataset).name}:COLUMN")
        from cmalight.datasets import dataset_info

        dataset_info(entry.dataset)
        return
    import pandas

    if not Path(entry.dataset).is_file():
        raise ValueError(f"there is no file {entry.dataset}")
    columns = [str(one) for one in pandas.read_csv(entry.dataset, nrows=0).columns]
    if entry.target not in columns:
        raise ValueError(unknown_name(f"column of {entry.dataset}", entry.target, columns))


def _check_network(entry: NetworkEntry) -> None:
    if is_own(entry.network):
        _check_arguments(imported(entry.network), entry.network, features=1, outputs=1, **entry.options)
        return
    import torch

    from cmalight.bench.problems import network_for

    shape = (3, 32, 32) if entry.network.startswith("resnet") else (4,)
    with torch.device("meta"):  # allocates nothing and draws no random number
        network_for(entry.network, shape, 1, entry.options)


def _check_workload(entry: WorkloadEntry) -> None:
    from cmalight.bench.workloads import WORKLOADS

    if is_own(entry.workload):
        _check_arguments(imported(entry.workload), entry.workload)
    elif entry.workload not in WORKLOADS:
        raise ValueError(unknown_name("workload", entry.workload, WORKLOADS))


def _check_solver(entry: SolverEntry) -> None:
    if is_own(entry.solver):
        _check_arguments(imported(entry.solver), entry.solver, [], **entry.options)
        return
    from cmalight.training.solvers import make_solver

    make_solver(entry.solver, entry.options)


def _check_arguments(function: Callable[..., Any], name: str, /, *given: Any, **options: Any) -> None:
    """Raise for options that the user's own callable does not take, or for some that it needs and does not get."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a callable of C has none
        return
    try:
        signature.bind(*given, **options)
    except TypeError as error:
        _name_unknown(signature.parameters, name, options)
        raise ValueError(f"{name}: {error}; its arguments are {signature}") from error


def _name_unknown(parameters: Mapping[str, inspect.Parameter], name: str, options: Mapping[str, Any]) -> None:
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    known = list(parameters)
    for option in options:
        if option not in known:
            raise ValueError(unknown_name(f"option of {name}", option, known))
