"""How an optimizer and a rule speak to each other: numbers in, values of f on request, a decision out.

Every rule has one method, `decide(memory, seen, ask)`: what it remembers, what the steps showed, whom it may ask for
values of f. The optimizer goes where the decision points and keeps the new memory; nothing else passes between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from cmalight.rules.outcome import Outcome

M = TypeVar("M")


@dataclass(frozen=True)
class Decision(Generic[M]):
    """Where to go, and what to remember.

    Attributes:
        outcome: The exit of the listing.
        alpha: How far to go from the start of the steps towards their end: 0 undoes them, the length that was asked
            about keeps their end itself.
        memory: What the rule remembers from here on.
        lr_factor: Factor of the learning rate, for rules that own it.
        bound: The highest loss at which the steps are kept without a question, for reports.
    """

    outcome: Outcome
    alpha: float
    memory: M
    lr_factor: float = 1.0
    bound: float = math.inf


class Values(Protocol):
    """True values of f, each evaluated when it is asked for and not known already; +inf if it is not finite."""

    def f_start(self) -> float:
        """The value of f where the steps began."""

    def f_at(self, alpha: float) -> float:
        """The value of f at the point that `Decision.alpha` would lead to."""


class Rule(Protocol):
    """A way to judge steps on plain floats."""

    def decide(self, memory: Any, seen: Any, ask: Any) -> Decision[Any]:
        """Say where the steps lead."""
