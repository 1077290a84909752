"""The step sizes of an optimizer's groups, which grow and shrink together."""

from __future__ import annotations

import warnings
from typing import Any

from cmalight.optim.inner.steps import Stepping

# No step size becomes smaller than this by shrinking: zero would not be a step size any more.
SMALLEST = 1e-300


class StepSizes:
    """`lr` of each group; the largest is ζ.

    Args:
        optimizer: Whose groups they are.
    """

    def __init__(self, optimizer: Stepping) -> None:
        self._optimizer = optimizer
        self._is_controlled = optimizer.owns_lr  # so that it matters when somebody else sets them
        self._left: list[float] = []  # as the last epoch left them, before what a budget makes of them
        self._warned = False

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return self._optimizer.param_groups

    def each(self) -> list[float]:
        """Of the groups."""
        return [float(group["lr"]) for group in self._groups]

    def largest(self) -> float:
        """ζ."""
        return float(max(group["lr"] for group in self._groups))

    def are_zero(self) -> bool:
        """No group can move."""
        return not any(group["lr"] for group in self._groups)

    def scale_to(self, zeta: float) -> None:
        """All groups together, so that their ratios stay."""
        largest = self.largest()
        for group in self._groups:
            group["lr"] = zeta if group["lr"] == largest else zeta * (group["lr"] / largest)

    def multiply(self, factor: float) -> None:
        """Of every group that is trained."""
        for group in self._groups:
            if group["lr"]:
                group["lr"] = max(group["lr"] * factor, SMALLEST)

    def leave(self, factor: float) -> None:
        """At the end of an epoch, whose last step had `factor` times ζ."""
        self._left = [lr / factor for lr in self.each()]

    def forget(self) -> None:
        """A new run begins, from wherever they are."""
        self._left = []

    def warn_if_raised(self, *, stacklevel: int) -> None:
        """Between two epochs, that of any group."""
        if any(now > left * (1.0 + 1e-9) for now, left in zip(self.each(), self._left, strict=False)):
            self.warn("was raised between two epochs", stacklevel=stacklevel + 1)

    def warn(self, what: str, *, stacklevel: int) -> None:
        """Once: somebody else sets what the control decides."""
        if self._is_controlled and not self._warned:
            self._warned = True
            warnings.warn(
                f"lr {what}, which undoes what {type(self._optimizer).__name__} decided: its control sets lr by "
                "itself. A scheduler that only lowers lr, once an epoch, does no harm "
                "(docs/guides/distributed.md); optimizer.restart(objective, lr=...) sets another lr.",
                RuntimeWarning,
                stacklevel=stacklevel,
            )
