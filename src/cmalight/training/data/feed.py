"""What `fit` takes as data, made into something it can iterate again and again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sized
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.evaluation.batches import Order, TensorBatches
from cmalight.evaluation.undisturbed import undisturbed

logger = logging.getLogger("cmalight")

_BATCHES_IN_AN_EPOCH = 50


def auto_batch_size(rows: int) -> int:
    """About 50 batches in an epoch, of 8 to 128 rows: what the command and the estimators take unless told."""
    return min(128, max(8, rows // _BATCHES_IN_AN_EPOCH))


def to_device(part: Any, device: torch.device) -> Any:
    """A tensor, or tensors in tuples, lists and dicts, on that device."""
    if isinstance(part, Tensor):
        return part if part.device == device else part.to(device, non_blocking=True)
    if isinstance(part, dict):
        return {key: to_device(value, device) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return type(part)(to_device(value, device) for value in part)
    return part


def device_of(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def training_feed(
    data: Any,
    model: nn.Module,
    loss_fn: Any,
    *,
    batch_size: int,
    order: Order,
    seed: int,
    watched: bool,
    time_limit: float | None,
) -> Iterable[Any]:
    """TensorBatches for a pair of tensors or arrays; a loader as it is, if it can serve as training data."""
    if _is_pair(data):
        inputs, target = _tensors(data, model, loss_fn, "data")
        return TensorBatches(inputs, target, batch_size=batch_size, order=order, seed=seed)
    _require_repeatable(data, "data")
    if not isinstance(data, Sized) or _has_no_length(data):
        _check_stream(watched=watched, time_limit=time_limit)
    elif len(data) == 0:
        raise ValueError("The data gave no batch: the loader is empty")
    return data  # type: ignore[no-any-return]


def validation_feed(data: Any, model: nn.Module, loss_fn: Any) -> Iterable[Any]:
    """The same for data that is only measured on."""
    if _is_pair(data):
        inputs, target = _tensors(data, model, loss_fn, "validation")
        return TensorBatches(inputs, target, order="fixed")
    _require_repeatable(data, "validation")
    return data.for_evaluation() if isinstance(data, TensorBatches) else data


def _is_pair(data: Any) -> bool:
    return isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "__len__") for part in data)


def _require_repeatable(data: Any, name: str) -> None:
    if isinstance(data, Iterator):
        raise ValueError(f"{name} is an iterator, which ends after one pass; pass what it was made from")
    if not hasattr(data, "__iter__"):
        raise ValueError(
            f"Invalid {name}: expected a pair of tensors or arrays, TensorBatches or a DataLoader, "
            f"but got {type(data).__name__}"
        )


def _has_no_length(data: Any) -> bool:
    """A DataLoader over a stream has `__len__`, which raises."""
    try:
        len(data)
    except TypeError:
        return True
    return False


def _check_stream(*, watched: bool, time_limit: float | None) -> None:
    if watched:
        raise ValueError(
            "A loader without a length is a stream, and the watchdog compares epochs with a fixed sum over samples: "
            "give the data a length, or use one of torch's optimizers with a time_limit"
        )
    if time_limit is None:
        raise ValueError("A loader without a length may never end: set a time_limit")


def _tensors(pair: tuple[Any, Any], model: nn.Module, loss_fn: Any, name: str) -> tuple[Tensor, Tensor]:
    inputs, target = (_as_tensor(part) for part in pair)
    if inputs.dim() == 0 or target.dim() == 0 or len(inputs) != len(target):
        raise ValueError(f"Invalid {name}: inputs {tuple(inputs.shape)} and targets {tuple(target.shape)} do not match")
    if len(inputs) == 0:
        raise ValueError(f"Invalid {name}: there are no samples")
    dtype = next((p.dtype for p in model.parameters()), torch.get_default_dtype())
    inputs, target = (_as_the_model_wants(part, dtype, device_of(model)) for part in (inputs, target))
    for part, what in ((inputs, "inputs"), (target, "targets")):
        _require_finite(part, f"{name} {what}")
    if isinstance(loss_fn, nn.CrossEntropyLoss | nn.NLLLoss):
        return inputs, target
    return inputs, _with_the_outputs_shape(inputs, target, model)


def _as_tensor(part: Any) -> Tensor:
    if hasattr(part, "to_numpy"):  # a column or a table of pandas, which may not let its own memory be written to
        import numpy

        part = numpy.array(part)
    return torch.as_tensor(part)


def _as_the_model_wants(part: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """NumPy's arrays are double precision by default, and most models are not."""
    return part.to(device=device, dtype=dtype if part.is_floating_point() else part.dtype)


def _require_finite(values: Tensor, what: str) -> None:
    if not values.is_floating_point():
        return
    bad = ~torch.isfinite(values.reshape(len(values), -1)).all(1)
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise ValueError(
            f"The {what} are not finite in {int(bad.sum())} of {len(values)} samples, first in sample {first}"
        )


def _with_the_outputs_shape(inputs: Tensor, target: Tensor, model: nn.Module) -> Tensor:
    """Targets (n,) against outputs (n, 1) would be broadcast to (n, n) by most losses."""
    if target.dim() != 1:
        return target
    with undisturbed(model, None), torch.no_grad():
        model.eval()
        output = model(inputs[:2])
    if isinstance(output, Tensor) and output.shape == (len(inputs[:2]), 1):
        return target.unsqueeze(1).to(output.dtype)
    return target
