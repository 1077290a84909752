"""What would go wrong in the runs of a spec, found before any of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from cmalight.bench.code import arguments_of, imported, is_own
from cmalight.bench.spec import (
    DatasetEntry,
    NetworkEntry,
    SolverEntry,
    Spec,
    SpecEntry,
    WorkloadEntry,
    is_table,
    solvers_of,
)
from cmalight.errors import unknown_name


def mistakes_in(spec: Spec) -> list[str]:
    """One sentence for each entry that cannot work; where there is none, for each network that fits no data set."""
    entries = (*spec.datasets, *spec.networks, *spec.workloads, *solvers_of(spec))
    wrong = [_mistake(one.name, _check, one) for one in entries]
    if not any(wrong):
        pairs = [(network, data) for data in spec.datasets for network in spec.networks if not is_own(network.network)]
        wrong = [_mistake(f"{network.name} on {data.name}", _check_pair, network, data) for network, data in pairs]
    return [text for text in wrong if text]


def _mistake(name: str, check: Callable[..., None], *entries: SpecEntry) -> str | None:
    try:
        check(*entries)
    except (ValueError, TypeError, ImportError, OSError) as error:
        return str(error) if name in str(error) else f"{name}: {error}"
    return None


def _check(entry: SpecEntry) -> None:
    from cmalight.bench.workloads import WORKLOADS
    from cmalight.datasets import dataset_info, load_dataset
    from cmalight.training.solvers import make_solver

    if is_own(getattr(entry, entry.kind)):
        _check_own(entry)
    elif isinstance(entry, DatasetEntry):
        (load_dataset if is_table(entry.dataset) else dataset_info)(entry.dataset)
    elif isinstance(entry, SolverEntry):
        make_solver(entry.solver, entry.options)
    elif isinstance(entry, WorkloadEntry) and entry.workload not in WORKLOADS:
        raise ValueError(unknown_name("workload", entry.workload, WORKLOADS))


def _check_own(entry: SpecEntry) -> None:
    """Raise for options that the user's own callable does not take, or for some that it needs and does not get."""
    name = getattr(entry, entry.kind)
    known = arguments_of(imported(name))
    given: dict[str, Any] = {"features": 1, "outputs": 1} if isinstance(entry, NetworkEntry) else {}
    if isinstance(entry, SolverEntry):
        given = {name: None for name in ("objective", "total_steps") if name in known}
    signature = inspect.Signature(list(known.values()))
    try:
        signature.bind(*["parameters"] * isinstance(entry, SolverEntry), **given, **getattr(entry, "options", {}))
    except TypeError as error:
        if known:  # a callable of C does not say
            raise ValueError(f"{name}: {error}; its arguments are {signature}") from error


def _check_pair(network: NetworkEntry, data: DatasetEntry) -> None:
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
    with torch.device("meta"):  # allocates nothing and draws no random number
        network_for(network.network, shape, outputs, network.options)
