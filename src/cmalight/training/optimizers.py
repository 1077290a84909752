"""Optimizers by name: ours, and torch's at torch's defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.errors import unknown_name
from cmalight.optim import CMA, IG, CMALight, Controlled


def controlled_adam(params: Iterable[Tensor], *, lr: float | None = None, **options: Any) -> Controlled:
    """Adam under the tolerant watchdog; options other than Adam's own are `Controlled`'s.

    `eps` is far below torch's 1e-8: the gradients of the first layers of a deep sigmoid network are smaller than that.
    Adam would not move them, and never leave the plateau on which such a network starts (docs/controlled.md).
    """
    own = {name: options.pop(name) for name in inspect.signature(torch.optim.Adam).parameters if name in options}
    return Controlled(torch.optim.Adam(params, **{"eps": 1e-15, **own}), lr=lr, **options)


SOLVERS: dict[str, Callable[..., Optimizer]] = {
    "auto": controlled_adam,  # what we recommend to those who do not want to choose (docs/choosing.md)
    "controlled-adam": controlled_adam,
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
    "sgd-momentum": lambda params, **options: torch.optim.SGD(params, **{"momentum": 0.9, **options}),
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
