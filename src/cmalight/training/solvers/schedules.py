"""Step sizes over a run: pure functions from the share of the run that is done to a factor of the peak."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from cmalight.errors import check_share

Schedule = Callable[[float], float]


def warmup_cosine(share: float, *, warmup: float = 0.05) -> float:
    """Up along a line over the first part, then down to zero along half a cosine.

    Args:
        share: of the run that is done, from 0 to 1.
        warmup: the share of the run over which the step size rises.
    """
    if share < warmup:
        return share / warmup
    return 0.5 * (1.0 + math.cos(math.pi * _since(warmup, share)))


def warmup_linear(share: float, *, warmup: float = 0.05) -> float:
    """Up along a line over the first part, then down to zero along another.

    Args:
        share: of the run that is done, from 0 to 1.
        warmup: the share of the run over which the step size rises.
    """
    return share / warmup if share < warmup else 1.0 - _since(warmup, share)


def wsd(share: float, *, warmup: float = 0.05, decay: float = 0.4) -> float:
    """Warm-up, stable, decay: up along a line, constant, and down to zero along a line over the last part.

    Args:
        share: of the run that is done, from 0 to 1.
        warmup: the share of the run over which the step size rises.
        decay: the share of the run over which it falls.
    """
    rising = share / warmup if share < warmup else 1.0
    falling = (1.0 - share) / decay if share > 1.0 - decay else 1.0
    return min(rising, falling)


def onecycle(share: float, *, rise: float = 0.3, first: float = 1 / 25, last: float = 1 / 250_000) -> float:
    """One cycle of two half cosines with the constants of torch's `OneCycleLR`; momenta are left alone.

    Args:
        share: of the run that is done, from 0 to 1.
        rise: the share of the run over which the step size rises.
        first: the factor at the start.
        last: the factor at the end.
    """
    if share < rise:
        return _half_cosine(first, 1.0, share / rise)
    return _half_cosine(1.0, last, _since(rise, share))


def _half_cosine(begin: float, end: float, part: float) -> float:
    return end + 0.5 * (begin - end) * (1.0 + math.cos(math.pi * part))


def _since(begin: float, share: float) -> float:
    """How much of what comes after `begin` is done."""
    return min(1.0, (share - begin) / (1.0 - begin)) if begin < 1.0 else 1.0


class Scheduled(Optimizer):
    """Torch optimizers side by side whose lr follows a schedule over the run that they are told of.

    Before each step the lr of every group is its `initial_lr`, the peak, times the schedule's factor at the share of
    the run that is done. All groups and states are those of the parts, so that a state dict is as usual.

    Attributes:
        budget: gives the share of the run that is done, from 0 to 1; `fit` sets it, in other loops the caller does.
    """

    budget: Callable[[], float] | None

    def __init__(
        self, *parts: Optimizer, schedule: Schedule | None = None, budget: Callable[[], float] | None = None
    ) -> None:
        """Put a schedule over optimizers.

        Args:
            parts: one or more, over different parameters; each takes its own step.
            schedule: one of this module's functions, or any other from share to factor; None leaves lr alone.
            budget: gives the share of the run that is done.

        Raises:
            ValueError: where an option of the schedule is not a share.
        """
        self.parts = parts
        self.schedule = schedule
        groups = [group for part in parts for group in part.param_groups]
        told = {"optimizers": "+".join(type(part).__name__ for part in parts), "schedule": _described(schedule)}
        for group in groups:
            group.update(told, initial_lr=group["lr"])
        merged = {name: value for part in parts for name, value in part.defaults.items()}
        super().__init__(groups, {**merged, **told})
        self.budget = budget
        for part in parts:
            self.state.update(part.state)
        self._join()

    def _join(self) -> None:
        """The parts see the groups and the states that are here, so that whoever changes one changes both."""
        place = 0
        for part in self.parts:
            count = len(part.param_groups)
            part.param_groups, part.state = self.param_groups[place : place + count], self.state
            place += count

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "parts": self.parts, "schedule": self.schedule}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.budget = getattr(self, "budget", None)
        self._join()

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # type: ignore[override]
        """One step of every part at the step size that the schedule has now.

        Args:
            closure: evaluates the loss and its gradient; called once.

        Returns:
            The loss, where there is a closure.

        Raises:
            RuntimeError: where nobody has said how long the run is.
        """
        self.follow()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def follow(self) -> None:
        """Set lr to what the schedule has now."""
        if self.schedule is None:
            return
        if self.budget is None:
            raise RuntimeError(
                "The schedule does not know how long the run is: train with fit, or set optimizer.budget to a function "
                "that gives the share of the run that is done, from 0 to 1"
            )
        self._set_factor(self.schedule(self.budget()))

    def steps_ahead(self, count: int, batches: int) -> list[float]:
        """For an engine that takes several steps in one call: lr is the peak until `arrive()`, times these factors.

        Args:
            count: of the next steps.
            batches: of an epoch.

        Returns:
            One factor per step; the clock, where it counts, stands still meanwhile.
        """
        self._ahead = [1.0] * count
        if self.schedule is not None and self.budget is not None:
            epochs, share_at = getattr(self.budget, "epochs", 0.0), getattr(self.budget, "share_at", None)
            shares = (self.budget() if share_at is None else share_at(epochs + step / batches) for step in range(count))
            self._ahead = [self.schedule(share) for share in shares]
            self._set_factor(1.0)
        return self._ahead

    def arrive(self) -> None:
        """The steps ahead are taken: lr is that of the last of them."""
        if self.schedule is not None:
            self._set_factor(self._ahead[-1])

    def _set_factor(self, factor: float) -> None:
        for group in self.param_groups:
            group["lr"] = group["initial_lr"] * factor


def with_options(schedule: Callable[..., float], options: Mapping[str, float]) -> Schedule:
    """A schedule with its options set.

    Args:
        schedule: one of this module's functions.
        options: by name; each is a share or a factor.

    Returns:
        The function from share to factor.

    Raises:
        ValueError: where an option is not a number from 0 to 1.
    """
    for name, value in options.items():
        check_share(name, value)
    return functools.partial(schedule, **options)


def _described(schedule: Schedule | None) -> str:
    """The schedule as text, which groups and checkpoints carry."""
    if isinstance(schedule, functools.partial):
        options = ", ".join(f"{name}={value!r}" for name, value in sorted(schedule.keywords.items()))
        return f"{schedule.func.__name__}({options})"
    return "none" if schedule is None else getattr(schedule, "__name__", type(schedule).__name__)
