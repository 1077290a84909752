"""What an epoch collects batch by batch: the losses, on their device, and the counts, on the host."""

from __future__ import annotations

import math
import numbers
from typing import Any

import torch
from torch import Tensor

from cmalight.evaluation.norms import accumulation_dtype

# A loss is only copied into a slot; the arithmetic is done for this many at once.
_SLOTS = 64


class LossSum:
    """Σ count · loss in double precision on the losses' device; only `value` and `value_and_lowest` wait for it."""

    def __init__(self) -> None:
        self._on_host = 0.0  # of losses on the CPU, which nobody has to wait for
        self._lowest_on_host = math.inf
        self._slots: tuple[Tensor, ...] = ()
        self._used = 0
        self._count = 0.0  # of each loss in the slots

    def add(self, loss: Tensor | float, count: float) -> None:
        if not isinstance(loss, Tensor):
            loss = _as_tensor(loss)
        if loss.dim() or loss.is_complex():
            loss = _as_real_scalar(loss)
        if loss.is_cpu:
            value = loss.item()
            self._on_host += count * value
            if value < self._lowest_on_host:
                self._lowest_on_host = value
            return
        if not self._slots:
            self._start(loss.device)
        if self._used == _SLOTS or count != self._count:
            self._fold()
            self._count = count
        self._slots[self._used].copy_(loss.detach(), non_blocking=True)
        self._used += 1

    def add_term(self, value: Tensor, weight: float) -> None:
        """weight · value, where value is at least 0: it cannot change the lowest loss."""
        if value.is_cpu:
            self._on_host += weight * value.item()
            return
        if not self._slots:
            self._start(value.device)
        self._sum.add_(value.to(self._sum.device), alpha=weight)

    # Reading changes nothing, so that the sum does not depend, to the last bit, on how often it is read.

    def value(self) -> float:
        if not self._slots:
            return self._on_host
        return self._on_host + float(self._sum.add(self._buffer[: self._used].sum(), alpha=self._count).item())

    def value_and_lowest(self) -> tuple[float, float]:
        """Σ count · loss and the least loss, waiting once."""
        if not self._slots:
            return self._on_host, self._lowest_on_host
        losses = self._buffer[: self._used]
        total = self._sum.add(losses.sum(), alpha=self._count)
        lowest = torch.minimum(losses.min(), self._lowest) if self._used else self._lowest
        value, least = torch.stack((total, lowest)).tolist()
        return self._on_host + value, min(self._lowest_on_host, least)

    def _start(self, device: torch.device) -> None:
        dtype = accumulation_dtype(device)
        self._buffer = torch.empty(_SLOTS, dtype=dtype, device=device)
        self._slots = self._buffer.unbind()
        self._sum = torch.zeros((), dtype=dtype, device=device)
        self._lowest = torch.full((), math.inf, dtype=dtype, device=device)

    def _fold(self) -> None:
        if self._used:
            losses = self._buffer[: self._used]
            self._sum.add_(losses.sum(), alpha=self._count)
            self._lowest = torch.minimum(self._lowest, losses.min())
            self._used = 0


class Gathered(LossSum):
    """A sum that somebody else has made."""

    def __init__(self, total: float, lowest: float) -> None:
        super().__init__()
        self._figures = total, lowest

    def value(self) -> float:
        return self._figures[0]

    def value_and_lowest(self) -> tuple[float, float]:
        return self._figures


def _as_tensor(loss: object) -> Tensor:
    if not isinstance(loss, numbers.Real):
        raise ValueError(f"Invalid loss: expected the mean loss of the batch, a scalar tensor, but got {loss!r}")
    return torch.as_tensor(float(loss), dtype=torch.float64)


def _as_real_scalar(loss: Tensor) -> Tensor:
    if loss.numel() != 1 or loss.is_complex():
        raise ValueError(
            f"Invalid loss: expected a real scalar, the mean loss of the batch, but got a {loss.dtype} "
            f"tensor of shape {tuple(loss.shape)}"
        )
    return loss.reshape(())


class BatchCounts:
    """How many samples were seen, and how many stand behind the next step.

    `zero_grad` cuts: what was observed before it is behind the next step only if nothing was observed after it.
    So both usual orders work (`zero_grad, observe, step` and `observe, zero_grad, step`), and a batch whose step
    was skipped, as GradScaler does, is not taken for gradient accumulation.
    """

    def __init__(self, nominal: float | None = None) -> None:
        self.total = 0.0  # N
        self.nominal = 1.0 if nominal is None else nominal  # n̄, the size of the first batch
        self.observations = 0
        self._since_cut = 0.0
        self._before_cut = 0.0
        self._first = nominal is None

    @property
    def pending(self) -> float:
        """n_p: the samples behind the gradients as they stand."""
        return self._since_cut or self._before_cut

    def add(self, count: float, worth: float | None = None) -> None:
        """`worth` is what the samples count for the next step, where that is not their number."""
        self.total += count
        self.observations += 1
        self._since_cut += count if worth is None else worth

    def revalue(self, before: float, now: float) -> None:
        """What was added as worth `before` is worth `now`."""
        if self._since_cut:
            self._since_cut = now if self._since_cut == before else self._since_cut + (now - before)
        else:
            self._before_cut = now if self._before_cut == before else self._before_cut + (now - before)

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


def as_count(count: Any) -> float:
    """What a caller says are the samples behind a loss."""
    if type(count) is int and count > 0:  # the usual case, on the path of every batch
        return float(count)
    try:
        value = float(count)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"Invalid count value: {count!r}; expected a number, the samples behind the loss") from error
    if not 0.0 < value < math.inf:
        raise ValueError(f"Invalid count value: {value}; expected the number of samples behind the mean loss")
    return value
