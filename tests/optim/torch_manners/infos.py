"""CMALight, CMA and IG in the form in which PyTorch's suite lists its optimizers."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler
from torch.testing._internal.common_optimizers import (
    ErrorOptimizerInput,
    OptimizerInfo,
    OptimizerInput,
    get_error_inputs_for_all_optims,
)

from cmalight import CMA, IG, CMALight

# Importing torch's test utilities forbids `torch.backends.x.y = z` in the whole process: allow it again.
vars(torch.backends)["__allow_nonbracketed_mutation_flag"] = True

IMPLEMENTATIONS: dict[str, dict[str, bool | None]] = {
    "default": {},
    "forloop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}


def _parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(2))


def _inputs(**settings: dict[str, Any]) -> list[OptimizerInput]:
    every = {
        "default": {},
        "lr": {"lr": 0.01},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.5},
    }
    return [OptimizerInput(params=None, kwargs=kwargs, desc=desc) for desc, kwargs in (every | settings).items()]


_CONTROL = {"lr": 0.2, "theta": 0.6, "tau": 0.1, "gamma": 0.2, "delta": 0.5, "max_extrapolations": 3}


def _inputs_cmalight(device: object, dtype: object = None) -> list[OptimizerInput]:
    return _inputs(
        control=_CONTROL,
        certified={"lr": 0.3, "line_search": "certified"},
        no_early_rejection={"lr": 0.8, "early_rejection": False},
    )


def _inputs_cma(device: object, dtype: object = None) -> list[OptimizerInput]:
    return _inputs(control=_CONTROL)


def _inputs_ig(device: object, dtype: object = None) -> list[OptimizerInput]:
    return _inputs(decay={"lr": 0.2, "decay": 0.1})


def _wrong(name: str, value: Any, message: str | None = None, error: type[Exception] = ValueError) -> Any:
    regex = message if message is not None else f"Invalid {name} value: {value}; expected"
    given = OptimizerInput(params=[_parameter()], kwargs={name: value}, desc=f"{name}={value!r}")
    return ErrorOptimizerInput(given, error_type=error, error_regex=regex)


def _errors_of_all(device: Any, dtype: Any) -> list[Any]:
    # Ours refuse any Tensor as lr, so torch's message for one of two elements does not apply.
    torchs = get_error_inputs_for_all_optims(device, dtype)
    ours = [_wrong("lr", value) for value in (-0.1, 0.0, math.nan, math.inf)]
    ours += [_wrong("lr", value, "lr as a Tensor is not supported") for value in (torch.tensor(0.1), torch.ones(2))]
    ours += [_wrong("weight_decay", value) for value in (-0.1, math.nan, math.inf)]
    ours += [_wrong("maximize", True, "maximize=True is not supported.*bounded below.*negate the loss")]
    both = OptimizerInput(params=[_parameter()], kwargs={"foreach": True, "fused": True}, desc="foreach and fused")
    ours += [ErrorOptimizerInput(both, error_regex="`fused` and `foreach` cannot be `True` together")]
    nothing = OptimizerInput(params=[], kwargs={}, desc="no parameters")
    ours += [ErrorOptimizerInput(nothing, error_type=ValueError, error_regex="empty parameter list")]
    derived = OptimizerInput(params=[_parameter() * 2], kwargs={}, desc="not a leaf")
    ours += [ErrorOptimizerInput(derived, error_type=ValueError, error_regex="can't optimize a non-leaf Tensor")]
    return [e for e in torchs if "Tensor lr" not in e.optimizer_error_input.desc] + ours


def _errors_of_watchdogs(device: Any, dtype: Any) -> list[Any]:
    fractions = (-0.5, 0.0, 1.0, 1.5, math.nan)
    errors = [_wrong(name, value) for name in ("theta", "gamma", "delta") for value in fractions]
    errors += [_wrong("tau", value) for value in (-1.0, 0.0, math.nan, math.inf)]
    errors += [_wrong("max_extrapolations", value) for value in (-1, 2.5, math.nan, math.inf)]
    return _errors_of_all(device, dtype) + errors


def _errors_cmalight(device: Any, dtype: Any) -> list[Any]:
    unknown = _wrong("line_search", "exact", "Invalid line_search value: 'exact'; expected one of light, certified")
    return [*_errors_of_watchdogs(device, dtype), unknown]


def _errors_ig(device: Any, dtype: Any) -> list[Any]:
    return _errors_of_all(device, dtype) + [_wrong("decay", value) for value in (-0.5, 0.0, 1.0, math.nan)]


_SCHEDULERS: tuple[list[Callable[[Any], Any]], ...] = (
    [lambda opt: lr_scheduler.StepLR(opt, gamma=0.9, step_size=10)],
    [lambda opt: lr_scheduler.LinearLR(opt, start_factor=0.4, end_factor=0.8, total_iters=4)],
    [lambda opt: lr_scheduler.ConstantLR(opt, factor=0.4, total_iters=4)],
    [lambda opt: lr_scheduler.PolynomialLR(opt, power=0.9, total_iters=40)],
    [lambda opt: lr_scheduler.CosineAnnealingLR(opt, T_max=40)],
    [lambda opt: lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=40, cycle_momentum=False)],
    [lambda opt: lr_scheduler.ReduceLROnPlateau(opt)],
    [
        lambda opt: lr_scheduler.StepLR(opt, gamma=0.99, step_size=10),
        lambda opt: lr_scheduler.ExponentialLR(opt, gamma=0.99),
        lambda opt: lr_scheduler.ReduceLROnPlateau(opt),
    ],
    [
        lambda opt: lr_scheduler.SequentialLR(
            opt, [lr_scheduler.ConstantLR(opt, factor=0.4), lr_scheduler.StepLR(opt, step_size=10)], milestones=[4]
        )
    ],
)


def _info(optimizer: type, inputs: Any, errors: Any) -> OptimizerInfo:
    return OptimizerInfo(
        optimizer,
        optim_inputs_func=inputs,
        optim_error_inputs_func=errors,
        scheduler_inputs=_SCHEDULERS,
        supported_impls=("foreach", "fused"),
        not_og_supported_flags=("foreach", "fused"),
        supports_sparse=True,
        metadata_for_sparse=({"lr": 4.8e-3}, [lambda opt: lr_scheduler.StepLR(opt, gamma=0.99999, step_size=300)]),
        supports_fused_on=("cpu", "cuda", "xpu", "mps"),
    )


INFOS = [
    _info(CMALight, _inputs_cmalight, _errors_cmalight),
    _info(CMA, _inputs_cma, _errors_of_watchdogs),
    _info(IG, _inputs_ig, _errors_ig),
]

each_optimizer = pytest.mark.parametrize("optimizer_class", [info.optim_cls for info in INFOS])

each_input = pytest.mark.parametrize(
    ("optimizer_class", "kwargs"),
    [
        pytest.param(info.optim_cls, deepcopy(given.kwargs), id=f"{info.name}-{given.desc}")
        for info in INFOS
        for given in info.optim_inputs_func("cpu")
    ],
)

each_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)

fast_implementation = pytest.mark.parametrize(
    "implementation", [IMPLEMENTATIONS["foreach"], IMPLEMENTATIONS["fused"]], ids=["foreach", "fused"]
)
