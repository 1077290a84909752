"""A rule as simple as can be, for tests of what carries out a rule's decisions; its numbers can be told beforehand."""

from dataclasses import dataclass

import torch

from cmalight import Controlled, Outcome
from cmalight.rules.rule import Decision, Rule


@dataclass(frozen=True)
class SteadyRule(Rule):
    """Keeps what does not end above w⁰, by the sample; over the last part of a budget the step size goes to zero."""

    theta: float
    decay: float
    length: int

    uses_a_sample = True
    judges_parts = True
    begins_with_a_pass = False

    def factor(self, share, steps):
        return 1.0 if share is None else min(1.0, (1.0 - share) / self.decay)

    def window(self, memory, batches):
        return None if batches is not None and batches <= self.length else self.length

    def decide(self, inner, known, memory, ask):
        if not inner.is_finite:
            return Decision(Outcome.DIVERGED, 0.0, self.theta, known.phi, known.f_current), memory
        f_after = ask.sample_after()
        if f_after <= known.f_0:
            return Decision(Outcome.KEPT, inner.zeta, 1.0, min(known.phi, f_after), None), memory
        return Decision(Outcome.REFUSED, 0.0, self.theta, known.phi, known.f_current), memory


class Steady(Controlled):
    """Controlled by that rule."""

    def rule(self):
        home = self.param_groups[0]
        return SteadyRule(home["theta"], home["decay"], home["window"])


def steady_adam(model, **settings) -> Steady:
    """Adam at 0.01."""
    return Steady(torch.optim.Adam(model.parameters(), lr=0.01), **{"decay": 0.5, **settings})


def line(steps, *, begins) -> list[float]:
    """lr 0.01, and from the step number `begins` on a line to 0: each step has what it is in the middle of the step."""
    return [0.01 * min(1.0, (steps - step - 0.5) / (steps - begins)) for step in range(steps)]
