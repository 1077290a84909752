"""Optimizers by name: ours, torch's at torch's defaults, and those of others that are worth a comparison."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.errors import needed, unknown_name
from cmalight.optim import CMA, IG, CMALight, Controlled
from cmalight.training.solvers.schedules import (
    Schedule,
    Scheduled,
    onecycle,
    warmup_cosine,
    warmup_linear,
    with_options,
    wsd,
)
from cmalight.training.solvers.sls import StochasticLineSearch


def controlled_adam(params: Iterable[Tensor], *, lr: float | None = None, **options: Any) -> Controlled:
    """Adam under the tolerant watchdog; options other than Adam's own are `Controlled`'s.

    `eps` is far below torch's 1e-8: the gradients of the first layers of a deep sigmoid network are smaller than that.
    Adam would not move them, and never leave the plateau on which such a network starts (docs/studies/control.md).
    """
    own = {name: options.pop(name) for name in inspect.signature(torch.optim.Adam).parameters if name in options}
    base = torch.optim.Adam(params, **{"lr": 7e-3, "eps": 1e-15, **own})
    return Controlled(base, lr=lr, **options)


def sgd_momentum(params: Iterable[Tensor], /, **options: Any) -> Optimizer:
    """SGD with the usual momentum."""
    return torch.optim.SGD(params, **{"momentum": 0.9, **options})


def prodigy(params: Iterable[Tensor], /, **options: Any) -> Optimizer:
    """Prodigy, which estimates its step size; from the package prodigyopt."""
    made: Optimizer = package("prodigyopt").Prodigy(params, **options)
    return made


def schedule_free_adamw(params: Iterable[Tensor], /, **options: Any) -> Optimizer:
    """AdamW that averages instead of following a schedule; from the package schedulefree."""
    made: Optimizer = package("schedulefree").AdamWScheduleFree(params, **options)
    return made


def package(name: str) -> Any:
    """The package that a solver comes from.

    Raises:
        ImportError: with what to install.
    """
    with needed(f"this solver needs {name}, which is not installed", "bench"):
        return importlib.import_module(name)


def muon(params: Iterable[Tensor], /, *, lr: float = 1e-3, weight_decay: float = 0.1, **options: Any) -> Optimizer:
    """Torch's Muon for matrices, AdamW for all else, at one lr: Muon's is adjusted to the size of AdamW's steps."""
    given = list(params)
    matrices = [p for p in given if p.dim() == 2]
    others = [p for p in given if p.dim() != 2]
    shared: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
    parts: list[Optimizer] = []
    if matrices:
        parts.append(torch.optim.Muon(matrices, **{"adjust_lr_fn": "match_rms_adamw", **shared, **options}))
    if others:
        parts.append(torch.optim.AdamW(others, **shared))
    return Scheduled(*parts)


def scheduled(
    make: Callable[..., Optimizer], schedule: Callable[..., float], **defaults: Any
) -> Callable[..., Optimizer]:
    """A solver whose lr is the peak of a schedule; its options are the optimizer's and the schedule's.

    Args:
        make: called as `make(parameters, **options)`.
        schedule: one of `cmalight.training.solvers.schedules`.
        defaults: options, where the caller gives none.
    """
    names = list(inspect.signature(schedule).parameters)[1:]

    def made(params: Iterable[Tensor], /, **options: Any) -> Optimizer:
        options = {**defaults, **options}
        own: Schedule = with_options(schedule, {name: options.pop(name) for name in names if name in options})
        unscheduled = make(params, **options)
        parts = unscheduled.parts if isinstance(unscheduled, Scheduled) else (unscheduled,)
        return Scheduled(*parts, schedule=own)

    return made


SOLVERS: dict[str, Callable[..., Optimizer]] = {
    "auto": controlled_adam,  # what we recommend to those who do not want to choose (docs/start/choosing.md)
    "cmalight": CMALight,
    "cmalight-certified": lambda params, **options: CMALight(params, **{"line_search": "certified", **options}),
    "cma": CMA,
    "ig": IG,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
    "sgd-momentum": sgd_momentum,
    "prodigy": prodigy,
    "schedule-free-adamw": schedule_free_adamw,
    "muon": muon,
    "sls": StochasticLineSearch,
    # With a schedule over the run, whose length they are told.
    "adam-cosine": scheduled(torch.optim.Adam, warmup_cosine),
    "adam-linear": scheduled(torch.optim.Adam, warmup_linear, lr=1e-2),
    "adam-wsd": scheduled(torch.optim.Adam, wsd, lr=1e-2),
    "adamw-cosine": scheduled(torch.optim.AdamW, warmup_cosine),
    "onecycle": scheduled(torch.optim.Adam, onecycle, lr=1e-2),
    "sgd-momentum-cosine": scheduled(sgd_momentum, warmup_cosine, lr=0.1),
    "prodigy-cosine": scheduled(prodigy, warmup_cosine, warmup=0.0),
    "muon-cosine": scheduled(muon, warmup_cosine),
}


def require_parameters_of(model: nn.Module, optimizer: Optimizer) -> None:
    own = {id(p) for p in model.parameters()}
    if not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
        raise ValueError("The optimizer holds no parameter of the model: make it from model.parameters()")


def make_optimizer(
    optimizer: str | Optimizer, params: Iterable[Tensor], options: Mapping[str, Any] | None = None
) -> Optimizer:
    """The optimizer of that name over `params`; a ready one is passed through."""
    if isinstance(optimizer, Optimizer):
        if options:
            raise ValueError("optimizer_options go with an optimizer's name; a ready optimizer has its own")
        return optimizer
    if optimizer not in SOLVERS:
        raise ValueError(unknown_name("optimizer", optimizer, SOLVERS))
    try:
        return SOLVERS[optimizer](params, **(options or {}))
    except TypeError as error:
        raise ValueError(f"Invalid optimizer_options for {optimizer!r}: {error}") from error
