"""What would go wrong in the runs of a spec, found before any of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from cmalight.bench.code import arguments_of, imported, is_own, is_table
from cmalight.bench.models import Options
from cmalight.bench.spec import DatasetEntry, NetworkEntry, Spec, SpecEntry, solvers_of


def mistakes_in(spec: Spec) -> list[str]:
    """One sentence for each entry that cannot work; else for each network that does not fit a data set."""
    entries = (*spec.datasets, *spec.networks, *spec.workloads, *(one for _, one in solvers_of(spec)))
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
    from cmalight.datasets import dataset_info, load_dataset
    from cmalight.training.solvers import make_solver

    source, options = getattr(entry, entry.kind), getattr(entry, "options", {})
    if is_own(source):
        _check_own(entry.kind, source, options)
    elif entry.kind == "dataset":
        (load_dataset if is_table(source) else dataset_info)(source)
    elif entry.kind == "solver":
        make_solver(source, options)
    elif entry.kind == "workload":
        raise ValueError(f"a workload is a function of yours, file.py:name; got {source!r}")


def _check_own(kind: str, source: str, options: Options) -> None:
    """Raise for options that the user's callable does not take, or for some that it needs and does not get."""
    known = arguments_of(imported(source))
    signature = inspect.Signature(list(known.values()))
    offered = {"network": ("features", "outputs"), "solver": {"objective", "total_steps"} & known.keys()}.get(kind, ())
    try:
        signature.bind(*["parameters"] * (kind == "solver"), **{**dict.fromkeys(offered), **options})
    except TypeError as error:
        if known:  # a callable of C does not say
            raise ValueError(f"{source}: {error}; its arguments are {signature}") from error


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
