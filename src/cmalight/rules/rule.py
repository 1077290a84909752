"""What a rule is: it sees the figures of an epoch and says where to go, on plain floats.

Symbols, here and in the rules:

    zeta            ζ^k, the step size of the epoch: the largest `lr` of the parameter groups
    f_tilde         f̃, the mean of the losses the epoch saw, each at the weights of its moment
    direction_norm  ‖d‖ with d = (w̃ − w^k)/ζ, in the paper's sum units
    batches         K = N/n̄, the (fractional) number of batches
    f_0             f(w⁰)
    phi             φ^k, the value an epoch has to beat
    alpha           α, how far to go along d: w^{k+1} = w^k + α d

Function values are means per sample, so a decrease that the paper states for the sum f is divided by K.
Every test is written so that NaN fails it; callers turn a non-finite function value into +inf.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from cmalight.rules.outcome import Outcome


@dataclass(frozen=True)
class InnerCycle:
    """What the steps of line 5 gave.

    Attributes:
        zeta: ζ^k.
        f_tilde: f̃, +inf where it is not finite.
        direction_norm: ‖d‖.
        batches: K.
        share: The share of the budget that is done after them; None where there is no budget.
    """

    zeta: float
    f_tilde: float
    direction_norm: float
    batches: float
    share: float | None = None

    @property
    def is_finite(self) -> bool:
        """Whether loss and movement are."""
        return math.isfinite(self.f_tilde) and math.isfinite(self.direction_norm)


@dataclass(frozen=True)
class Known:
    """What was known before the epoch.

    Attributes:
        f_0: f(w⁰).
        phi: φ^k.
        f_current: f(w^k) where it is known exactly.
    """

    f_0: float
    phi: float
    f_current: float | None


@dataclass(frozen=True)
class Decision:
    """Where to go: w^{k+1} = w^k + α d, ζ^{k+1} = zeta_factor ζ^k, φ^{k+1} = phi.

    Attributes:
        outcome: Which exit of the listing it was.
        alpha: α; 0 goes back to w^k, ζ^k keeps w̃ itself.
        zeta_factor: ζ^{k+1}/ζ^k.
        phi: φ^{k+1}.
        f_next: f(w^{k+1}) where it is known exactly.
    """

    outcome: Outcome
    alpha: float
    zeta_factor: float
    phi: float
    f_next: float | None


class Evaluations(Protocol):
    """What a rule may ask for; each is evaluated when it is asked for, and not known already."""

    def f_start(self) -> float:
        """f(w^k).

        Returns:
            +inf where it is not finite.
        """

    def f_at(self, alpha: float) -> float:
        """f(w^k + alpha d).

        Args:
            alpha: How far to go along d.

        Returns:
            +inf where it is not finite.
        """

    def sample_first(self) -> float:
        """The mean loss of a fixed sample of the data at w⁰.

        Returns:
            +inf where it is not finite.
        """

    def sample_before(self) -> float:
        """The same at w^k.

        Returns:
            +inf where it is not finite.
        """

    def sample_after(self) -> float:
        """The same at w̃.

        Returns:
            +inf where it is not finite.
        """


@dataclass(frozen=True)
class NoMemory:
    """Of a rule that remembers nothing but ζ and φ."""


class Rule(ABC):
    """A way to judge epochs; made anew for each of them from the settings of the optimizer.

    Attributes:
        Memory: A frozen dataclass of plain numbers, with defaults: what the rule remembers from epoch to epoch. Its
            names are those of no setting of the optimizer, and of nothing in `ControlState`.
        uses_a_sample: Whether it asks for the mean loss of a sample.
        judges_parts: Whether a part of an epoch can be judged like a whole one.
        begins_with_a_pass: Whether it needs f(w⁰) itself; otherwise a sample's mean loss stands for it.
    """

    Memory: ClassVar[type[Any]] = NoMemory
    uses_a_sample: bool = False
    judges_parts: ClassVar[bool] = False
    begins_with_a_pass: ClassVar[bool] = True

    @abstractmethod
    def decide(self, inner: InnerCycle, known: Known, memory: Any, ask: Evaluations) -> tuple[Decision, Any]:
        """What the steps lead to, and what to remember.

        Args:
            inner: What the steps gave.
            known: What was known before them.
            memory: What the rule remembers.
            ask: For evaluations.

        Returns:
            Where to go, and the new memory.
        """

    def begins_at(self, zeta: float) -> float:
        """ζ⁰, where somebody has asked for `zeta`.

        Args:
            zeta: The step size that the optimizer has.

        Returns:
            The one that the run begins with.
        """
        return zeta

    def fresh(self, f_0: float, zeta: float) -> Any:
        """What is remembered at w⁰, with ζ⁰ = `zeta`.

        Args:
            f_0: f(w⁰), or the sample's mean loss there.
            zeta: ζ⁰.

        Returns:
            A `Memory`.
        """
        return self.Memory()

    def after_outside_change(self, memory: Any, *, zeta: float) -> Any:
        """What to remember once somebody else has set the step size to `zeta`.

        Args:
            memory: What the rule remembers.
            zeta: The step size as it is now.

        Returns:
            The new memory.
        """
        return memory

    def factor(self, share: float | None, steps: int) -> float:
        """What ζ is multiplied with for the next step; along a run it rises to 1, stays there and falls.

        Args:
            share: The share of the budget that is done; None where there is none.
            steps: How many steps were taken since w⁰.

        Returns:
            From 0 to 1.
        """
        return 1.0

    def window(self, memory: Any, batches: int | None) -> int | None:
        """After how many steps to judge, in an epoch of `batches` (None: not known); None means at its end.

        Args:
            memory: What the rule remembers.
            batches: Of the epoch.

        Returns:
            How many steps.
        """
        return None

    def waits(
        self, known: Known, memory: Any, *, batches: float, of_epoch: float, f_tilde: float, share: float | None
    ) -> bool:
        """Whether an epoch that is over is too short to be judged, so that the next one goes on with its window.

        Args:
            known: What was known before the window.
            memory: What the rule remembers.
            batches: K, of the window so far.
            of_epoch: How many of them were in the epoch.
            f_tilde: f̃ of the epoch.
            share: The share of the budget that is done; None where there is none.

        Returns:
            True where it has to wait.
        """
        return False

    @property
    def may_cycle(self) -> bool:
        """Whether epochs that change neither φ nor ζ are worth a warning."""
        return False

    @property
    def advice(self) -> str:
        """What to try once it has stalled."""
        return "Try optimizer.restart(objective, lr=...) with another lr."

    @property
    def rejects_early(self) -> bool:
        """Whether an epoch may be rejected before its end, by a lower bound of f̃."""
        return False

    def doubtful_above(self, known: Known) -> float:
        """Up to here a lower bound of f̃ cannot make an epoch lost.

        Args:
            known: What was known before the epoch.

        Returns:
            The bound.
        """
        return math.inf

    def is_lost(self, lower_bound: float, known: Known, f_start: Callable[[], float]) -> bool:
        """Whether an epoch with at least this f̃ is certain to be rejected.

        Args:
            lower_bound: Of f̃.
            known: What was known before the epoch.
            f_start: Gives f(w^k), evaluated where it is not known.

        Returns:
            True where it is certain.
        """
        return False

    def decide_early(self, inner: InnerCycle, known: Known) -> Decision:
        """What an epoch leads to that was ended early; `inner.f_tilde` is then a lower bound.

        Args:
            inner: What the steps gave.
            known: What was known before them.

        Returns:
            Where to go.

        Raises:
            NotImplementedError: Of a rule that never rejects early.
        """
        raise NotImplementedError


def no_step(known: Known) -> Decision:
    """An epoch in which every step was skipped (GradScaler does that): nothing is concluded from it."""
    return Decision(Outcome.NO_STEP, 0.0, 1.0, known.phi, known.f_current)
