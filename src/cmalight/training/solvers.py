"""Optimizers by name: this package's, torch's at torch's defaults, and others to compare with."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.errors import check_share, needed, unknown_name
from cmalight.optim import CMA, COFF, IG, SOAP, Auto, CMALight
from cmalight.optim.controlled import Controlled

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
        make: Called as `make(parameters)`, or if `watches` as `make(model, objective=, total_steps= or progress=)`.
        schedule: From the fraction of the run that is done to a factor of lr; None leaves lr alone.
        watches: Whether the optimizer is a `Controlled`, which takes the model and its objective.
    """

    name: str
    make: Callable[..., Optimizer]
    schedule: Schedule | None = None
    watches: bool = False


class MuonAndAdamW(Optimizer):
    """Torch's Muon for matrices, AdamW for all else, as one optimizer.

    Args:
        params: Parameters of a model.
        lr: Learning rate of both; Muon's steps are scaled to the size of AdamW's (Liu et al., 2025).
        weight_decay: Decoupled weight decay of both.
        momentum: Muon's momentum.
        betas: AdamW's coefficients.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        *,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
    ) -> None:
        if not hasattr(torch.optim, "Muon"):
            raise ImportError(f"muon needs torch 2.9 or later, but this is {torch.__version__}")
        given = list(params)
        shared: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
        makers: list[tuple[bool, Callable[..., Optimizer]]] = [
            (True, functools.partial(torch.optim.Muon, momentum=momentum, adjust_lr_fn="match_rms_adamw", **shared)),
            (False, functools.partial(torch.optim.AdamW, betas=betas, **shared)),
        ]
        chosen = [(make, [p for p in given if (p.dim() == 2) is matrices]) for matrices, make in makers]
        self._parts = [make(some) for make, some in chosen if some]
        super().__init__([group for part in self._parts for group in part.param_groups], {**shared, "betas": betas})
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


@dataclass(frozen=True)
class _Entry:
    """An optimizer class, or "package.Class" of one that may not be installed, and changed defaults."""

    factory: Callable[..., Optimizer] | str
    schedule: Callable[..., float] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def imported(self) -> Callable[..., Optimizer]:
        """The class.

        Raises:
            ImportError: Its package is not installed.
        """
        if not isinstance(self.factory, str):
            return self.factory
        package, _, name = self.factory.rpartition(".")
        with needed(f"This optimizer needs {package}, which is not installed", "bench"):
            return getattr(importlib.import_module(package), name)  # type: ignore[no-any-return]


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
    entry = _SOLVERS[name]
    factory = entry.imported()
    arguments, for_schedule = _arguments(factory), _arguments(entry.schedule)
    chosen = {**entry.defaults, **(options or {})}
    for option in chosen:
        if option not in (*arguments, *for_schedule):
            raise ValueError(unknown_name(f"option of {name!r}", option, (*arguments, *for_schedule)))
    fractions = {option: value for option, value in chosen.items() if option in for_schedule}
    for option, value in fractions.items():
        check_share(option, value)
    make = functools.partial(factory, **{o: v for o, v in chosen.items() if o not in for_schedule})
    _try(name, make)
    schedule = None if entry.schedule is None else functools.partial(entry.schedule, **fractions)
    return Solver(name, make, schedule, watches=isinstance(factory, type) and issubclass(factory, Controlled))


def _arguments(function: Callable[..., Any] | None) -> tuple[str, ...]:
    """The names that a user may give."""
    names = () if function is None else tuple(inspect.signature(function).parameters)
    return tuple(name for name in names if name not in _FROM_FIT)


def _try(name: str, make: Callable[..., Optimizer]) -> None:
    """Make the optimizer over parameters of no meaning: a wrong value is found before any training."""
    try:
        make([nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))])
    except (TypeError, ValueError) as error:
        raise ValueError(f"Invalid options of {name!r}: {error}") from error
