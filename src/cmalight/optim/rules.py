"""The rules by which an epoch is judged, over the control state of an optimizer: the paper's, and the tolerant one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, Protocol

from cmalight.rules import linesearch, paper
from cmalight.rules.tolerant import Tolerance, Watch, highest_accepted, highest_certifiable, tolerant, undone

State = dict[str, Any]


class Evaluations(Protocol):
    """What a rule may ask of an epoch: f(w^k) and f(w^k + alpha d), evaluated where they are not known."""

    def _f_start(self) -> float: ...
    def _f_at(self, alpha: float) -> float: ...


class Rule(Protocol):
    def decide(self, inner: paper.InnerCycle, known: paper.Known, epoch: Evaluations) -> paper.Decision: ...

    def decide_early(self, inner: paper.InnerCycle, known: paper.Known) -> paper.Decision:
        """What an epoch leads to that was ended early; `inner.f_tilde` is then a lower bound."""
        ...

    def can_reject_early(self) -> bool: ...

    def doubtful_above(self, known: paper.Known) -> float:
        """Up to here a lower bound of f̃ cannot make the epoch lost."""
        ...

    def is_lost(self, lower_bound: float, known: paper.Known, f_start: Callable[[], float]) -> bool: ...


class PaperRule:
    """Lines 6 to 18 of the listing, with the light or the certified line search."""

    def __init__(self, state: State, *, certified: bool) -> None:
        self._state = state
        self._certified = certified

    def decide(self, inner: paper.InnerCycle, known: paper.Known, epoch: Evaluations) -> paper.Decision:
        def search() -> linesearch.SearchResult:
            f_start = epoch._f_start()
            arguments = search_arguments(self._state, inner)
            if self._certified:
                return linesearch.edfl_certified(epoch._f_at, f_start=f_start, **arguments)
            return linesearch.edfl_light(epoch._f_at, f_start=f_start, f_tilde=inner.f_tilde, **arguments)

        return paper.cmalight(inner, known, constants(self._state), certified=self._certified, search=search)

    def decide_early(self, inner: paper.InnerCycle, known: paper.Known) -> paper.Decision:
        if known.f_current is None or not math.isfinite(inner.f_tilde):
            return paper.diverged(known, constants(self._state))
        return paper.rejected_early(known.f_current, known, constants(self._state))

    def can_reject_early(self) -> bool:
        return not self._certified  # a certified search may still succeed

    def doubtful_above(self, known: paper.Known) -> float:
        return known.f_0

    def is_lost(self, lower_bound: float, known: paper.Known, f_start: Callable[[], float]) -> bool:
        return lower_bound > self.doubtful_above(known) and lower_bound > f_start()


class TolerantRule:
    """Lines 33 to 43 of docs/controlled.md; what it remembers is kept in the control state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def decide(self, inner: paper.InnerCycle, known: paper.Known, epoch: Evaluations) -> paper.Decision:
        decision, watch = tolerant(
            inner,
            known,
            self._watch(),
            self._constants(),
            f_start=epoch._f_start,
            f_end=lambda: epoch._f_at(inner.zeta),
        )
        self._remember(watch)
        return decision

    def decide_early(self, inner: paper.InnerCycle, known: paper.Known) -> paper.Decision:
        decision, watch = undone(inner, known, self._watch(), self._constants())
        self._remember(watch)
        return decision

    def can_reject_early(self) -> bool:
        return True

    def doubtful_above(self, known: paper.Known) -> float:
        watch = self._watch()
        return max(highest_accepted(known, watch, self._constants()), highest_certifiable(known, watch))

    def is_lost(self, lower_bound: float, known: paper.Known, _: Callable[[], float]) -> bool:
        return lower_bound > self.doubtful_above(known)

    def _constants(self) -> Tolerance:
        state = self._state
        return Tolerance(
            gamma=state["gamma"],
            theta=state["theta"],
            tolerance=state["tolerance"],
            patience=state["patience"],
            growth=state["growth"],
        )

    def _watch(self) -> Watch:
        state = self._state
        return Watch(**{field.name: state[field.name] for field in fields(Watch)})

    def _remember(self, watch: Watch) -> None:
        self._state.update(as_state(watch))


def as_state(watch: Watch) -> State:
    """As plain numbers, which every kind of checkpoint can hold."""
    return asdict(watch)


def constants(state: State) -> paper.Constants:
    return paper.Constants(theta=state["theta"], tau=state["tau"], gamma=state["gamma"])


def search_arguments(state: State, inner: paper.InnerCycle) -> dict[str, Any]:
    return {
        "zeta": inner.zeta,
        "slope": state["gamma"] * inner.direction_norm * inner.direction_norm / inner.batches,
        "delta": state["delta"],
        "max_extrapolations": state["max_extrapolations"],
    }
