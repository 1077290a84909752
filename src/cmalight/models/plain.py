"""Networks to plain dicts and back, so that a model file needs no code and no pickle."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import nn

from cmalight.models.layered import LayeredSpec
from cmalight.models.paper import LargeSpec
from cmalight.models.resnet import ResNetSpec
from cmalight.models.spec import NetworkSpec, check_choice

_SPECS: tuple[type[NetworkSpec], ...] = (LayeredSpec, LargeSpec, ResNetSpec)
_KINDS = {spec.kind: spec for spec in _SPECS}


def network_to_dict(network: nn.Module) -> dict[str, Any]:
    """The description that `network_from_dict` takes: numbers, words and flags, no weights."""
    spec = getattr(network, "spec", None)
    if not isinstance(spec, NetworkSpec):
        raise ValueError(
            f"{type(network).__name__} has no description to write down; expected a network built by cmalight.models"
        )
    return spec.to_dict()


def network_from_dict(plain: Mapping[str, Any]) -> nn.Module:
    """The freshly initialised network of a description; load its weights with `load_state_dict`."""
    return spec_from_dict(plain).build()


def spec_from_dict(plain: Mapping[str, Any]) -> NetworkSpec:
    if not isinstance(plain, Mapping):
        raise ValueError(f"Invalid network description: {plain!r}; expected a dict with a 'kind'")
    values = dict(plain)
    kind = values.pop("kind", None)
    check_choice("network kind", kind, _KINDS)
    spec = _KINDS[kind]
    _check_names(spec, values)
    return spec(**values)


def _check_names(spec: type[NetworkSpec], values: Mapping[str, Any]) -> None:
    fields = dataclasses.fields(spec)
    known = [field.name for field in fields]
    missing = [f.name for f in fields if f.default is dataclasses.MISSING and f.name not in values]
    unknown = [str(name) for name in values if name not in known]
    if missing or unknown:
        wrong = "; ".join(
            f"{what} {', '.join(names)}" for what, names in (("missing", missing), ("unknown", unknown)) if names
        )
        raise ValueError(f"Invalid {spec.kind} network: {wrong}; its fields are {', '.join(known)}")
