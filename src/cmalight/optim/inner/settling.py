"""What the ranks of an epoch have to settle: the weights of their gradients, the end of the epoch, its figures."""

from __future__ import annotations

import gc
import math
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.utils._pytree import tree_leaves

from cmalight.evaluation.counting import batch_size, length_of
from cmalight.evaluation.rank_parts import sizes_of
from cmalight.optim.inner.tally import BatchCounts
from cmalight.parallel.ranks import Ranks, is_distributed

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

    DDP and FSDP2 give the plain average over W ranks, (1/W) Σ_r ∇ℓ_r, to which a rank that has joined adds nothing.
    Wanted is ∇ℓ_p = Σ_r n_r ∇ℓ_r / n_p. Where the loaders tell their batch sizes beforehand, ∇ℓ_r gets the weight
    n_r W/n_p, on the model's outputs. Where they do not, a loss that is observed before its backward pass gets the
    weight n_r W/n̄, and the step is then of full length. So nobody waits for anybody at a batch.
    What got no weight makes a step as long as its rank's own batch asks for; `agreed` looks whether all did the same.
    """

    def __init__(self, ranks: Ranks, model: nn.Module | None) -> None:
        self._ranks = ranks
        self._model = model
        self._usual = 0.0  # n̄/W
        self._means: list[float] = []  # n_p/W of each batch, where the ranks' sizes differ
        self._given = 0
        self._size = 0.0  # n_r of the batch under way, where that is not its mean n_p/W
        self._mean = 0.0
        self._applied = False  # whether the outputs' gradients have got their weight
        self._hook: Any = None
        self._steps = 0
        self._not_full: list[tuple[int, float]] = []  # the number and the length of steps that were not of full length

    def begin(self, loader: Iterable[Any], limit: int | None = None) -> Beginning:
        """Learn how much there is to come, on all ranks; `limit` is how many batches are taken, None for all."""
        sizes = sizes_of(loader)
        sizes = sizes if sizes is None else sizes[:limit]
        length = limit or length_of(loader) or 0
        rows = self._ranks.gather(length, -1.0 if sizes is None else sum(sizes), _checksum(sizes or ()))
        batches = int(min(row[0] for row in rows))
        self._refuse_uneven_numbers([int(row[0]) for row in rows])
        if sizes is None or any(row[1] < 0 for row in rows):
            return Beginning(batches, None)
        if any(row != rows[0] for row in rows):
            longest = int(max(row[0] for row in rows))
            table = self._ranks.gather(*sizes, *[0.0] * (longest - len(sizes)))
            self._means = [sum(column) / self._ranks.size for column in zip(*table, strict=True)]
        self._usual = (self._means or sizes or [0.0])[0]
        return Beginning(batches, sum(row[1] for row in rows))

    def _refuse_uneven_numbers(self, batches: list[int]) -> None:
        """A rank that has more batches than another would wait for it for ever in its backward pass."""
        mark: Any = getattr(self._model, "_join_config", None)
        if min(batches) in (0, max(batches)) or self._model is None or not is_distributed(self._model):
            return
        if mark is None or not mark.enable:
            raise RuntimeError(
                f"The ranks have different numbers of batches, {batches}, so that some would wait for others for ever: "
                "put the loop into `with Join([model]):`, inside the epoch, or give every rank equally many, as "
                "DistributedSampler does"
            )

    def announce(self, batch: Any) -> None:
        """The batch that comes next."""
        self._size, self._applied = 0.0, False
        if not self._means:
            return
        size, self._mean = batch_size(batch), self._means[min(self._given, len(self._means) - 1)]
        self._given += 1
        if size is not None and size != self._mean and self._model is not None:
            self._size = size
            self._hook = self._hook or self._model.register_forward_hook(self._on_outputs)

    def end(self) -> None:
        if self._hook is not None:
            self._hook.remove()

    def observed(self, loss: Any, count: float, counts: BatchCounts) -> float:
        """What `count` samples are worth for the length of the step, once the gradient's weight is taken off."""
        if self._applied:
            return self._mean * (count / self._size)
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
            self._not_full.append((self._steps, scale))

    def agreed(self, own: Totals) -> Totals:
        """Everybody's figures together; refused where the ranks did not train one model with the same steps."""
        rows = self._ranks.gather(
            own.loss, own.samples, own.nominal, own.steps, own.displacement, self._steps, bool(self._not_full)
        )
        stepped = [row for row in rows if row[5]]
        same_nominal = all(row[2] == stepped[0][2] for row in stepped)
        if not same_nominal or (any(row[6] for row in rows) and self._lengths_differ([row[5] for row in rows])):
            raise RuntimeError(_UNEVEN)
        lengths = [row[4] for row in rows]
        finite = all(map(math.isfinite, lengths))
        if finite and max(lengths) - min(lengths) > _DRIFT * max(lengths):
            raise RuntimeError(_APART)
        return Totals(
            loss=sum(row[0] for row in rows),
            samples=sum(row[1] for row in rows),
            nominal=self._ranks.size * stepped[0][2] if stepped else 1.0,
            steps=max(row[3] for row in rows),
            displacement=lengths[0] if finite else math.inf,
        )

    def _lengths_differ(self, steps: list[float]) -> bool:
        """Whether two ranks took a step of the same number, but not of the same length."""
        ends = sorted(set(steps))
        table = self._ranks.gather(
            *(_checksum(v for pair in self._not_full if pair[0] <= end for v in pair) for end in ends)
        )
        return any(
            len({row[column] for row, taken in zip(table, steps, strict=True) if taken >= end}) > 1
            for column, end in enumerate(ends)
        )

    def _on_outputs(self, _module: nn.Module, _inputs: Any, outputs: Any) -> None:
        for output in tree_leaves(outputs) if torch.is_grad_enabled() else ():
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(self._weigh_output)  # type: ignore[no-untyped-call]

    def _weigh_output(self, gradient: Tensor) -> Tensor | None:
        if not self._size:
            return None
        self._applied = True
        return gradient * (self._size / self._mean)


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


def _checksum(values: Iterable[float]) -> int:
    return zlib.crc32(array("d", values).tobytes())


_UNEVEN = (
    "The ranks' batches had different sizes in the same step, so that a plain average of their gradients weighs "
    "samples differently: iterate `epoch.batches(loader)`, a loader whose batch sizes are known beforehand, with the "
    "model that the objective has, or call epoch.observe(loss, count) before loss.backward(), with a first batch of "
    "the same size on every rank. The epoch was undone."
)
_APART = (
    "The ranks went to different weights: wrap the model in DistributedDataParallel, or, if each rank trains a model "
    "of its own, pass process_group=False to Objective. The epoch was undone."
)
