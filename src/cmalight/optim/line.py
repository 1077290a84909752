"""The line from where some steps began to where they led: f on it, and the only way to a rule's decision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from cmalight.evaluation.state import RunState, Snapshot
from cmalight.rules.decision import Decision, Rule


class Line:
    """Gives a rule the values that it asks for, and carries its decision out.

    Args:
        run_state: What moves.
        start: Where the steps began; alpha = 0.
        length: The alpha of where they led, which is here.
        evaluate: Gives f at the current weights.
        f_start: f where the steps began, if it is known.

    Attributes:
        start: Where the steps began.
        f_end: f where the steps led, once it was asked for.
        evaluations: How often f was evaluated.
    """

    def __init__(
        self,
        run_state: RunState,
        start: Snapshot,
        length: float,
        evaluate: Callable[[], float],
        f_start: float | None = None,
    ) -> None:
        self._run_state = run_state
        self.start = start
        self._length = length
        self._evaluate = evaluate
        self._f_start = f_start
        self._end: Snapshot | None = None  # a copy, once the weights have left it
        self.f_end: float | None = None
        self.evaluations = 0

    def f_start(self) -> float:
        """F where the steps began."""
        if self._f_start is None:
            self._f_start = self.f_at(0.0)
        return self._f_start

    def f_at(self, alpha: float) -> float:
        """F at a point of the line; the weights stay there."""
        self.go_to(alpha)
        value = self._counted()
        if alpha == self._length:
            self.f_end = value
        return or_infinite(value)

    def f_of(self, point: Snapshot) -> float:
        """F at another point; the weights stay there."""
        self._leave_end()
        self._run_state.restore(point)
        return or_infinite(self._counted())

    def go_to(self, alpha: float) -> None:
        """0 is the start in everything, the length is the end itself; between, buffers are those of the end."""
        if alpha == self._length:
            if self._end is not None:
                self._run_state.restore(self._end)
            return
        end = self._leave_end()
        if alpha == 0.0:
            self._run_state.restore(self.start)
            return
        end.modules.restore()
        self._run_state.go_to(end.weights, alpha / self._length, self.start.weights)

    @torch.inference_mode(False)
    @torch.no_grad()
    def decide(self, rule: Rule, memory: Any, seen: Any) -> Decision[Any]:
        """Ask the rule and go where it says. Whatever fails or is interrupted on the way leads back to the start."""
        try:
            decision = rule.decide(memory, seen, self)
            self.go_to(decision.alpha)
        except BaseException:
            roll_back(self._run_state, self.start)
            raise
        return decision

    def _leave_end(self) -> Snapshot:
        """The copy of the end, made before the weights leave it."""
        if self._end is None:
            self._end = self._run_state.snapshot()
        return self._end

    def _counted(self) -> float:
        self.evaluations += 1
        return self._evaluate()


def or_infinite(value: float | None) -> float:
    """NaN counts as +inf, so that it cannot be accepted; and so does what is not known."""
    return value if value is not None and math.isfinite(value) else math.inf


def roll_back(run_state: RunState, start: Snapshot) -> None:
    """Restore all of it, also if Ctrl-C is pressed meanwhile: never leave one part rolled back and another not."""
    try:
        run_state.restore(start)
    except KeyboardInterrupt:
        run_state.restore(start)
        raise
