"""How long the steps of an epoch are, one by one, and after which of them it is judged."""

from __future__ import annotations

import warnings

from cmalight.optim.control.budget import Budget
from cmalight.optim.control.control import Control
from cmalight.optim.control.state import ControlState
from cmalight.parallel.ranks import Ranks
from cmalight.rules.rule import Rule

# Where a budget is used up, and the loop goes on all the same. Zero would not be a step size any more: the groups would
# lose their ratio, and a budget that is extended could not raise it again.
_LEAST_FACTOR = 1e-6


class EpochPace:
    """Of one epoch.

    Args:
        control: Whose step size it is.
        rule: Says by what it is multiplied, and when to judge.
        budget: How long the run is.
        begun: What was remembered when the epoch began.
        ranks: Who take the steps; several must all judge after the same one, and agree on what a clock says.
        guess: How many batches an epoch may have, where nobody will say and none was concluded yet.

    Attributes:
        steps: How many were taken in the epoch.
        factor: By which the step size is multiplied at the moment.
    """

    def __init__(
        self,
        control: Control,
        rule: Rule,
        budget: Budget,
        begun: ControlState,
        ranks: Ranks,
        *,
        guess: int | None = None,
    ) -> None:
        self.steps = 0
        self._control = control
        self._rule = rule
        self._budget = budget
        self._begun = begun
        self._ranks = ranks
        self._agreed: float | None = None  # of several ranks: the reported share, as the window began
        self._length: int | None = None
        # In place of the length where nobody says it: epochs are mostly as long as those before.
        self._usual_length = (begun.steps - begun.steps_apart) / begun.epochs if begun.epochs else guess
        self._given = 0
        self._judge_after: int | None = None
        self._is_level = False  # whether the factor is 1 in every step up to the next judgement
        self.factor = begun.factor
        self._lrs = control.step_sizes.each()

    def expect(self, batches: int | None) -> None:
        """So many are to come in the epoch."""
        self._length = batches
        self.plan()

    def plan(self) -> None:
        """When to judge next; the end of the epoch needs no plan."""
        self._lrs = self._control.step_sizes.each()
        if self._budget.reported is not None and not self._ranks.alone:
            self._agreed = max(row[0] for row in self._ranks.gather(float(self._budget.reported())))
        length = self._length
        window = self._rule.window(self._control.memory(self._rule), length)
        if window is None or (length is None and not self._ranks.alone):
            self._judge_after = None
        else:
            after = self.steps + window
            self._judge_after = None if length is not None and after >= length else after
        self._is_level = self._stays_level()

    def _stays_level(self) -> bool:
        """A factor rises to 1, stays there and falls: where it is 1 at both ends, it is 1 between."""
        end = self._judge_after if self._judge_after is not None else self._length
        if end is None or self._budget.reported is not None or self.factor != 1.0 or self.factor_ahead(0) != 1.0:
            return False
        steps = self._begun.steps + end
        last = self._budget.share(epochs=self._begun.epochs, of_epoch=1.0, steps=steps)
        return self._rule.factor(last, steps) == 1.0

    def is_time_to_judge(self) -> bool:
        """After a step."""
        return self._judge_after is not None and self.steps >= self._judge_after

    @property
    def steps_to_judgement(self) -> int | None:
        """For an engine; None where only the end of the epoch is judged."""
        return None if self._judge_after is None else self._judge_after - self.steps

    def begins_step(self, given: int) -> None:
        """Sets the step size; `given` batches were given to the loop, this one included."""
        self._given = given
        if not self.steps:
            self._warn_of_unknown_length()
        if not self._is_level or self._budget.reported is not None:
            self._set_factor(self.factor_ahead(0))
        self.steps += 1

    def _warn_of_unknown_length(self) -> None:
        """Where the budget ends with this epoch, and nothing tells one of its steps from another."""
        budget, epochs = self._budget, self._begun.epochs
        if self._length or self._usual_length or budget.max_batches or budget.reported is not None:
            return
        if budget.share(epochs=epochs, of_epoch=1.0, steps=0) != 1.0 or self._rule.factor(1.0, 0) == 1.0:
            return
        warnings.warn(
            f"The budget of {self._control.name} ends with this epoch, but nobody knows how many batches that has, so "
            "its step size will not go to zero: give max_batches (with Lightning, max_steps of the Trainer), or take "
            "the batches of a loader that has a length from epoch.batches(loader)",
            RuntimeWarning,
            stacklevel=8,
        )

    def factor_ahead(self, number: int) -> float:
        """For an engine: by what the step size is multiplied in the next step but `number`."""
        factor = self._rule.factor(self.share(ahead=number + 0.5), self._begun.steps + self.steps + number)
        return max(factor, _LEAST_FACTOR)

    def took(self, steps: int) -> None:
        """For an engine: so many more steps were taken."""
        if steps:
            self._set_factor(self.factor_ahead(steps - 1))
        self.steps += steps
        self._given = self.steps

    def share_at_the_end(self) -> float | None:
        """Of the budget: what is done after the epoch, all of it where what is left is less than half an epoch.

        But not of what a caller reports, who is asked once: that may be a clock, or count how often it is asked.
        """
        budget, begun = self._budget, self._begun
        steps = begun.steps + self.steps
        share = budget.share(epochs=begun.epochs, of_epoch=1.0, steps=steps, reported=self._agreed)
        if share is None or budget.reported is not None:
            return share
        before = budget.share(epochs=begun.epochs, of_epoch=0.0, steps=begun.steps) or 0.0
        return 1.0 if share + 0.5 * (share - before) >= 1.0 else share

    def share(self, *, ahead: float = 0.0) -> float | None:
        """Of the budget: what is done after the steps so far, and `ahead` more."""
        done = max(self.steps, self._given - 1) if ahead else max(self.steps, self._given)
        length = self._length or self._usual_length
        of_epoch = min(1.0, (done + ahead) / length) if length else 0.0
        steps = self._begun.steps + self.steps + ahead
        return self._budget.share(epochs=self._begun.epochs, of_epoch=of_epoch, steps=steps, reported=self._agreed)

    def _set_factor(self, factor: float) -> None:
        if factor != self.factor:
            self._control.step_sizes.multiply(factor / self.factor)
            self.factor = factor
            self._lrs = self._control.step_sizes.each()

    def somebody_else_set_lr(self) -> bool:
        """Inside the epoch."""
        return self._control.step_sizes.each() != self._lrs
