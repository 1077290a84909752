"""The networks of the test-bed by name, for data of a given shape."""

from __future__ import annotations

import re

import torch
from torch import nn

from cmalight.bench.spec.solvers import imported
from cmalight.bench.spec.study import PAPER, Network, SpecError, is_own_code
from cmalight.models import layered, paper_network, resnet
from cmalight.models.layered import parse_size

_RESNET = re.compile(r"resnet([0-9]{1,3})")


def build_network(network: Network, *, features: int, classes: int | None, channels: int | None) -> nn.Module:
    """Freshly initialised, from torch's random state.

    classes: None for regression, which has one output
    channels: of images; None for tables
    """
    name, options = network.network, network.options
    if name.startswith(PAPER):
        return paper_network(name.removeprefix(PAPER), features)
    if match := _RESNET.fullmatch(name):
        return resnet(int(match[1]), **{"classes": classes or 1, "channels": channels or 1, **options})
    outputs = classes or 1
    if ":" in name:
        made = imported(name)(features=features, outputs=outputs, **options)
        if not isinstance(made, nn.Module):
            raise TypeError(f"{name} gave a {type(made).__name__}; expected a torch.nn.Module")
        return made
    network_of_size: nn.Module = layered(name, features, **{"outputs": outputs, **options})
    return network_of_size if channels is None else nn.Sequential(nn.Flatten(), network_of_size)


def find_network(network: Network) -> None:
    """SpecError where a user's own cannot be imported."""
    if is_own_code(network.network):
        imported(network.network)


def check_network(network: Network, *, dataset: str, classes: int | None, channels: int | None) -> None:
    """Finds a network that does not go with the data before anything runs."""
    name = network.network
    if name.startswith(PAPER):
        if classes is not None or network.options:
            raise SpecError(f"{name} is for regression on a table and has no options; {dataset} has classes or images")
    elif _RESNET.fullmatch(name):
        if channels is None:
            raise SpecError(f"{name} is for images, and {dataset} is a table")
    elif ":" in name:
        find_network(network)
        return
    else:
        parse_size(name)
    try:
        with torch.device("meta"):  # nothing is allocated, and no random number is drawn
            build_network(network, features=1, classes=classes, channels=channels)
    except (TypeError, ValueError) as error:
        raise SpecError(f"network {network.name}: {error}") from error
