"""The line search's view of the objective, from a table; and decisions in five numbers."""

from typing import NamedTuple

from cmalight.rules.outcome import Outcome


class Line:
    """f(w^k + alpha d) by alpha, and f(w^k), which is asked for at alpha = 0; `asked` remembers where."""

    def __init__(self, values: dict[float, float], f_start: float = 0.9) -> None:
        self.values, self._f_start = values, f_start
        self.asked: list[float] = []

    def f_start(self) -> float:
        self.asked.append(0.0)
        return self._f_start

    def f_at(self, alpha: float) -> float:
        self.asked.append(alpha)
        return self.values[alpha]


class Told(NamedTuple):
    """A decision on an epoch: its exit, α, ζ^{k+1}/ζ^k, φ^{k+1}, and f(w^{k+1}) if it is known."""

    outcome: Outcome
    alpha: float
    lr_factor: float
    phi: float
    f_next: float | None


def told(decision) -> Told:
    memory = decision.memory
    return Told(decision.outcome, decision.alpha, decision.lr_factor, memory.phi, memory.f_current)
