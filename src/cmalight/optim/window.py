"""One open window: where it began, how many steps it has, and what was observed in it."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cmalight.evaluation.norms import accumulation_dtype
from cmalight.evaluation.state import Snapshot

# A loss is copied into a slot; the arithmetic is done for this many losses at once.
_SLOTS = 64


@dataclass
class Window:
    """What an optimizer remembers of the steps that are not judged yet.

    Attributes:
        snapshot: The state of the run where the window began.
        steps: Steps so far, including those that a fused step skipped.
        skipped: How many of them a fused step skipped, as a tensor on its device; GradScaler finds that out there.
        versions: How often torch had written to the weights when the window began: somebody else may write to them
            before its first step. None where a state_dict had no weights, because they are those of the model.
    """

    snapshot: Snapshot
    steps: int = 0
    skipped: Tensor | None = None
    versions: int | None = None

    def skips(self, found_inf: Tensor | None) -> None:
        """Count a step that a fused optimizer skips where `found_inf` is 1; waits for nothing."""
        if found_inf is not None:
            self.skipped = found_inf.clone() if self.skipped is None else self.skipped + found_inf

    def taken(self) -> int:
        """The steps that were really taken; waits for the device where a fused optimizer may have skipped some."""
        return self.steps - (0 if self.skipped is None else int(self.skipped.item()))

    def settle(self) -> int:
        """Take the skipped steps out of the count.

        Returns:
            How many there were.
        """
        skipped = self.steps - self.taken()
        self.steps, self.skipped = self.steps - skipped, None
        return skipped

    def state_dict(self) -> dict[str, Any]:
        """Everything but the snapshot, as plain numbers."""
        return {"steps": self.taken()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take what `state_dict` gave."""
        self.steps, self.skipped = int(saved["steps"]), None


@dataclass
class EpochWindow(Window):
    """A window of the paper's methods, with what was observed in it.

    Attributes:
        losses: The sum of the losses.
        counts: The samples behind them.
        first_loss: The first loss that was observed, at the weights where the window began.
    """

    losses: LossSum = field(default_factory=lambda: LossSum())
    counts: BatchCounts = field(default_factory=lambda: BatchCounts())
    first_loss: Tensor | float | None = None

    def state_dict(self) -> dict[str, Any]:
        """Everything but the snapshot, as plain numbers."""
        counts = [self.counts.total, self.counts.nominal, float(self.counts.first)]
        return {**super().state_dict(), "loss": self.losses.value(), "counts": counts}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take what `state_dict` gave."""
        super().load_state_dict(saved)
        self.losses = LossSum(float(saved["loss"]))
        total, nominal, first = saved["counts"]
        self.counts = BatchCounts(float(total), float(nominal), bool(first))


class LossSum:
    """Σ count · loss in double precision on the losses' device; only `value` waits for the device."""

    def __init__(self, before: float = 0.0) -> None:
        self._before = before
        self._slots: Tensor | None = None
        self._used = 0
        self._count = 0.0  # of each loss in the slots

    def add(self, loss: Tensor | float, count: float) -> None:
        """Add the mean loss of a batch of `count` samples."""
        value = _real_scalar(loss)
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


def _real_scalar(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor):
        if not isinstance(loss, numbers.Real):
            raise ValueError(f"Invalid loss: expected the mean loss of the batch, a scalar tensor, but got {loss!r}")
        return torch.as_tensor(float(loss), dtype=torch.float64)
    if loss.numel() != 1 or loss.is_complex():
        raise ValueError(
            f"Invalid loss: expected a real scalar, the mean loss of the batch, but got a {loss.dtype} "
            f"tensor of shape {tuple(loss.shape)}"
        )
    return loss.detach().reshape(())
