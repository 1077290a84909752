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

_AT_ONCE = 64  # losses of an epoch that are added up in one call


class LossList:
    """The losses of the steps of one window, each a copy on the device of its loss.

    Several observations before one step are averaged. As gradients do, observations vanish with `zero_grad`, unless the
    step comes after it: `backward, observe, zero_grad` and `zero_grad, backward, observe` both belong to the next step.
    """

    def __init__(self, values: Sequence[float] = (), skipped: Sequence[float] = ()) -> None:
        self._parts = [torch.tensor(values, dtype=torch.float64)] if values else []
        self._count = len(values)
        self._skipped = {step: torch.tensor(flag) for step, flag in enumerate(skipped)}
        self._pending: list[Tensor | float] = []
        self._before_cut: list[Tensor | float] = []

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

    def take(self, found_inf: Tensor | None = None) -> bool:
        """The step is taken: keep the mean of what was observed for it, and return whether anything was.

        `found_inf` of GradScaler is 1 if a fused step is skipped.
        """
        losses = self._pending or self._before_cut
        self._pending, self._before_cut = [], []
        if not losses:
            return False
        if found_inf is not None:
            self._skipped[len(self)] = found_inf.reshape(()).clone()
        self._parts.append(_mean(losses).reshape(1))
        self._count += 1
        return True

    def extend(self, losses: Tensor) -> None:
        """Keep the losses of several steps that an engine took."""
        self._parts.append(losses.detach().to(accumulation_dtype(losses.device), copy=True))
        self._count += len(losses)

    def values(self) -> list[float]:
        """The losses so far, without those of skipped steps if there are others; waits for the device."""
        values, skipped = self.state_dict().values()
        if not skipped:
            return values
        return [value for value, was_skipped in zip(values, skipped, strict=True) if not was_skipped] or values

    def state_dict(self) -> dict[str, list[float]]:
        """All losses so far, and which steps were skipped; empty if none can be. Waits for the device."""
        steps = range(len(self)) if self._skipped else ()
        flags = [self._skipped.get(step, torch.zeros(())).reshape(1) for step in steps]
        return {"losses": _numbers(self._parts), "skipped": _numbers(flags)}

    def clear(self) -> None:
        """Begin a window; what was observed for the next step stays."""
        self._parts, self._count, self._skipped = [], 0, {}


def _mean(losses: list[Tensor | float]) -> Tensor:
    """A copy of the only loss, or the mean of several, where the first of them is."""
    first = losses[0]
    device = first.device if isinstance(first, Tensor) else torch.device("cpu")
    dtype = accumulation_dtype(device)
    if len(losses) == 1:
        return first.to(dtype, copy=True) if isinstance(first, Tensor) else torch.tensor(first, dtype=dtype)
    return torch.stack([torch.as_tensor(loss, device=device, dtype=dtype) for loss in losses]).mean()


def _numbers(parts: list[Tensor]) -> list[float]:
    """Their values, in one message from the device; those of a loaded state are on the CPU, in another type on mps."""
    return torch.cat([part.to(parts[-1]) for part in parts]).tolist() if parts else []


class LossSum:
    """Σ count · loss in double precision on the losses' device; only `value` waits for the device."""

    def __init__(self, before: float = 0.0) -> None:
        self._before = before
        self._sum: Tensor | None = None
        self._recent: list[Tensor] = []  # not in the sum yet
        self._count = 0.0  # samples behind each of them

    def add(self, loss: Tensor | float, count: float) -> None:
        """Add the mean loss of a batch of `count` samples."""
        value = as_scalar(loss)
        value = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        if self._sum is None:
            self._sum = torch.zeros((), dtype=accumulation_dtype(value.device), device=value.device)
        if len(self._recent) == _AT_ONCE or count != self._count:
            self._sum, self._recent, self._count = self._total(self._sum), [], count
        self._recent.append(value.to(self._sum, copy=True))

    def value(self) -> float:
        """The sum so far; reading it changes nothing."""
        return self._before if self._sum is None else self._before + float(self._total(self._sum).item())

    def _total(self, before: Tensor) -> Tensor:
        return before.add(torch.stack(self._recent).sum(), alpha=self._count) if self._recent else before


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
        """n_p/n̄ for a step, which uses up the pending samples."""
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
