"""What the rules that judge whole epochs share: what they are told, what they remember, what they decide.

Symbols, here and in the rules:

    zeta            ζ^k, the learning rate of the epoch: the largest `lr` of the parameter groups
    f_tilde         f̃, the mean of the losses of the epoch's batches, each at the weights before its step
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
from dataclasses import dataclass
from typing import Protocol

from cmalight.rules.outcome import Outcome


@dataclass(frozen=True)
class InnerCycle:
    """What the steps of line 5 gave."""

    zeta: float
    f_tilde: float
    direction_norm: float
    batches: float

    @property
    def is_finite(self) -> bool:
        """Whether both the loss and the movement are finite."""
        return math.isfinite(self.f_tilde) and math.isfinite(self.direction_norm)


@dataclass(frozen=True)
class Known:
    """What is remembered between epochs; `f_current` is f(w^k) where it is known exactly."""

    f_0: float
    phi: float
    f_current: float | None


@dataclass(frozen=True)
class Decision:
    """Where to go: w^{k+1} = w^k + α d, ζ^{k+1} = zeta_factor ζ^k, φ^{k+1} = phi.

    `alpha` 0 goes back to w^k, ζ^k keeps w̃ itself. `f_next` is f(w^{k+1}) where it is known exactly.
    """

    outcome: Outcome
    alpha: float
    zeta_factor: float
    phi: float
    f_next: float | None


class Values(Protocol):
    """True values of f; each is evaluated only when it is asked for and not known already."""

    def f_start(self) -> float:
        """f(w^k), +inf where it is not finite."""

    def f_at(self, alpha: float) -> float:
        """f(w^k + alpha d), +inf where it is not finite."""


class Evaluations(Values, Protocol):
    """What a rule may ask for."""

    def sample_first(self) -> float:
        """The sample's mean loss at w⁰."""

    def sample_after(self) -> float:
        """The sample's mean loss at w̃."""


class EpochRule(Protocol):
    """A way to judge epochs on plain floats."""

    def init(self, f_0: float) -> Known:
        """What is known at w⁰."""

    def decide(self, known: Known, inner: InnerCycle, ask: Evaluations) -> Decision:
        """What the steps of an epoch lead to."""


def first_known(f_0: float) -> Known:
    """Line 3: φ⁰ = f(w⁰)."""
    return Known(f_0, f_0, f_0)


def no_step(known: Known) -> Decision:
    """An epoch in which every step was skipped, as GradScaler does: nothing is concluded from it."""
    return Decision(Outcome.NO_STEP, 0.0, 1.0, known.phi, known.f_current)
