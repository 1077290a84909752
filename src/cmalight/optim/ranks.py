"""What the ranks of an epoch have to settle: the weights of their gradients, the end of the epoch, its figures."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.utils._pytree import tree_leaves
from torch.utils.data import IterableDataset

from cmalight.counting import batch_size
from cmalight.distributed import Ranks
from cmalight.sharing import samples_in

# Beyond this relative difference of ‖w̃ − w^k‖ the ranks do not train one model.
_DRIFT = 1e-3


@dataclass(frozen=True)
class Totals:
    """What an epoch collected, on one rank or on all together."""

    loss: float  # Σ count · loss
    samples: float  # N
    nominal: float  # n̄
    steps: float
    displacement: float  # ‖w̃ − w^k‖


@dataclass(frozen=True)
class Beginning:
    """What the ranks know of each other's loaders before the first batch."""

    batches: int  # that every rank has at least; 0 where it is not known
    samples: float | None  # in all loaders together


class GradientWeights:
    """Weighs this rank's gradient before it is averaged with the others', so that every sample counts once.

    DDP and FSDP2 give the plain average over W ranks, (1/W) Σ_r ∇ℓ_r, and a rank that has joined gives 0. Wanted is
    Σ_r n_r ∇ℓ_r / n̄. The weight n_r W/n̄ on ∇ℓ_r does it, and the ranks need not ask each other for it at every batch.
    It is put on the model's outputs where `epoch.batches` gave the batch, or on a loss that was observed before its
    backward pass; a step that got neither is as long as its rank's own batch asks for, and `agreed` looks whether
    that was the same on every rank.
    """

    def __init__(self, ranks: Ranks, model: nn.Module | None) -> None:
        self._ranks = ranks
        self._model = model
        self._usual = 0.0  # n̄/W
        self._size = 0.0  # of the batch under way, where it is not the usual one
        self._applied = False  # whether the outputs' gradients have got it
        self._hook: Any = None
        self._steps = 0
        self._lengths = (0.0, 0.0)  # a signature of the steps that were not of full length

    def begin(self, loader: Iterable[Any], iterator: Iterator[Any]) -> tuple[Iterator[Any], Beginning]:
        """Look at everybody's first batch, and at how much there is to come."""
        first = next(iterator, _NOTHING)
        size = 0.0 if first is _NOTHING else batch_size(first) or math.nan
        rows = self._ranks.gather(size, _length_of(loader), -1.0 if (n := samples_in(loader)) is None else n)
        nominal = sum(row[0] for row in rows)  # n̄
        self._usual = 0.0 if math.isnan(nominal) else nominal / self._ranks.size
        samples = None if any(row[2] < 0 for row in rows) else sum(row[2] for row in rows)
        return chain(() if first is _NOTHING else (first,), iterator), Beginning(
            int(min(row[1] for row in rows)), samples
        )

    def announce(self, batch: Any) -> None:
        """The batch that comes next."""
        size = batch_size(batch)
        self._size = 0.0 if size is None or not self._usual or size == self._usual else size
        self._applied = False
        if self._size and self._model is not None and self._hook is None:
            self._hook = self._model.register_forward_hook(self._on_outputs)

    def end(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def observed(self, loss: Any, count: float, counts: Any) -> float:
        """What `count` samples are worth for the length of the step, when the gradient's weight is taken off."""
        if self._applied:
            return self._usual * (count / self._size)
        weight = count / (self._usual or count)
        self._usual = self._usual or count
        self._size = 0.0  # if the backward pass is still to come, the loss gets the weight, not the outputs
        if weight != 1.0 and isinstance(loss, Tensor) and loss.requires_grad:

            def weigh(gradient: Tensor) -> Tensor:
                counts.revalue(count, self._usual)
                return gradient * weight

            loss.register_hook(weigh)  # type: ignore[no-untyped-call]
        return count

    def stepped(self, scale: float) -> None:
        self._steps += 1
        if scale != 1.0:
            plain, numbered = self._lengths
            self._lengths = (plain + (scale - 1.0), numbered + (scale - 1.0) * self._steps)

    def agreed(self, own: Totals) -> Totals:
        """Everybody's figures together; refused where the ranks did not train one model with the same steps."""
        rows = self._ranks.gather(own.loss, own.samples, own.nominal, own.steps, own.displacement, *self._lengths)
        stepped = [row for row in rows if row[3]]
        if any((row[2], *row[5:]) != (stepped[0][2], *stepped[0][5:]) for row in stepped):
            raise RuntimeError(_UNEVEN)
        lengths = [row[4] for row in rows]
        if all(map(math.isfinite, lengths)) and max(lengths) - min(lengths) > _DRIFT * max(lengths):
            raise RuntimeError(_APART)
        return Totals(
            loss=sum(row[0] for row in rows),
            samples=sum(row[1] for row in rows),
            nominal=self._ranks.size * stepped[0][2] if stepped else 1.0,
            steps=max(row[3] for row in rows),
            displacement=lengths[0] if all(map(math.isfinite, lengths)) else math.inf,
        )

    def _on_outputs(self, _module: nn.Module, _inputs: Any, outputs: Any) -> None:
        for output in tree_leaves(outputs) if torch.is_grad_enabled() else ():
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(self._weigh_output)  # type: ignore[no-untyped-call]

    def _weigh_output(self, gradient: Tensor) -> Tensor | None:
        if not self._size:
            return None
        self._applied = True
        return gradient * (self._size / self._usual)


def refuse_outer_join(model: nn.Module | None, seen: object) -> object:
    """Refuse an epoch inside `with Join`: a rank that is done would conclude it while the others still train.

    Join leaves its mark on a model for good, so a mark that is not the one `seen` before is looked into.
    """
    mark: Any = getattr(model, "_join_config", None)
    if mark is None or not mark.enable or mark is seen:
        return mark
    if any(isinstance(o, Join) and id(model) in map(id, o._joinables) for o in gc.get_objects()):
        raise RuntimeError(
            "The epoch was begun inside `with Join(...)`: put Join inside the epoch, "
            "`with optimizer.epoch(objective) as epoch: with Join([model]): ...`"
        )
    return mark


def require_same_state(rows: Sequence[tuple[float, ...]]) -> None:
    if any(row != rows[0] for row in rows):
        raise RuntimeError(
            f"The ranks disagree on lr, f(w0), phi or the number of epochs: {sorted(set(rows))}. Load a checkpoint on "
            "every rank; if each rank trains a model of its own, pass process_group=False to Objective"
        )


def _length_of(loader: Any) -> float:
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return 0.0  # its length is a guess, and a rank that ends before it would leave the others waiting
    try:
        return float(len(loader))
    except TypeError:
        return 0.0


_NOTHING = object()
_UNEVEN = (
    "The ranks' batches had different sizes in the same step, so that a plain average of their gradients weighs "
    "samples differently: iterate `epoch.batches(loader)` with the model that the objective has, or call "
    "epoch.observe(loss, count) before loss.backward(). The epoch was undone."
)
_APART = (
    "The ranks went to different weights: wrap the model in DistributedDataParallel, or, if each rank trains a model "
    "of its own, pass process_group=False to Objective. The epoch was undone."
)
