"""The tolerant watchdog as decisions on plain floats: a control for inner cycles that are better than a gradient step.

The line numbers in the comments are those of the listing in docs/controlled.md. Symbols beside those of control.py:

    best       the least f̃ of an accepted epoch so far; f(w⁰) before there is one
    level      what no accepted f̃ may exceed: f(w⁰), or the first f̃ where the true f had to certify it
    tolerance  c: an epoch stands as long as f̃ ≤ c · best
    patience   P: so many epochs without a new best shrink the step size
    growth     g: a new best lets the step size grow

Losses are not negative (Assumption 3 of the paper); for one that is, only f̃ ≤ level is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cmalight.control import Decision, InnerCycle, Known, Outcome

# A new best after only new bests: the step size is still far below where it belongs.
RAMP = 3.0
# How far f̃ may lie above f(w⁰) for the true f to be asked whether the first epoch was good all the same.
CERTIFIABLE = 2.0
# c, P and g, as the study in docs/controlled.md chose them.
DEFAULTS: dict[str, float] = {"tolerance": 1.3, "patience": 3, "growth": 1.5}


@dataclass(frozen=True)
class Tolerance:
    """γ, θ, c, P, g, and what a refused epoch does to ζ."""

    gamma: float
    theta: float
    tolerance: float
    patience: int
    growth: float


@dataclass(frozen=True)
class Watch:
    """What the rule remembers."""

    best: float
    level: float
    epochs_since_best: int
    ramping: bool  # every epoch so far was a new best

    @classmethod
    def from_start(cls, f_0: float) -> Watch:
        return cls(best=f_0, level=f_0, epochs_since_best=0, ramping=True)


def tolerant(
    inner: InnerCycle, known: Known, watch: Watch, constants: Tolerance, *, f_end: Callable[[], float]
) -> tuple[Decision, Watch]:
    """Lines 33 to 41; `f_end` evaluates f(w̃) and is called at most once, before anything was accepted."""
    if not inner.is_finite:
        return refused(known, watch, constants, Outcome.DIVERGED)
    if inner.f_tilde <= highest_accepted(watch, constants):  # line 33
        return accepted(inner, watch, constants)
    if is_certifiable(inner, known, watch):  # line 38
        f_certified = f_end()
        if f_certified <= known.f_0 - constants.gamma * inner.zeta / inner.batches:  # line 39
            decision = Decision(Outcome.CERTIFIED, inner.zeta, 1.0, phi=inner.f_tilde, f_next=f_certified)
            return decision, Watch(inner.f_tilde, inner.f_tilde, epochs_since_best=0, ramping=watch.ramping)
    return refused(known, watch, constants, Outcome.REFUSED)


def highest_accepted(watch: Watch, constants: Tolerance) -> float:
    """Line 33: f̃ ≤ min{c · best, level}."""
    if watch.best < 0.0:
        return watch.level
    return min(constants.tolerance * watch.best, watch.level)


def is_certifiable(inner: InnerCycle, known: Known, watch: Watch) -> bool:
    """Whether nothing was accepted yet and f̃ is above f(w⁰), but not far (line 38).

    Near a solution that does not fit each batch, f̃ exceeds f(w⁰) for every small ζ: only the true f can tell.
    """
    return nothing_accepted(known, watch) and inner.f_tilde <= CERTIFIABLE * known.f_0


def nothing_accepted(known: Known, watch: Watch) -> bool:
    return watch.best == known.f_0


def accepted(inner: InnerCycle, watch: Watch, constants: Tolerance) -> tuple[Decision, Watch]:
    """Lines 34 to 37: w̃ is kept; ζ grows, stays or shrinks."""
    if inner.f_tilde <= watch.best - constants.gamma * inner.zeta / inner.batches:  # line 34
        factor = RAMP if watch.ramping else constants.growth  # line 35
        decision = Decision(Outcome.NEW_BEST, inner.zeta, factor, phi=inner.f_tilde, f_next=None)
        return decision, replace(watch, best=inner.f_tilde, epochs_since_best=0)
    epochs = watch.epochs_since_best + 1
    if epochs >= constants.patience:  # line 36
        decision = Decision(Outcome.STAGNATED, inner.zeta, constants.theta, phi=watch.best, f_next=None)
        return decision, replace(watch, epochs_since_best=0, ramping=False)
    decision = Decision(Outcome.TOLERATED, inner.zeta, 1.0, phi=watch.best, f_next=None)  # line 37
    return decision, replace(watch, epochs_since_best=epochs, ramping=False)


def refused(known: Known, watch: Watch, constants: Tolerance, outcome: Outcome) -> tuple[Decision, Watch]:
    """Lines 40 and 41: back to w^k with a smaller ζ; the inner optimizer starts anew."""
    decision = Decision(outcome, 0.0, constants.theta, phi=watch.best, f_next=known.f_current)
    return decision, replace(watch, ramping=False)
