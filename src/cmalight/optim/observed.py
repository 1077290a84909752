"""Losses, and the samples behind them, that are observed between the ends of windows and epochs.

Until their values are asked for, nothing waits for the device.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cmalight.evaluation.norms import accumulation_dtype

# The sum of an epoch's losses: a loss is copied into a slot; the arithmetic is done for this many at once.
_SLOTS = 64


class LossList:
    """The losses of the steps of one window, each copied into a slot on the device of the first.

    Several observations before one step are averaged. As gradients do, observations vanish with `zero_grad`, unless the
    step comes after it: `backward, observe, zero_grad` and `zero_grad, backward, observe` both belong to the next step.
    """

    def __init__(self, values: Sequence[float] = (), skipped: Sequence[float] = ()) -> None:
        self._slots: Tensor | None = None
        self._skipped: Tensor | None = None
        self._pending: list[Tensor | float] = []
        self._before_cut: list[Tensor | float] = []
        self._count = 0
        for value, was_skipped in zip(values, skipped or [0.0] * len(values), strict=True):
            self.observe(value)
            self.take(len(values), torch.tensor(was_skipped) if skipped else None)

    def __len__(self) -> int:
        return self._count

    @property
    def is_pending(self) -> bool:
        """Whether a loss was observed for the next step."""
        return bool(self._pending or self._before_cut)

    def observe(self, loss: Tensor | float) -> None:
        """Note a loss that belongs to the next step."""
        self._pending.append(as_scalar(loss))

    def cut(self) -> None:
        """The gradients are set to zero."""
        if self._pending:
            self._before_cut, self._pending = self._pending, []

    def take(self, room: int, found_inf: Tensor | None = None) -> bool:
        """The step is taken: keep the mean of what was observed for it.

        Args:
            room: Most losses of a window.
            found_inf: Of GradScaler: 1 if a fused step is skipped.

        Returns:
            Whether anything was observed.
        """
        losses = self._pending or self._before_cut
        self._pending, self._before_cut = [], []
        if not losses:
            return False
        if self._slots is None or len(self._slots) <= self._count or not _is_on(self._slots, losses[0]):
            self._grow(losses[0], max(room, self._count + 1))
        slot = self._slots[self._count]  # type: ignore[index]
        if len(losses) == 1:
            slot.copy_(losses[0], non_blocking=True) if isinstance(losses[0], Tensor) else slot.fill_(losses[0])
        else:
            slot.copy_(torch.stack([torch.as_tensor(loss, device=slot.device).to(slot) for loss in losses]).mean())
        if found_inf is not None or self._skipped is not None:
            flag = torch.zeros(()) if found_inf is None else found_inf.reshape(())
            self._skipped = _grown(self._skipped, len(self._slots), flag.device, torch.float32)  # type: ignore[arg-type]
            self._skipped[self._count].copy_(flag)
        self._count += 1
        return True

    def extend(self, losses: Tensor) -> None:
        """Keep the losses of several steps that an engine took."""
        for loss in losses.unbind():
            self.observe(loss)
            self.take(self._count + len(losses))

    def values(self) -> list[float]:
        """The losses so far, without those of skipped steps if there are others; waits for the device."""
        values, skipped = self.state_dict().values()
        if not skipped:
            return values
        return [value for value, was_skipped in zip(values, skipped, strict=True) if not was_skipped] or values

    def state_dict(self) -> dict[str, list[float]]:
        """All losses so far, and which steps were skipped; empty if none can be. Waits for the device."""
        parts = {"losses": self._slots, "skipped": self._skipped}
        return {name: [] if part is None else part[: self._count].tolist() for name, part in parts.items()}

    def clear(self) -> None:
        """Begin a window; what was observed for the next step stays."""
        self._count, self._skipped = 0, None

    def _grow(self, first: Tensor | float, room: int) -> None:
        device = first.device if isinstance(first, Tensor) else torch.device("cpu")
        self._slots = _grown(self._slots, room, device, accumulation_dtype(device))


def _grown(old: Tensor | None, room: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Zeros, and at the front the old values; the old tensor itself if nothing changes."""
    if old is not None and len(old) >= room and old.device == device:
        return old
    new = torch.zeros(room, dtype=dtype, device=device)
    if old is not None:
        kept = min(room, len(old))
        new[:kept].copy_(old[:kept])
    return new


def _is_on(slots: Tensor, loss: Tensor | float) -> bool:
    """Whether a loss can be copied without a wait; the slots of a loaded state are on the CPU at first."""
    return not isinstance(loss, Tensor) or loss.device == slots.device


class LossSum:
    """Σ count · loss in double precision on the losses' device; only `value` waits for the device."""

    def __init__(self, before: float = 0.0) -> None:
        self._before = before
        self._slots: Tensor | None = None
        self._used = 0
        self._count = 0.0  # of each loss in the slots

    def add(self, loss: Tensor | float, count: float) -> None:
        """Add the mean loss of a batch of `count` samples."""
        value = torch.as_tensor(as_scalar(loss))
        if self._slots is None:
            dtype = accumulation_dtype(value.device)
            self._slots = torch.zeros(_SLOTS, dtype=dtype, device=value.device)
            self._sum = torch.zeros((), dtype=dtype, device=value.device)
        if self._used == _SLOTS or count != self._count:
            self._fold()
            self._count = count
        self._slots[self._used].copy_(value, non_blocking=True)
        self._used += 1

    def value(self) -> float:
        """The sum so far; reading it changes nothing."""
        if self._slots is None:
            return self._before
        return self._before + float(self._sum.add(self._slots[: self._used].sum(), alpha=self._count).item())

    def _fold(self) -> None:
        if self._used and self._slots is not None:
            self._sum.add_(self._slots[: self._used].sum(), alpha=self._count)
            self._used = 0


@dataclass
class BatchCounts:
    """How many samples were seen, and how many stand behind the next step.

    `zero_grad` cuts: what was observed before it is behind the next step only if nothing was observed after it. So both
    usual orders work (`zero_grad, observe, step` and `observe, zero_grad, step`), and a batch whose step was skipped,
    as GradScaler does, is not taken for gradient accumulation.

    Attributes:
        total: N.
        nominal: n̄, the samples behind the first step.
        first: Whether no step was taken yet.
    """

    total: float = 0.0
    nominal: float = 1.0
    first: bool = True
    _since_cut: float = 0.0
    _before_cut: float = 0.0

    @property
    def pending(self) -> float:
        """n_p: the samples behind the gradients as they are."""
        return self._since_cut or self._before_cut

    def add(self, count: float) -> None:
        """A batch was observed."""
        self.total += count
        self._since_cut += count

    def cut(self) -> None:
        """The gradients are set to zero."""
        if self._since_cut:
            self._before_cut, self._since_cut = self._since_cut, 0.0

    def take(self) -> float:
        """n_p/n̄ for a step, which uses up the pending samples.

        Raises:
            RuntimeError: If nothing was observed.
        """
        count = self.pending
        if not count:
            raise RuntimeError(
                "step() was called inside an epoch without an observation: "
                "call epoch.observe(loss, len(target)) for the batch first"
            )
        if self.first:
            self.nominal, self.first = count, False
        self._before_cut = self._since_cut = 0.0
        return count / self.nominal


def as_count(count: Any) -> float:
    """The samples behind a loss, checked."""
    if type(count) is int and count > 0:  # the usual case, on the path of every batch
        return float(count)
    try:
        value = float(count)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"Invalid count value: {count!r}; expected a number, the samples behind the loss") from error
    if not 0.0 < value < math.inf:
        raise ValueError(f"Invalid count value: {value}; expected the number of samples behind the mean loss")
    return value


def as_scalar(loss: Any) -> Tensor | float:
    """A loss, checked: a number, or a tensor of one real number, detached."""
    if isinstance(loss, Tensor):
        if loss.numel() != 1 or loss.is_complex():
            raise ValueError(
                f"Invalid loss: expected a real scalar, the mean loss of the batch, but got a {loss.dtype} "
                f"tensor of shape {tuple(loss.shape)}"
            )
        return loss.detach().reshape(())
    if isinstance(loss, numbers.Real):
        return float(loss)
    raise ValueError(f"Invalid loss: expected the mean loss of the batch, a scalar tensor, but got {loss!r}")
