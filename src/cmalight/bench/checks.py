"""What would go wrong in the runs of a spec, found before any of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cmalight.bench.code import arguments_of, imported, is_own
from cmalight.bench.spec import DatasetEntry, NetworkEntry, SolverEntry, Spec, WorkloadEntry, is_table, solvers_of
from cmalight.errors import unknown_name


def problems_of(spec: Spec) -> Iterator[str]:
    """What cannot work.

    Args:
        spec: Whose keys and values are of the right types.

    Yields:
        One sentence each.
    """
    checks: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        *((_check_dataset, (one,)) for one in spec.datasets),
        *((_check_network, (one,)) for one in spec.networks if is_own(one.network)),
        *((_check_workload, (one,)) for one in spec.workloads),
        *((_check_solver, (one,)) for one in solvers_of(spec)),
    ]
    wrong = [text for check, entries in checks if (text := _text(check, *entries))]
    if not wrong:  # a pair is worth a look where both halves are known
        networks = [one for one in spec.networks if not is_own(one.network)]
        wrong = [text for data in spec.datasets for one in networks if (text := _text(_check_pair, one, data))]
    yield from wrong


def _text(check: Callable[..., None], *entries: Any) -> str | None:
    try:
        check(*entries)
    except (ValueError, TypeError, ImportError, OSError) as error:
        return f"{entries[0].name}: {error}" if entries[0].name not in str(error) else str(error)
    return None


def _check_dataset(entry: DatasetEntry) -> None:
    if is_own(entry.dataset):
        _check_arguments(imported(entry.dataset), entry.dataset)
        return
    from cmalight.datasets import dataset_info

    dataset_info(entry.dataset)
    if not is_table(entry.dataset):
        return
    file, _, rest = entry.dataset.partition(":")
    target = dict(part.partition("=")[::2] for part in rest.split(","))["target"]
    if not Path(file).is_file():
        raise ValueError(f"there is no file {file}")
    import pandas

    table = pandas.read_parquet(file) if file.endswith(".parquet") else pandas.read_csv(file, nrows=0)
    columns = [str(one) for one in table.columns]
    if target not in columns:
        raise ValueError(unknown_name(f"column of {file}", target, columns))


def _check_network(entry: NetworkEntry) -> None:
    _check_arguments(imported(entry.network), entry.network, features=1, outputs=1, **entry.options)


def _check_pair(entry: NetworkEntry, data: DatasetEntry) -> None:
    """Build the network for data of that shape, as far as it is known before reading."""
    import torch

    from cmalight.bench.problems import network_for
    from cmalight.datasets import dataset_info

    shape: tuple[int, ...] = (4,)
    outputs = 1
    if not is_own(data.dataset):
        known = dataset_info(data.dataset)
        shape = known.image or (known.features or 4,)
        outputs = (known.classes or 2) if known.task == "classification" else 1
    try:
        with torch.device("meta"):  # allocates nothing and draws no random number
            network_for(entry.network, shape, outputs, entry.options)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{entry.name} on {data.name}: {error}") from error


def _check_workload(entry: WorkloadEntry) -> None:
    from cmalight.bench.workloads import WORKLOADS

    if is_own(entry.workload):
        _check_arguments(imported(entry.workload), entry.workload)
    elif entry.workload not in WORKLOADS:
        raise ValueError(unknown_name("workload", entry.workload, WORKLOADS))


def _check_solver(entry: SolverEntry) -> None:
    if is_own(entry.solver):
        make = imported(entry.solver)
        given = {name: None for name in ("objective", "total_steps") if name in arguments_of(make)}
        _check_arguments(make, entry.solver, [], **{**given, **entry.options})
        return
    from cmalight.training.solvers import make_solver

    make_solver(entry.solver, entry.options)


def _check_arguments(function: Callable[..., Any], name: str, /, *given: Any, **options: Any) -> None:
    """Raise for options that the user's own callable does not take, or for some that it needs and does not get."""
    known = arguments_of(function)
    if not known:
        return
    signature = inspect.Signature(list(known.values()))
    try:
        signature.bind(*given, **options)
    except TypeError as error:
        _name_unknown(known, name, options)
        raise ValueError(f"{name}: {error}; its arguments are {signature}") from error


def _name_unknown(parameters: Mapping[str, inspect.Parameter], name: str, options: Mapping[str, Any]) -> None:
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    known = list(parameters)
    for option in options:
        if option not in known:
            raise ValueError(unknown_name(f"option of {name}", option, known))
