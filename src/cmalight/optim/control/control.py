"""The control of one optimizer, between its epochs: what is known, what is remembered, and the step size."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from enum import Enum
from typing import Any

from torch import Tensor, nn

from cmalight.optim.control.arguments import check_lr
from cmalight.optim.control.evaluator import Evaluator
from cmalight.optim.control.report import EpochReport
from cmalight.optim.control.state import UNKNOWN, ControlState, change, read, write
from cmalight.optim.inner.settling import refuse_outer_join, require_same_state
from cmalight.optim.inner.step_size import SMALLEST, StepSizes
from cmalight.optim.inner.steps import Stepping, trainable
from cmalight.parallel.ranks import Ranks
from cmalight.parallel.shards import local
from cmalight.rules.rule import Decision, InnerCycle, Rule

logger = logging.getLogger("cmalight")


class Held(Enum):
    """What comes of a window that the last epoch has left open."""

    GOES_ON = "with this one"
    MOVED = "somebody has moved the weights since: it is judged where they are now"
    DROPPED = "there is none, or not on every rank"


class Control:
    """Between the epochs of an optimizer and the rule that judges them.

    Args:
        optimizer: Whose groups hold the step size, and the first of which holds what is remembered.

    Attributes:
        step_sizes: Of the groups.
        evaluator: Evaluates objectives, with the weight decay's term.
    """

    def __init__(self, optimizer: Stepping) -> None:
        self.step_sizes = StepSizes(optimizer)
        self.evaluator = Evaluator(optimizer, self._count_evaluation)
        self._optimizer = optimizer
        self._circumstances: tuple[float, ...] | None = None
        self._join_mark: object = None

    @property
    def name(self) -> str:
        """Of the optimizer."""
        return type(self._optimizer).__name__

    @property
    def _home(self) -> dict[str, Any]:
        return self._optimizer.param_groups[0]

    @property
    def state(self) -> ControlState:
        """What every rule's control remembers."""
        return read(self._home, ControlState)

    def update(self, **changes: Any) -> None:
        """Remember something else."""
        change(self._home, ControlState, changes)

    def memory(self, rule: Rule) -> Any:
        """What the rule itself remembers."""
        return read(self._home, rule.Memory)

    def remember(self, memory: Any) -> None:
        """Of the rule."""
        write(self._home, memory)

    def parameters(self) -> list[Tensor]:
        """Those that are trained."""
        return [p for group in self._optimizer.param_groups for p in trainable(group)]

    def _count_evaluation(self) -> None:
        self.update(evaluations=self.state.evaluations + 1)

    def begin(
        self, objective: Any, model: nn.Module | None, ranks: Ranks, rule: Rule, *, holds: bool
    ) -> tuple[ControlState, Held]:
        """What is known, and what comes of a window that the last epoch has left open, if it `holds` one.

        Everything that may fail comes first, so that an epoch that cannot begin changes nothing.
        """
        for group in self._optimizer.param_groups:
            check_lr(group["lr"], zero_allowed=True)
        if not self.step_sizes.largest() > 0.0:
            raise ValueError("Invalid lr values: the lr of every parameter group is 0; at least one must be positive")
        if not self.parameters():
            raise ValueError("There is nothing to train: no parameter of the optimizer requires a gradient")
        self._look_at_lr(rule)
        if self.state.height == UNKNOWN:
            self.update(height=self.step_sizes.largest())
        self._optimizer.steps.to_judged_point()
        self._join_mark = refuse_outer_join(model, self._join_mark)
        state = self.state
        changed = self._circumstances is not None and self._circumstances != self._describe_circumstances(model)
        alike = (self.step_sizes.largest(), state.f_0, state.phi, state.f_current, state.epochs)
        rows = ranks.gather(changed, state.steps, holds, *alike)
        require_same_state([row[3:] for row in rows])
        if not all(row[2] for row in rows):
            held = Held.DROPPED
        else:
            held = Held.MOVED if any(row[0] for row in rows) else Held.GOES_ON
        if state.f_0 == UNKNOWN and objective is not None:
            self.anchor(objective, ranks, rule)
        elif changed or any(row[0] for row in rows):
            self.forget_values()  # somebody changed the function, or the weights
        state = self.state
        # What is saved or copied in mid-epoch has other weights than w^k.
        self.forget_values()
        # A rank that joined before the end of an epoch has taken fewer steps; its next ones must be as long as others'.
        return replace(state, steps=max(state.steps, *(int(row[1]) for row in rows))), held

    def _look_at_lr(self, rule: Rule) -> None:
        """Find out whether somebody else has set the step size, and what it is before a budget makes it smaller.

        Who lowers it multiplies what the last step had, its factor included, which is none of their doing: the factor
        stays. Who sets it to more than that does not know of the factor.
        """
        self.step_sizes.warn_if_raised(stacklevel=5)
        found, state = self.step_sizes.largest(), self.state
        left = state.height * state.factor
        if state.height == UNKNOWN or math.isclose(found, left, rel_tol=1e-9):
            return
        factor = state.factor if found < left else 1.0
        self.remember(rule.after_outside_change(self.memory(rule), zeta=found / factor))
        self.update(height=found / factor, factor=factor)

    def anchor(self, objective: Any, ranks: Ranks, rule: Rule) -> None:
        """Make the current weights w⁰; whoever anchors anew starts from nothing but its counts."""
        sample_first = self.evaluator.of_sample(objective, ranks) if rule.uses_a_sample else UNKNOWN
        f_0 = self.evaluator.full(objective, ranks) if rule.begins_with_a_pass else sample_first  # line 3
        if f_0 == UNKNOWN:
            raise ValueError(
                "The objective is not finite at the starting weights, so there is nothing to improve on: "
                "check the data for NaN and Inf, and the initial weights"
            )
        self.step_sizes.scale_to(rule.begins_at(self.step_sizes.largest()))
        state = self.state
        fresh = ControlState(
            f_0=f_0,
            phi=f_0,
            f_current=f_0 if rule.begins_with_a_pass else UNKNOWN,
            sample_first=sample_first,
            sample_current=sample_first,
            zeta_0=self.step_sizes.largest(),
            height=self.step_sizes.largest(),
            samples=getattr(objective, "samples", 0) if rule.begins_with_a_pass else 0,
            evaluations=state.evaluations,
            evaluations_reported=state.evaluations_reported,
        )
        write(self._home, fresh)
        self.remember(rule.fresh(f_0, self.step_sizes.largest()))
        self.step_sizes.forget()
        self._circumstances = self._describe_circumstances(getattr(objective, "model", None))

    def commit(self, inner: InnerCycle, decision: Decision, *, sample: float) -> EpochReport:
        """Write a decision down; nothing here can fail.

        Args:
            inner: What was judged.
            decision: What came of it.
            sample: The sample's mean loss at the weights as they are now.
        """
        state, lr = self.state, self.step_sizes.largest()
        self.step_sizes.multiply(decision.zeta_factor)
        alike = decision.phi == state.phi and decision.zeta_factor == 1.0
        self.update(
            phi=UNKNOWN if math.isnan(decision.phi) else decision.phi,
            f_current=UNKNOWN if decision.f_next is None else decision.f_next,
            sample_current=sample,
            height=max(state.height * decision.zeta_factor, SMALLEST),
            epochs_alike=state.epochs_alike + 1 if alike else 0,
        )
        return EpochReport(
            outcome=decision.outcome,
            lr=lr,
            next_lr=self.step_sizes.largest(),
            alpha=decision.alpha,
            f_tilde=inner.f_tilde,
            phi=decision.phi,
            direction_norm=inner.direction_norm,
            evaluations=state.evaluations - state.evaluations_reported,
        )

    def count(self, *, moved: bool | None, steps: int, samples: float) -> None:
        """An epoch that was concluded; None where it is not known yet whether it moved."""
        state = self.state
        self.update(
            epochs=state.epochs + 1,
            steps=state.steps + steps,
            samples=max(state.samples, samples),
            epochs_still=state.epochs_still if moved is None else 0 if moved else state.epochs_still + 1,
            evaluations_reported=state.evaluations,
        )

    def forget_values(self) -> None:
        """The weights were changed: what was known of f there is not known any more."""
        self.update(f_current=UNKNOWN, sample_current=UNKNOWN)

    def was_moved(self) -> None:
        """By a step outside any epoch."""
        self.forget_values()
        self._circumstances = ()

    def end(self, model: nn.Module | None, *, holds: bool) -> None:
        """After an epoch, however it ended; `holds` where the next one goes on with its window."""
        self.step_sizes.leave(self.state.factor)
        self._join_mark = getattr(model, "_join_config", None)
        state = self.state
        is_known = holds or min(state.f_current, state.sample_current) != UNKNOWN
        self._circumstances = self._describe_circumstances(model) if is_known else None

    def _describe_circumstances(self, model: nn.Module | None) -> tuple[float, ...]:
        """What a known f(w^k) depends on: changes of any weight of the model show in its version counter."""
        weights = self.parameters() if model is None else model.parameters()
        decays = map(self._optimizer.steps.weight_decay_of, self._optimizer.param_groups)
        return (*decays, *(local(p)._version for p in weights))
