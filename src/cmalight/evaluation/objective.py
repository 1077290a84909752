"""f(w): the mean loss per sample over all the data, evaluated without a trace."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, DistributedSampler, Subset

from cmalight.errors import check_choice
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.counting import batch_size, refuse_broadcast, sample_count
from cmalight.evaluation.norms import accumulation_dtype
from cmalight.evaluation.randomness import random_state_kept, seed_everything
from cmalight.evaluation.ranks import Ranks, communicates, ranks_of, reshard, unwrapped
from cmalight.evaluation.state import modules_kept

Forward = Callable[[Any, Any], tuple[Tensor, Any]]
_SEED = 0x5A3917  # for the random numbers that every evaluation draws
_PROBED = 4  # batches of a probe
_NOWHERE = torch.empty(0)  # stands for the parameters of a model that has none


class Objective:
    """The loss that is minimised: calling it gives the mean loss per sample over all data, at the current weights.

    Every evaluation draws the same random numbers (dropout, augmentation, order), so that it is a function of the
    weights. It leaves no trace: buffers of model and loss, gradients, train/eval modes and the global random state are
    as before, and no layer can write into the data.

    Args:
        model: Run in training mode, as the epoch runs it; modules frozen in eval mode stay so as long as the model
            itself is in training mode.
        loss_fn: `loss_fn(model(input), target)` gives the mean loss of a batch.
        data: Yields `(input, target)`, again and again: a DataLoader, `TensorBatches`, a list of batches, or a pair of
            tensors. Batches are moved to the model's device.
        forward: For other batches, `forward(model, batch)` gives the mean loss and the number of samples behind it.
        mode: "train", or "eval" to evaluate with dropout off and BatchNorm's running statistics.
        process_group: The ranks that share the evaluation: a group, False for this rank alone, or None for the group
            of the model, or else all ranks. Each rank evaluates the data of its loader; with a DistributedSampler
            every row counts once.

    Attributes:
        evaluations: Full evaluations so far.
        evaluated_rows: Rows evaluated so far on this rank.
        samples: The sum of the counts of the last full evaluation.
        rows: The rows of the last full evaluation on this rank.
        modules: The model and, where it is a module, the loss.
        before_batch: Called before each batch of a full evaluation; it may raise to stop the evaluation.
        fast: Another way to compute the same mean, such as a compiled one; None runs the model.

    Raises:
        ValueError: If an argument cannot be used, such as an iterator, which ends after one pass.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from cmalight import Objective
        >>> x = torch.ones(100, 2)
        >>> model = nn.Linear(2, 1)
        >>> objective = Objective(model, nn.MSELoss(), [(x[:60], model(x[:60]) + 1), (x[60:], model(x[60:]) + 1)])
        >>> round(objective(), 6)  # over all 100 samples, each counted once
        1.0
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, Any], Tensor] | None,
        data: Any,
        *,
        forward: Forward | None = None,
        mode: Literal["train", "eval"] = "train",
        process_group: Any = None,
    ) -> None:
        check_choice("mode", mode, ("train", "eval"))
        if not isinstance(model, nn.Module):
            raise ValueError(f"Objective needs a torch.nn.Module as its model, but got {model!r}")
        if not (loss_fn is None or callable(loss_fn)):
            raise ValueError(f"Objective needs a loss_fn to call, but got {loss_fn!r}")
        if loss_fn is None and forward is None:
            raise ValueError("Objective needs a loss_fn, or forward=lambda model, batch: (mean loss, count)")
        if (reduction := getattr(loss_fn, "reduction", "mean")) in ("sum", "none"):
            raise ValueError(
                f"Objective needs the mean loss of a batch, but loss_fn has reduction={reduction!r}; "
                "use reduction='mean'"
            )
        self.model = model
        self.loss_fn = loss_fn
        self.modules: tuple[nn.Module, ...] = (model, loss_fn) if isinstance(loss_fn, nn.Module) else (model,)
        self.data = _reiterable(data)
        self.mode = mode
        self.process_group = process_group
        self.evaluations = 0
        self.evaluated_rows = 0
        self.samples = 0.0
        self.rows = 0
        self.before_batch: Callable[[], object] | None = None
        self.fast: Callable[[], float] | None = None
        self._forward = forward
        self._probed: list[Any] | None = None

    def __call__(self) -> float:
        """Evaluate f at the current weights.

        Returns:
            The mean loss per sample over the data of all ranks.
        """
        self.evaluations += 1
        if self.fast is not None and self.samples:
            self.evaluated_rows += self.rows
            return self.fast()
        with self._without_a_trace():
            batches = self._rank_data()
            if not self._ranks.alone and communicates(self.model):
                self._refuse_unequal_passes(batches)
            before = self.evaluated_rows
            mean, self.samples = self._mean_loss(batches)
            if not self.samples:
                raise ValueError("Objective has no sample to evaluate: the data are empty, or the loss ignores all")
            self.rows = self.evaluated_rows - before
        return mean

    def probe(self) -> float:
        """Evaluate a few whole batches, the same ones every time: a cheap estimate of f.

        Returns:
            Their mean loss per sample, over all ranks; NaN if the loss ignores all of them.
        """
        with self._without_a_trace():
            if self._probed is None:
                self._probed = list(itertools.islice(self._shuffled(), _PROBED))
                seed_everything(_SEED)
            return self._mean_loss(self._probed)[0]

    def is_like(self, other: Any) -> bool:
        """Whether another objective gives the same values: it has the same model, loss and data.

        Args:
            other: What it is compared with.

        Returns:
            True for one that was made again from the same parts.
        """
        return isinstance(other, Objective) and self._parts == other._parts

    @property
    def _parts(self) -> tuple[Any, ...]:
        data = self.data.tensors if isinstance(self.data, TensorBatches) else (self.data,)
        return self.model, self.loss_fn, self._forward, self.mode, *map(id, data)

    @property
    def _ranks(self) -> Ranks:
        return ranks_of(self.model, self.process_group)

    @contextmanager
    def _without_a_trace(self) -> Iterator[None]:
        """Inside the block the model is in the objective's mode; after it, everything is as before."""
        try:
            generators = _generators_of(self.data)
            kept = random_state_kept(self.model, *generators)
            with torch.no_grad(), kept, modules_kept(*self.modules):
                for generator in generators:
                    generator.manual_seed(_SEED)
                if self.mode == "eval":
                    self.model.eval()
                elif not self.model.training:
                    self.model.train()
                seed_everything(_SEED)
                yield
        finally:
            reshard(self.model)

    def _rank_data(self) -> Iterable[Any]:
        """What this rank evaluates."""
        data, ranks = self.data, self._ranks
        if isinstance(data, TensorBatches):
            data = copy.copy(data)  # which counts its own epochs
            data.order = "fixed"
        elif isinstance(data, DataLoader) and not ranks.alone and type(data.sampler) is DistributedSampler:
            # The sampler repeats rows until every rank has equally many; here each counts once.
            dataset: Any = data.dataset
            rows = range(ranks.rank, len(dataset), ranks.size)
            data = DataLoader(Subset(dataset, rows), batch_size=data.batch_size, collate_fn=data.collate_fn)
        return data  # type: ignore[no-any-return]

    def _shuffled(self) -> Iterator[Any]:
        """Batches of this rank in random order: data may be sorted."""
        data = self._rank_data()
        if isinstance(data, TensorBatches):
            data.order, data.seed, data.epoch = "reshuffle", _SEED, 0
        if isinstance(data, list | tuple):
            return (data[i] for i in torch.randperm(len(data)).tolist())
        return iter(data)

    def _mean_loss(self, batches: Iterable[Any]) -> tuple[float, float]:
        rows = self._ranks.gather(*self._own_sum(batches))
        loss_sum, samples = (sum(column) for column in zip(*rows, strict=True))
        return loss_sum / samples if samples else math.nan, samples

    def _own_sum(self, batches: Iterable[Any]) -> tuple[float, float]:
        """The sum of this rank's losses, and their number."""
        total: Tensor | None = None
        samples = 0.0
        for batch in batches:
            if self.before_batch is not None:
                self.before_batch()
            loss, count = self._evaluate(batch)
            if not count:  # every target is ignored, and the mean over none is NaN
                continue
            if total is None:
                total = torch.zeros((), dtype=accumulation_dtype(loss.device), device=loss.device)
            total.add_(loss.to(total.device), alpha=count)
            samples += count
            self.evaluated_rows += int(batch_size(batch) or count)
        return 0.0 if total is None else float(total.item()), samples

    def _evaluate(self, batch: Any) -> tuple[Tensor, float]:
        """The mean loss of a batch, and the number of samples behind it; 0 if the loss ignores all of them."""
        device = next(iter(self.model.parameters()), _NOWHERE).device
        own = tree_map(lambda part: _own_copy(part, device), batch)
        loss, count = self._counted(own) if self._forward is not None else self._of_pair(own)
        loss = torch.as_tensor(loss)
        if loss.numel() != 1:
            raise ValueError(f"Objective needs a scalar loss per batch, but got one of shape {tuple(loss.shape)}")
        return loss.reshape(()), float(count)

    def _counted(self, batch: Any) -> tuple[Any, float]:
        result = self._forward(unwrapped(self.model), batch)  # type: ignore[misc]
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ValueError(
                "forward must return (mean loss, count), the count being the number of samples behind the mean, "
                f"but it returned {_describe(result)}"
            )
        if not float(result[1]) >= 0:
            raise ValueError(f"forward returned the count {result[1]}; expected a number of samples, at least 0")
        return result[0], float(result[1])

    def _of_pair(self, batch: Any) -> tuple[Tensor, float]:
        if self.loss_fn is None or not (isinstance(batch, list | tuple) and len(batch) == 2):
            raise ValueError(
                f"Objective expects batches (input, target), but the data gave {_describe(batch)}; "
                "pass forward=lambda model, batch: (mean loss, count)"
            )
        inputs, target = batch
        count = sample_count(self.loss_fn, target)
        if count is None:
            raise ValueError(
                f"Objective cannot count the samples of a target that is {_describe(target)}; "
                "pass forward=lambda model, batch: (mean loss, count)"
            )
        output = unwrapped(self.model)(inputs)
        refuse_broadcast(output, target, self.loss_fn)
        return self.loss_fn(output, target), count

    def _refuse_unequal_passes(self, batches: Iterable[Any]) -> None:
        lengths = self._ranks.lengths(batches)
        if len(lengths) > 1 or lengths[0] < 0:
            raise ValueError(
                f"The forward pass of this model talks to the other ranks, but their data have {lengths} batches: "
                "give every rank equally many, for example by a DistributedSampler with drop_last=True"
            )


def require_finite_start(f_0: float, objective: Any) -> None:
    """Raise ValueError unless f(w⁰) is finite, and name the first batch whose loss is not."""
    if math.isfinite(f_0):
        return
    found = "f is NaN or infinite"
    if isinstance(objective, Objective):
        with objective._without_a_trace():
            for number, batch in enumerate(objective._rank_data()):
                loss, count = objective._evaluate(batch)
                if count and not math.isfinite(value := float(loss)):
                    found = f"the loss of batch {number}, counted from 0, is {'NaN' if math.isnan(value) else value}"
                    break
    raise ValueError(f"At the start {found}: check data, loss and initial weights")


def evaluated(objective: Callable[[], Any], modules: Sequence[nn.Module]) -> float:
    """Evaluate f. A plain callable leaves no trace in the modules either, and draws the same numbers every time."""
    if isinstance(objective, Objective):
        return objective()
    with torch.no_grad(), random_state_kept(next(iter(modules), None)), modules_kept(*modules):
        if modules:  # else nobody knows whose random numbers to put back
            seed_everything(_SEED)
        value = objective()
    if value is None:
        raise ValueError("The objective gave None; expected it to return the mean loss over all data")
    return float(value)


def _reiterable(data: Any) -> Any:
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Tensor) for part in data):
        return TensorBatches(*data, order="fixed")
    if isinstance(data, Iterator):
        raise ValueError(
            "Objective needs data that can be iterated again and again, but got an iterator, which ends after one "
            "pass; pass the DataLoader or a list of batches itself"
        )
    if not isinstance(data, Iterable):
        raise ValueError(f"Objective needs data, such as a DataLoader or a list of batches, but got {data!r}")
    if hasattr(data, "base_dataloader") and hasattr(data, "gradient_state"):
        # Accelerate's loader counts its passes and tells gradient accumulation where an epoch ends.
        return data.base_dataloader
    if isinstance(data, DataLoader) and data.persistent_workers:
        # Such a loader has one iterator only, and an evaluation in mid-epoch would reset it.
        private = copy.copy(data)
        private._iterator = None
        vars(private)["persistent_workers"] = False  # new workers draw the same random numbers every time
        return private
    return data


def _own_copy(part: Any, device: torch.device) -> Any:
    if isinstance(part, Tensor):
        return part.to(device, copy=True, non_blocking=True)
    if hasattr(part, "to"):  # a batch of its own class, such as BatchEncoding, whose `to` may change it in place
        return copy.deepcopy(part).to(device)
    return part


def _generators_of(data: Any) -> list[torch.Generator]:
    """Those that a DataLoader and its samplers draw from, beside the global one."""
    batch_sampler = getattr(data, "batch_sampler", None)
    samplers = (data, getattr(data, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None))
    found = [getattr(one, "generator", None) for one in samplers]
    return [generator for generator in found if isinstance(generator, torch.Generator)]


def _describe(batch: Any) -> str:
    if isinstance(batch, list | tuple):
        return f"a {type(batch).__name__} of {len(batch)}"
    if isinstance(batch, Tensor):
        return f"a tensor of shape {tuple(batch.shape)}"
    return f"a {type(batch).__name__}"
