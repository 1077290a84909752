"""The tolerant watchdog as decisions on plain floats: a control for inner cycles that are better than a gradient step.

The line numbers in the comments are those of the listing in docs/controlled.md. Symbols beside those of control.py:

    best       the least f̃ of an accepted epoch; f(w⁰) before there is one
    tolerance  c: an epoch stands as long as f̃ ≤ c · best; right after a growth less is tolerated
    patience   P: so many epochs without a new best shrink the step size
    growth     g: a new best lets the step size grow
    raised     by which factor ζ grew just before this epoch, which is then the growth's probation
    ceiling    what ζ may not grow past: to what it shrank when an epoch was last refused

Losses are not negative (Assumption 3 of the paper); where the best one is, nothing above f(w⁰) stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from cmalight.rules.paper import Decision, InnerCycle, Known, Outcome

# c, P and g, as the study in docs/controlled.md chose them.
DEFAULTS: dict[str, float] = {"tolerance": 1.5, "patience": 2, "growth": 2.0}
# The growth while every epoch is a new best: the step size is still far below where it belongs.
RAMP = 3.0
# What stands right after a growth, as a multiple of the best: a higher loss is the larger step size's doing, and may be
# that of a plateau, from which no smaller one leads away again. On the ramp nothing above the best stands.
PROBATION, RAMP_PROBATION = 1.2, 1.0
# No epoch stands whose f̃ exceeds so many times f(w⁰).
HIGHEST = 2.0
# ζ below its ceiling by no more than rounding is at its ceiling.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Tolerance:
    """γ, θ, c, P and g."""

    gamma: float
    theta: float
    tolerance: float
    patience: int
    growth: float


@dataclass(frozen=True)
class Watch:
    """What the rule remembers."""

    best: float
    epochs_since_best: int = 0
    refusals: int = 0  # how many epochs in a row were undone by line 43
    moved: bool = False  # whether an epoch was ever accepted
    ramping: bool = True  # whether every epoch so far was a new best
    raised: float = 1.0
    ceiling: float = math.inf

    @classmethod
    def from_start(cls, f_0: float) -> Watch:
        return cls(best=f_0)


def tolerant(
    inner: InnerCycle,
    known: Known,
    watch: Watch,
    constants: Tolerance,
    *,
    f_start: Callable[[], float],
    f_end: Callable[[], float],
) -> tuple[Decision, Watch]:
    """Lines 33 to 43; `f_start` and `f_end` evaluate f(w^k) and f(w̃), each at most once, and hardly ever."""
    if not inner.is_finite:
        decision, watch = undone(inner, known, watch, constants)
        return replace(decision, outcome=Outcome.DIVERGED), watch
    if inner.f_tilde <= highest_accepted(known, watch, constants):  # line 33
        return accepted(inner, watch, constants)
    if inner.f_tilde <= highest_certifiable(known, watch):  # line 38
        f_certified = f_end()
        f_current = f_start()
        if f_certified <= f_current - constants.gamma * inner.zeta / inner.batches:
            return certified(inner, watch, f_certified)
        known = replace(known, f_current=f_current)
    return undone(inner, known, watch, constants)


def highest_accepted(known: Known, watch: Watch, constants: Tolerance) -> float:
    """Line 33: f̃ ≤ min{c · best, 2 f(w⁰)}, with a smaller c after a growth."""
    if watch.best < 0.0:
        return known.f_0
    tolerance = constants.tolerance
    if watch.raised > 1.0:
        tolerance = min(tolerance, RAMP_PROBATION if watch.ramping else PROBATION)
    return min(tolerance * watch.best, HIGHEST * known.f_0)


def highest_certifiable(known: Known, watch: Watch) -> float:
    """Line 38: what f̃ may be at most for the true f to be asked; −inf where it is not asked.

    It is asked where the losses of the epochs may mislead. At a start that is good already, f̃ exceeds f(w⁰) for every
    small ζ, because the batches disagree. And an epoch may end at a point far worse than its losses were: whatever
    starts there is refused, so the second refusal in a row has to be a true one.
    """
    return HIGHEST * known.f_0 if watch.refusals or not watch.moved else -math.inf


def accepted(inner: InnerCycle, watch: Watch, constants: Tolerance) -> tuple[Decision, Watch]:
    """Lines 34 to 37: w̃ is kept; ζ grows, stays or shrinks."""
    watch = replace(watch, refusals=0, moved=True, raised=1.0)
    if inner.f_tilde <= watch.best - constants.gamma * inner.zeta / inner.batches:  # line 34
        growth = max(RAMP, constants.growth) if watch.ramping and constants.growth > 1.0 else constants.growth
        factor = min(growth, watch.ceiling / inner.zeta)  # line 35
        factor = factor if factor > 1.0 + _ROUNDING else 1.0
        decision = Decision(Outcome.NEW_BEST, inner.zeta, factor, phi=inner.f_tilde, f_next=None)
        return decision, replace(watch, best=inner.f_tilde, epochs_since_best=0, raised=factor)
    watch = replace(watch, ramping=False, epochs_since_best=watch.epochs_since_best + 1)
    if watch.epochs_since_best >= constants.patience:  # line 36
        decision = Decision(Outcome.STAGNATED, inner.zeta, constants.theta, phi=watch.best, f_next=None)
        return decision, replace(watch, epochs_since_best=0)
    return Decision(Outcome.TOLERATED, inner.zeta, 1.0, phi=watch.best, f_next=None), watch  # line 37


def certified(inner: InnerCycle, watch: Watch, f_end: float) -> tuple[Decision, Watch]:
    """Lines 39 and 40: w̃ is kept, and f̃ is what the next epochs are compared with."""
    decision = Decision(Outcome.CERTIFIED, inner.zeta, 1.0, phi=inner.f_tilde, f_next=f_end)
    return decision, replace(watch, best=inner.f_tilde, refusals=0, moved=True, ramping=False)


def undone(inner: InnerCycle, known: Known, watch: Watch, constants: Tolerance) -> tuple[Decision, Watch]:
    """Lines 41 to 43: back to w^k, in everything. Where the epoch was ended early, `f_tilde` is a lower bound."""
    if watch.raised > 1.0:  # line 42
        outcome, factor = Outcome.GROWTH_UNDONE, 1.0 / watch.raised
        watch = replace(watch, ramping=False, raised=1.0)
    else:  # line 43: grown again, ζ would lead to the edge of what works over and over
        outcome, factor = Outcome.REFUSED, constants.theta
        ceiling = min(watch.ceiling, factor * inner.zeta)
        watch = replace(watch, ramping=False, refusals=watch.refusals + 1, ceiling=ceiling)
    if not math.isfinite(inner.f_tilde):
        outcome = Outcome.DIVERGED
    return Decision(outcome, 0.0, factor, phi=watch.best, f_next=known.f_current), watch
