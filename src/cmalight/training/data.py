"""What `fit` takes as data, made into batches that it can iterate again and again; and weights of samples."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, IterableDataset, default_collate

from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.counting import batch_size as length_of_batch
from cmalight.evaluation.counting import sample_count
from cmalight.evaluation.randomness import random_state_kept
from cmalight.evaluation.state import modules_kept


def batches_of(data: Any, name: str, model: nn.Module, loss_fn: Any, **options: Any) -> Iterable[Any]:
    """TensorBatches with these options for a pair of tensors or arrays, which fit the model's dtype, device and output.

    A loader is used as it is.
    """
    if isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "__len__") for part in data):
        return TensorBatches(*_tensors(data, model, loss_fn, name), **options)
    if isinstance(data, Iterator):
        raise ValueError(f"{name} is an iterator, which ends after one pass; pass what it was made from")
    if not hasattr(data, "__iter__"):
        raise ValueError(
            f"Invalid {name}: expected a pair of tensors or arrays, TensorBatches or a DataLoader, "
            f"but got {type(data).__name__}"
        )
    return data  # type: ignore[no-any-return]


def pairs_of(
    batches: Iterable[Any], model: nn.Module, loss_fn: Any, *, by_rows: bool
) -> Iterator[tuple[Any, Any, float]]:
    """The batches of a loader as inputs, targets, and the number of samples behind the mean loss.

    They are on the model's device, in memory that is not the caller's: a layer that works in place, such as
    `ReLU(inplace=True)`, may come first in a model. Batches of TensorBatches and collated ones are new memory already;
    all others are copied.
    """
    device = device_of(model)
    is_collated = isinstance(batches, DataLoader) and batches.collate_fn is default_collate
    copies = not (is_collated or type(batches) is TensorBatches)
    for batch in batches:
        if not (isinstance(batch, list | tuple) and len(batch) == 2):
            size = f" of {len(batch)}" if isinstance(batch, list | tuple) else ""
            raise ValueError(
                "fit expects (inputs, targets), or a loader of batches (input, target), but the data gave a "
                f"{type(batch).__name__}{size}; for other batches write your loop, with Objective(..., forward=...)"
            )
        own = tree_map_only(Tensor, lambda part: part.to(device, non_blocking=True, copy=copies), tuple(batch))
        inputs, targets = own
        count = length_of_batch(targets) if by_rows else sample_count(loss_fn, targets)
        if not (count := count or length_of_batch(inputs)):
            raise ValueError("A batch has no tensor with a first dimension, so its size is not known")
        yield inputs, targets, count


def device_of(model: nn.Module) -> torch.device:
    """Where the model's first parameter is."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def length_of(batches: Any) -> int | None:
    """Batches of one pass; None if that is not known, or a guess, as for an IterableDataset."""
    if isinstance(getattr(batches, "dataset", None), IterableDataset):
        return None
    try:
        return len(batches)
    except TypeError:  # a DataLoader over a stream has a __len__ that raises
        return None


def counts_rows(loss_fn: Any, batches: Any) -> bool:
    """Whether the samples behind the mean loss of a batch are its rows; the loss may weight classes or ignore some."""
    if not isinstance(loss_fn, nn.CrossEntropyLoss | nn.NLLLoss):
        return True
    if loss_fn.weight is not None or type(batches) is not TensorBatches:
        return False
    return not bool((batches.tensors[1] == loss_fn.ignore_index).any())


def _tensors(pair: tuple[Any, Any], model: nn.Module, loss_fn: Any, name: str) -> tuple[Tensor, Tensor]:
    inputs, targets = (_as_tensor(part).to(device_of(model)) for part in pair)
    if inputs.dim() == 0 or targets.dim() == 0 or len(inputs) != len(targets):
        raise ValueError(
            f"Invalid {name}: inputs {tuple(inputs.shape)} and targets {tuple(targets.shape)} do not match"
        )
    if len(inputs) == 0:
        raise ValueError(f"Invalid {name}: there are no samples")
    if inputs.is_floating_point():
        dtypes = (p.dtype for p in model.parameters() if p.is_floating_point())
        inputs = inputs.to(next(dtypes, torch.get_default_dtype()))
    _require_finite(inputs, f"{name} inputs")
    targets = _as_the_output(targets, _output(inputs, model), loss_fn)
    _require_finite(targets, f"{name} targets")
    return inputs.contiguous(), targets.contiguous()  # tables of pandas lie in memory by columns


def _as_tensor(part: Any) -> Tensor:
    if hasattr(part, "to_numpy"):  # a column or a table of pandas, which may refuse writes to its memory
        import numpy

        part = numpy.array(part)
    return torch.as_tensor(part)


def _output(inputs: Tensor, model: nn.Module) -> Any:
    """What the model gives for the first two samples; computing it leaves no trace."""
    with random_state_kept(model), modules_kept(model), torch.no_grad():
        model.eval()
        return model(inputs[:2].clone())


def _as_the_output(targets: Tensor, output: Any, loss_fn: Any) -> Tensor:
    """Targets in the shape and the precision of the model's output, if they can lose nothing by it.

    (n,) against outputs (n, 1) would be broadcast to (n, n) by most losses. NumPy's numbers are double precision by
    default, and most outputs are not. Torch takes only int64 as labels. The output decides, not the parameters: a half
    precision body may end in a float32 head.
    """
    if not isinstance(output, Tensor):
        return targets
    takes_labels = isinstance(loss_fn, nn.CrossEntropyLoss | nn.NLLLoss)
    if takes_labels and not targets.is_floating_point():
        return targets.long()
    is_column = targets.dim() == 1 and output.dim() == 2 and output.shape[1] == 1
    if is_column and not takes_labels:
        targets = targets.unsqueeze(1)
        targets = targets if targets.is_floating_point() else targets.to(output.dtype)
    if not (targets.is_floating_point() and output.is_floating_point()):
        return targets
    widens = torch.promote_types(targets.dtype, output.dtype) == output.dtype
    return targets.to(output.dtype) if widens or targets.dtype == torch.float64 else targets


def _require_finite(values: Tensor, what: str) -> None:
    if not values.is_floating_point():
        return
    bad = ~torch.isfinite(values.reshape(len(values), -1)).all(1)
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise ValueError(
            f"The {what} have NaN or infinity in {int(bad.sum())} of {len(values)} samples, first in sample {first}, "
            "counted from 0: drop or replace them"
        )


class SampleWeighted(nn.Module):
    """The weighted mean of a loss; `with_weights` puts the weights beside the targets.

    Args:
        loss: A loss of torch, such as `nn.MSELoss()` or `nn.CrossEntropyLoss()`.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        if not hasattr(loss, "reduction"):
            raise ValueError(f"Invalid loss: {loss!r} has no reduction; expected one of torch's, such as nn.MSELoss()")
        each: Any = copy.deepcopy(loss)
        each.reduction = "none"
        self._each = each
        self._takes_labels = isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean over the batch."""
        wanted, weight = target[:, :-1], target[:, -1]
        each: Tensor = self._each(output, wanted[:, 0].long() if self._takes_labels else wanted.reshape(output.shape))
        return (each.reshape(len(each), -1).mean(1) * weight).mean()


def with_weights(target: Any, weight: Any) -> Tensor:
    """Targets for `SampleWeighted`: those of the samples, with the weights as a last column.

    Args:
        target: Numbers, or labels of classes.
        weight: One number >= 0 per sample; they are scaled so that their mean is 1.

    Returns:
        Targets for `fit`.

    Raises:
        ValueError: The weights are not such numbers, or all are 0.
    """
    values = torch.as_tensor(target)
    weights = torch.as_tensor(weight, dtype=torch.float64)
    if weights.shape != values.shape[:1]:
        raise ValueError(f"Invalid weights: expected {len(values)}, one per sample, but got {tuple(weights.shape)}")
    if not bool((weights >= 0).all()) or not 0 < float(weights.sum()) < float("inf"):
        raise ValueError("Invalid weights: expected finite numbers >= 0, at least one of them above 0")
    values = values.reshape(len(values), -1)
    kind = values.dtype if values.is_floating_point() else torch.float64
    return torch.cat((values.to(kind), (weights / weights.mean()).to(kind)[:, None]), dim=1)
