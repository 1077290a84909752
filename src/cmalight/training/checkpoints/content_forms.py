"""What a checkpoint has to hold: a file with an intact seal may still have been written by anyone."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.optim.host import EpochOptimizer
from cmalight.training.checkpoints.forms import (
    FLAG,
    TEXT,
    DictOf,
    ListOf,
    Maybe,
    MisfitError,
    Number,
    One,
    Record,
    anything,
)
from cmalight.training.checkpoints.model_state import ModelState

_TENSOR = One((Tensor,), "a tensor")
_ANY_NUMBER = Number(finite=False)
_COUNT = Number(whole=True, least=0)

_MODEL = Record(
    {
        "parameters": DictOf(str, _TENSOR),
        "buffers": DictOf(str, Maybe(_TENSOR)),
        "transient": ListOf(TEXT),
        "extra": DictOf(str, anything),
    }
)
_EPOCH = Record(
    {
        "epoch": _COUNT,
        "seconds": Number(least=0),
        "f_tilde": _ANY_NUMBER,
        "lr": _ANY_NUMBER,
        "alpha": Maybe(_ANY_NUMBER),
        "outcome": TEXT,
        "evaluations": _COUNT,
        "train_loss": Maybe(_ANY_NUMBER),
        "validation_loss": Maybe(_ANY_NUMBER),
        "metrics": DictOf(str, _ANY_NUMBER),
        "next_lr": _ANY_NUMBER,
        "phi": Maybe(_ANY_NUMBER),
    }
)
CHECKPOINT = Record(
    {
        "identity": DictOf(str, TEXT),
        "model": _MODEL,
        "optimizer": DictOf(str, anything),
        "history": ListOf(_EPOCH),
        "best": Record({"value": _ANY_NUMBER, "epoch": Maybe(_COUNT), "state": Maybe(_MODEL)}),
        "next_lr": _ANY_NUMBER,
        "direction_norm": Maybe(_ANY_NUMBER),
        "seconds": Number(least=0),
        "randomness": DictOf(str, anything),
        "feed_epoch": _COUNT,
        "objectives": ListOf(Record({"merge": Maybe(FLAG), "tried": FLAG, "passes": _COUNT})),
        "engine": Record({"compiled": FLAG, "reason": TEXT, "limits": ListOf(Maybe(_ANY_NUMBER))}),
    }
)

# Of epochs that are judged together with later ones, in the state of an optimizer under the tolerant rule.
_WINDOW = Record(
    {
        "start": Record(
            {
                "weights": ListOf(Maybe(_TENSOR)),
                "buffers": ListOf(DictOf(str, Maybe(_TENSOR))),
                "extra": ListOf(anything),
            }
        ),
        "remembered": Maybe(
            Record({"state": DictOf(int, DictOf(str, anything)), "groups": ListOf(DictOf(str, anything))})
        ),
        "earlier": Record(
            {"loss": Number(), "samples": Number(least=0), "steps": Number(least=0), "nominal": Number(least=0)}
        ),
        "nominal": Number(least=0),
        "sample_before": _ANY_NUMBER,
    }
)

# What schedulers of torch add to a group.
_OF_SCHEDULERS = ("initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum")

# What torch's optimizers keep for a parameter: tensors of its shape, and single numbers.
_OF_ITS_SHAPE = {
    "momentum_buffer",
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "exp_inf",
    "square_avg",
    "grad_avg",
    "acc_delta",
    "sum",
    "prev",
    "step_size",
    "ax",
}
_SINGLE = {"step", "mu_product", "mu", "eta"}


def require_consistent(content: dict[str, Any], model: nn.Module, optimizer: Optimizer) -> None:
    """What the parts of a checkpoint have to do with each other, and with the run that is to go on.

    Args:
        content: in the form of CHECKPOINT.
        model: that of the run.
        optimizer: that of the run.

    Raises:
        ValueError: says what does not fit.
    """
    epochs = [record["epoch"] for record in content["history"]]
    if epochs != list(range(len(epochs))):
        raise ValueError("its history does not count the epochs 0, 1, 2, ...")
    best = content["best"]
    if best["epoch"] is not None and best["epoch"] >= len(epochs):
        raise ValueError(f"its best epoch is {best['epoch']}, but it has only {len(epochs)}")
    if len(content["objectives"]) != 2:
        raise ValueError(f"it has {len(content['objectives'])} objectives; expected 2")
    for plain in (content["model"], best["state"]):
        if plain is not None:
            _require_weights(ModelState.from_plain(plain), model)
    _require_optimizer(content["optimizer"], optimizer)


def _require_weights(state: ModelState, model: nn.Module) -> None:
    state.require_fit(model)
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(state.parameters[name]).all()) and bool(torch.isfinite(parameter).all()):
            raise ValueError(f"its weights {name} are not finite")


def _require_optimizer(saved: dict[str, Any], optimizer: Optimizer) -> None:
    """Groups as the optimizer has them, and for each parameter what can belong to it."""
    own = {name: value for name, value in optimizer.state_dict().items() if name != "window"}
    may_have = ["window"] if isinstance(optimizer, EpochOptimizer) and "window" in saved else []
    Record(dict.fromkeys([*own, *may_have], anything))("optimizer", saved)
    ListOf(DictOf(str, anything))("optimizer.param_groups", saved["param_groups"])
    DictOf(int, DictOf(str, anything))("optimizer.state", saved["state"])
    if len(saved["param_groups"]) != len(own["param_groups"]):
        raise ValueError(f"its optimizer has {len(saved['param_groups'])} groups, not {len(own['param_groups'])}")
    for number, (group, now) in enumerate(zip(saved["param_groups"], own["param_groups"], strict=True)):
        _require_group(f"optimizer.param_groups[{number}]", group, now, optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, state in saved["state"].items():
        if not 0 <= number < len(parameters):
            raise MisfitError("optimizer.state", number, f"numbers below {len(parameters)}")
        for name, value in state.items():
            _require_state_of(f"optimizer.state[{number}].{name}", name, value, parameters[number])
    if may_have:
        _require_window(saved["window"], optimizer)
    kinds = {frozenset(state) for state in saved["state"].values()}
    if len(kinds) > 1 and _is_torchs(optimizer) and all(kind <= _OF_ITS_SHAPE | _SINGLE for kind in kinds):
        raise ValueError("its optimizer does not keep the same of every parameter")


def _require_window(saved: object, optimizer: Optimizer) -> None:
    _WINDOW("optimizer.window", saved)
    window: Any = saved
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    weights = window["start"]["weights"]
    pairs = zip(weights, parameters, strict=False)
    if len(weights) != len(parameters) or any(w is not None and w.shape != p.shape for w, p in pairs):
        raise ValueError("the weights at which its last window began are not those of the model")
    remembered = window["remembered"] or {"state": {}, "groups": []}
    for number, state in remembered["state"].items():
        if not 0 <= number < len(parameters):
            raise MisfitError("optimizer.window.remembered.state", number, f"numbers below {len(parameters)}")
        for name, value in state.items():
            _require_state_of(f"optimizer.window.remembered.state[{number}].{name}", name, value, parameters[number])


def _is_torchs(optimizer: Optimizer) -> bool:
    """Its own, or under our control: those do not change what they were told."""
    return type(getattr(optimizer, "base", optimizer)).__module__.startswith("torch.optim")


def _require_group(where: str, saved: dict[str, Any], own: dict[str, Any], optimizer: Optimizer) -> None:
    may_have = _OF_SCHEDULERS if _is_torchs(optimizer) else saved  # others note down what they like
    Record(dict.fromkeys([*own, *(name for name in may_have if name in saved)], anything))(where, saved)
    for name, now in own.items():
        is_option = name in optimizer.defaults
        is_fixed = name == "params" or (is_option and isinstance(now, bool | None) and _is_torchs(optimizer))
        if is_fixed and (type(saved[name]) is not type(now) or saved[name] != now):
            raise MisfitError(f"{where}.{name}", saved[name], repr(now)[:100])
        _require_same_kind(f"{where}.{name}", saved[name], now, is_option=is_option)
    Number(least=0)(f"{where}.lr", float(saved["lr"]))


def _require_same_kind(where: str, then: object, now: object, *, is_option: bool) -> None:
    """Numbers stay numbers, and text stays the same text; what was None may have become a number.

    Options stay finite, and whole numbers whole; the state of a control may be infinite.
    """
    if isinstance(now, int | float):
        One((bool, int, float), "a number")(where, then)
        if is_option and not isinstance(then, bool):
            Number(whole=isinstance(now, int), finite=math.isfinite(now))(where, then)
    elif isinstance(now, Tensor) or now is None:
        One((type(now), bool, int, float), "a number")(where, then)
    elif isinstance(now, tuple | list):
        if not isinstance(then, tuple | list) or len(then) != len(now):
            raise MisfitError(where, then, f"{len(now)} values")
        for one, other in zip(then, now, strict=True):
            _require_same_kind(where, one, other, is_option=is_option)
    elif then != now:
        raise MisfitError(where, then, repr(now)[:100])


def _require_state_of(where: str, name: str, value: object, parameter: Tensor) -> None:
    if name in _OF_ITS_SHAPE and value is not None:
        if not isinstance(value, Tensor) or value.shape != parameter.shape or value.dtype != parameter.dtype:
            raise MisfitError(where, value, f"a tensor like its parameter, {tuple(parameter.shape)}")
    elif name in _SINGLE:
        One((int, float, Tensor), "a number")(where, value)
        if isinstance(value, Tensor) and (value.numel() != 1 or not value.is_floating_point()):
            raise MisfitError(where, value, "a single number")
