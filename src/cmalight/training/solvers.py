"""Optimizers by name: this package's, torch's at torch's defaults, and others to compare with."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.errors import check_unit_interval, needed, unknown_name
from cmalight.optim import CMA, COFF, IG, SOAP, Auto, CMALight

Schedule = Callable[[float], float]  # from the fraction of the run that is done to a factor of lr


def cosine(fraction: float, *, warmup: float = 0.05) -> float:
    """Linear warm-up over a fraction of the run, then half a cosine to zero."""
    if fraction < warmup:
        return fraction / warmup
    since = min(1.0, (fraction - warmup) / (1.0 - warmup)) if warmup < 1.0 else 1.0
    return 0.5 * (1.0 + math.cos(math.pi * since))


def wsd(fraction: float, *, warmup: float = 0.05, decay: float = 0.4) -> float:
    """Warm-up, stable, decay: linear warm-up over a fraction of the run, constant, linear decay to zero."""
    rising = fraction / warmup if fraction < warmup else 1.0
    falling = (1.0 - fraction) / decay if fraction > 1.0 - decay else 1.0
    return min(rising, falling)


# Arguments that `fit` gives, not the user.
_FROM_FIT = ("params", "model_or_params", "objective", "total_steps", "progress", "fraction")


@dataclass(frozen=True)
class Solver:
    """An optimizer by name with its options, ready to be made.

    Attributes:
        name: One of `known_solvers()`.
        make: Called as `make(parameters)`, if `takes_model` as `make(model)`, and if `watches` also with `objective=`
            and `total_steps=` or `progress=`.
        schedule: From the fraction of the run that is done to a factor of lr; None leaves lr alone.
        watches: Whether the optimizer is a `Controlled`, which takes the objective.
        takes_model: Whether the optimizer is made from the model instead of its parameters.
    """

    name: str
    make: Callable[..., Optimizer]
    schedule: functools.partial[float] | None = None
    watches: bool = False
    takes_model: bool = False


class MuonAndAdamW(Optimizer):
    """Torch's Muon for the matrices of hidden layers, AdamW for all else, as one optimizer.

    Its authors leave embeddings, the first and the last layer to AdamW; the defaults are theirs (Jordan et al., 2024).
    Torch's Muon takes matrices only, so AdamW has the convolutions, too.

    Args:
        model_or_params: The model, or its parameters; given parameters only, embeddings are not known as such.
        lr: Learning rate of Muon.
        adamw_lr: Learning rate of AdamW.
        weight_decay: Decoupled weight decay of both.
        momentum: Muon's momentum.
        betas: AdamW's coefficients.
    """

    def __init__(
        self,
        model_or_params: nn.Module | Iterable[Tensor],
        lr: float = 0.02,
        *,
        adamw_lr: float = 3e-4,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
    ) -> None:
        if not hasattr(torch.optim, "Muon"):
            raise ImportError(f"muon needs torch 2.9 or later, but this is {torch.__version__}")
        hidden, others = _hidden_and_others(model_or_params)
        self._parts: list[Optimizer] = []
        if hidden:
            self._parts.append(torch.optim.Muon(hidden, lr=lr, weight_decay=weight_decay, momentum=momentum))
        if others:
            self._parts.append(torch.optim.AdamW(others, lr=adamw_lr, weight_decay=weight_decay, betas=betas))
        groups = [group for part in self._parts for group in part.param_groups]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "betas": betas})
        self._share_groups()

    def _share_groups(self) -> None:
        """The parts work on this optimizer's groups and state, so that there is only one of each."""
        for part, group in zip(self._parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share_groups()

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # type: ignore[override]
        """Take one step of both.

        Args:
            closure: Evaluates the loss and its gradient; called once.

        Returns:
            The loss, if there is a closure.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts:
            part.step()
        return loss


def _hidden_and_others(given: nn.Module | Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The matrices between the first and the last weights, embeddings apart, and all other parameters."""
    params = list(given.parameters() if isinstance(given, nn.Module) else given)
    layers = list(given.modules()) if isinstance(given, nn.Module) else []
    embeddings = {id(layer.weight) for layer in layers if isinstance(layer, nn.Embedding)}
    weights = [p for p in params if p.dim() >= 2 and id(p) not in embeddings]
    hidden = [p for p in weights[1:-1] if p.dim() == 2]
    chosen = set(map(id, hidden))
    return hidden, [p for p in params if id(p) not in chosen]


class _Entry(NamedTuple):
    """An optimizer class, or "package.Class" of one that may not be installed, and changed defaults."""

    factory: Callable[..., Optimizer] | str
    schedule: Callable[..., float] | None = None
    defaults: Mapping[str, Any] = MappingProxyType({})


_MOMENTUM = {"momentum": 0.9}

_SOLVERS: dict[str, _Entry] = {
    "auto": _Entry(Auto),
    "cmalight": _Entry(CMALight),
    "cmalight-certified": _Entry(CMALight, defaults={"line_search": "certified"}),
    "cma": _Entry(CMA),
    "ig": _Entry(IG),
    "coff": _Entry(COFF),
    "adam": _Entry(torch.optim.Adam),
    "adamw": _Entry(torch.optim.AdamW),
    "nadam": _Entry(torch.optim.NAdam),
    "adagrad": _Entry(torch.optim.Adagrad),
    "adadelta": _Entry(torch.optim.Adadelta),
    "rmsprop": _Entry(torch.optim.RMSprop),
    "sgd": _Entry(torch.optim.SGD),
    "sgd-momentum": _Entry(torch.optim.SGD, defaults=_MOMENTUM),
    "soap": _Entry(SOAP),
    "prodigy": _Entry("prodigyopt.Prodigy"),
    "schedule-free-adamw": _Entry("schedulefree.AdamWScheduleFree"),
    "muon": _Entry(MuonAndAdamW),
    # With a schedule over the run; lr is its peak.
    "adam-cosine": _Entry(torch.optim.Adam, cosine),
    "adam-wsd": _Entry(torch.optim.Adam, wsd, {"lr": 1e-2}),
    "adamw-cosine": _Entry(torch.optim.AdamW, cosine),
    "adamw-wsd": _Entry(torch.optim.AdamW, wsd),
    "soap-cosine": _Entry(SOAP, cosine),
    "soap-wsd": _Entry(SOAP, wsd),
    "muon-cosine": _Entry(MuonAndAdamW, cosine),
    "prodigy-cosine": _Entry("prodigyopt.Prodigy", cosine, {"warmup": 0.0}),
    "sgd-momentum-cosine": _Entry(torch.optim.SGD, cosine, {**_MOMENTUM, "lr": 0.1}),
}


def known_solvers() -> tuple[str, ...]:
    """Names that `fit(optimizer=...)` and `make_solver` take.

    Returns:
        The names in the order of the guide.
    """
    return tuple(_SOLVERS)


def make_solver(name: str, options: Mapping[str, Any] | None = None) -> Solver:
    """The optimizer of that name, with its options checked.

    Args:
        name: One of `known_solvers()`.
        options: Arguments of the optimizer and, if it has one, of its schedule.

    Returns:
        What makes the optimizer over the parameters of a model.

    Raises:
        ValueError: The name or an option is not known, or a value cannot be used.
        ImportError: The optimizer comes from a package that is not installed.
    """
    if name not in _SOLVERS:
        raise ValueError(unknown_name("optimizer", name, _SOLVERS))
    factory, schedule, defaults = _SOLVERS[name]
    if isinstance(factory, str):
        package, _, kind = factory.rpartition(".")
        with needed(f"This optimizer needs {package}, which is not installed", "bench"):
            factory = getattr(importlib.import_module(package), kind)
    arguments, of_schedule = _arguments(factory), () if schedule is None else _arguments(schedule)
    chosen = {**defaults, **(options or {})}
    for option in chosen:
        if option not in (*arguments, *of_schedule):
            raise ValueError(unknown_name(f"option of {name!r}", option, (*arguments, *of_schedule)))
    fractions = {option: chosen.pop(option) for option in of_schedule if option in chosen}
    for option, value in fractions.items():
        check_unit_interval(option, value)
    make = functools.partial(factory, **chosen)
    try:  # over parameters of no meaning: a wrong value is found before any training
        make([nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))])
    except (TypeError, ValueError) as error:
        raise ValueError(f"Invalid options of {name!r}: {error}") from error
    by_fraction = None if schedule is None else functools.partial(schedule, **fractions)
    takes_model = factory in (Auto, MuonAndAdamW)
    return Solver(name, make, by_fraction, watches=factory is Auto, takes_model=takes_model)


def _arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names that a user may give."""
    return tuple(name for name in inspect.signature(function).parameters if name not in _FROM_FIT)
