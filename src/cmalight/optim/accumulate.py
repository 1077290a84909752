"""What an epoch collects batch by batch: the losses, on their device, and the counts, on the host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cmalight.norms import accumulation_dtype


class LossSum:
    """Σ count · loss in double precision on the losses' device; only `value` and `lowest` wait for it."""

    def __init__(self, *, track_lowest: bool) -> None:
        self._sum: Tensor | None = None
        self._lowest: Tensor | None = None
        self._track_lowest = track_lowest

    def add(self, loss: Tensor | float, count: float) -> None:
        if not isinstance(loss, Tensor):
            loss = torch.as_tensor(loss, dtype=torch.float64)
        if loss.numel() != 1 or loss.is_complex():
            raise ValueError(
                f"Invalid loss: expected a real scalar, the mean loss of the batch, but got a {loss.dtype} "
                f"tensor of shape {tuple(loss.shape)}"
            )
        loss = loss.detach().reshape(())
        if self._sum is None:
            self._start(loss.device)
        self._add(loss, count)
        if self._lowest is not None:
            torch.minimum(self._lowest, loss.to(self._lowest.device), out=self._lowest)

    def add_regularisation(self, term: Tensor, count: float) -> None:
        """The term that goes with the loss last added: at least 0, so it cannot change `lowest`."""
        self._add(term, count)

    def value(self) -> float:
        return 0.0 if self._sum is None else float(self._sum.item())

    def lowest(self) -> float:
        return math.inf if self._lowest is None else float(self._lowest.item())

    def _start(self, device: torch.device) -> None:
        dtype = accumulation_dtype(device)
        self._sum = torch.zeros((), dtype=dtype, device=device)
        if self._track_lowest:
            self._lowest = torch.full((), math.inf, dtype=dtype, device=device)

    def _add(self, value: Tensor, count: float) -> None:
        if self._sum is not None:
            self._sum.add_(value if value.device == self._sum.device else value.to(self._sum.device), alpha=count)


class BatchCounts:
    """How many samples were seen, and how many stand behind the next step.

    `zero_grad` cuts: what was observed before it is behind the next step only if nothing was observed after it.
    So both usual orders work (`zero_grad, observe, step` and `observe, zero_grad, step`), and a batch whose step
    was skipped, as GradScaler does, is not taken for gradient accumulation.
    """

    def __init__(self) -> None:
        self.total = 0.0  # N
        self.nominal = 1.0  # n̄, the size of the first batch
        self.observations = 0
        self.batch_size: float | None = None  # of the batch that `epoch.batches` gave last
        self._since_cut = 0.0
        self._before_cut = 0.0
        self._first = True
        self._announced = 0.0

    def announce(self, batch_size: float | None) -> None:
        """A batch of this size is about to be seen."""
        self.batch_size = batch_size
        self._announced += batch_size or 0.0

    @property
    def are_batch_sizes(self) -> bool:
        """Whether what was observed so far is what was announced."""
        return self.total == self._announced

    @property
    def pending(self) -> float:
        """n_p: the samples behind the gradients as they stand."""
        return self._since_cut or self._before_cut

    def add(self, count: float) -> None:
        self.total += count
        self.observations += 1
        self._since_cut += count

    def cut(self) -> None:
        if self._since_cut:
            self._before_cut, self._since_cut = self._since_cut, 0.0

    def take(self) -> float:
        """n_p/n̄ for a step, which uses up what is pending."""
        count = self.pending
        if not count:
            raise RuntimeError(
                "step() was called inside an epoch without an observation: "
                "call epoch.observe(loss, len(target)) for the batch first"
            )
        if self._first:
            self.nominal, self._first = count, False
        self._before_cut = self._since_cut = 0.0
        return count / self.nominal


def batch_size(batch: Any) -> float | None:
    """The length of the first tensor in a batch, where there is one."""
    if isinstance(batch, Tensor):
        return float(len(batch)) if batch.dim() else None
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        return next((size for part in batch if (size := batch_size(part)) is not None), None)
    return None
