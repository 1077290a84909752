"""The bracket around an epoch: remembers w^k, collects the losses, and at the end lets the rule decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Protocol

from torch import Tensor, nn

from cmalight.evaluation.counting import batch_size, length_of
from cmalight.optim.bracket.judge import Judge, refuse_empty_epoch
from cmalight.optim.bracket.leaving import Leaving
from cmalight.optim.bracket.lookout import Lookout, exhaust_sampler
from cmalight.optim.bracket.window import Window
from cmalight.optim.control.budget import Budget
from cmalight.optim.control.control import Control, Held
from cmalight.optim.control.pace import EpochPace
from cmalight.optim.control.report import EpochReport, Reports
from cmalight.optim.control.stalls import warn_if_stalled
from cmalight.optim.inner.inner_state import parameters_of
from cmalight.optim.inner.settling import GradientWeights
from cmalight.optim.inner.steps import Stepping
from cmalight.optim.inner.tally import as_count
from cmalight.parallel.ranks import ranks_for
from cmalight.rules.outcome import Outcome
from cmalight.rules.rule import Rule


class Host(Stepping, Protocol):
    """An optimizer as the bracket sees it.

    Attributes:
        control: What is remembered between epochs.
        budget: How long the run is.
        epoch_under_way: The bracket that is open.
        held_window: What the next epoch goes on with: a window that the last one left open, or what a state_dict has of
            one.
    """

    control: Control
    budget: Budget
    epoch_under_way: Epoch | None
    held_window: Window | dict[str, Any] | None

    def rule(self) -> Rule:
        """By what an epoch is judged."""

    def require_no_epoch(self) -> None:
        """One epoch at a time."""


class _State(Enum):
    NEW = "has not begun: use it as `with optimizer.epoch(objective) as epoch:`"
    OPEN = "is under way"
    REJECTED = "was rejected before its end: leave the loop over its batches"
    ABANDONED = "was abandoned"
    CLOSED = "is over: begin another with `with optimizer.epoch(objective) as epoch:`"


class Epoch:
    """One epoch under control; made by `optimizer.epoch(objective)` and used in a `with` statement.

    Args:
        optimizer: Whose epoch it is.
        objective: Gives the mean loss per sample at the current weights; None for an optimizer that judges nothing.
        model: Whose buffers go back with the weights; by default `objective.model`, where there is one.
        process_group: The ranks that share the epoch; by default the objective's.

    Attributes:
        report: What the epoch came to; None before its end, and where it was abandoned.
        block: Gives None once its `with` block was left; None before it was entered.
        lookout: When to ask whether the epoch can still succeed; for engines.
        pace: The length of each step to come, and when to judge; for engines.
    """

    report: EpochReport | None
    __exit__ = Leaving()

    def __init__(self, optimizer: Host, objective: Any, model: nn.Module | None, process_group: Any = None) -> None:
        self.report = None
        self.block: Callable[[], object] | None = None
        self._optimizer = optimizer
        self._objective = objective
        self._model = model if model is not None else getattr(objective, "model", None)
        self._ranks = ranks_for(objective, self._model, process_group)
        self._weights = None if self._ranks.alone else GradientWeights(self._ranks, self._model)
        self._state = _State.NEW
        self._batches_given = 0
        self._last_batch: Any = None  # that `batches` gave
        self._steps_judged = 0  # inside the epoch
        self._reports = Reports()

    def __enter__(self) -> Epoch:
        if self._state is not _State.NEW:
            raise RuntimeError(f"This epoch cannot be entered again: it {self._state.value}")
        optimizer, control = self._optimizer, self._optimizer.control
        optimizer.require_no_epoch()
        rule = optimizer.rule()
        holds = optimizer.held_window is not None
        begun, held = control.begin(self._objective, self._model, self._ranks, rule, holds=holds)
        self._begun = begun
        self._judge = Judge(control, rule, self._objective, self._ranks, begun)
        is_active = rule.rejects_early and not begun.negative_loss_seen
        self.lookout = Lookout(self._judge, self._ranks, samples=begun.samples, is_active=is_active)
        # Of several ranks each may have another loader; a step has to be equally long on all.
        guess = length_of(getattr(self._objective, "loader", None)) if self._ranks.alone else None
        self.pace = EpochPace(control, rule, optimizer.budget, begun, self._ranks, guess=guess)
        found, optimizer.held_window = optimizer.held_window, None
        self._open_window(None if held is Held.DROPPED else found)
        self._state = _State.OPEN
        optimizer.epoch_under_way = self  # last, so that an epoch that could not begin is not in the way of another
        if held is Held.MOVED:
            self.judge_now()
        return self

    def _open_window(self, found: Window | dict[str, Any] | None = None) -> None:
        """One that the last epoch left open, or a new one."""
        control, steps = self._optimizer.control, self._optimizer.steps
        if isinstance(found, Window):
            self.window = found
            found.go_on()
        else:
            self.window = Window(control.parameters(), self._model, steps, control.evaluator)
            if found is not None:
                self.window.put(found, parameters_of(self._optimizer))
        self._judge.open(self.window)
        self.pace.plan()
        steps.to_training_point()

    def observe(self, loss: Tensor | float, count: float) -> None:
        """Take the mean loss of a batch, at the weights as they are now, and its size; waits for nothing.

        Several observations before one `step()` are gradient accumulation: together they are one batch.

        Args:
            loss: The mean loss of the batch, a scalar.
            count: The samples behind that mean.

        Raises:
            ValueError: If the loss is no real scalar, or the count not positive.
            RuntimeError: If the epoch is not under way.
        """
        if self._state is not _State.OPEN:
            if self._state is _State.REJECTED:
                return
            _require_open(self._state, "observe()")
        self.window.observe(loss, as_count(count), self._weights)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of `loader`, ending early once the epoch is certain to be rejected.

        Args:
            loader: Anything that can be iterated once.

        Yields:
            Its batches.
        """
        iterator = iter(loader)
        self.expect(loader)
        for batch in iterator:
            self.announce(batch)
            yield batch
            if self._state is not _State.OPEN:
                return
            if self.is_lost():
                exhaust_sampler(loader, iterator)
                return

    # What `batches` does, step by step, for a loop that is somebody else's: Lightning's.

    def expect(self, loader: Iterable[Any], batches: int | None = None) -> None:
        """Before the first batch: how much is to come, which several ranks settle among themselves.

        Args:
            loader: What the batches come from.
            batches: How many of its batches the loop takes; None for all.

        Raises:
            RuntimeError: If the ranks have different numbers of batches, and nothing that makes up for it.
        """
        if self._state is not _State.OPEN:
            return  # the first batch will be refused
        if self._weights is None:
            self.pace.expect(batches or length_of(loader))
            return
        coming = self._weights.begin(loader, batches)
        self.lookout.expect(coming.batches, coming.samples, is_first=not self._begun.epochs)
        self.pace.expect(coming.batches or None)

    def announce(self, batch: Any) -> None:
        """The batch that comes next.

        Args:
            batch: As the loader gave it.
        """
        if self._state is not _State.OPEN:
            _require_open(self._state, "batches()")
        if self._weights is not None:
            self._weights.announce(batch)
        self._last_batch = batch
        if not self._begun.epochs:
            self.lookout.announced += batch_size(batch) or 0.0
        self._batches_given += 1

    def is_lost(self) -> bool:
        """After a step: whether the epoch is certain to be rejected, so that the rest of its batches can go.

        Not asked between the parts of an accumulated gradient, which would be left over for the next epoch.

        Returns:
            True where it is certain.
        """
        if self._state is not _State.OPEN:
            return self._state is _State.REJECTED
        counts = self.window.counts
        progress = counts.total if self._weights is None else self._batches_given
        if not self.lookout.has_to_look(progress) or counts.pending:
            return False
        # In the first epoch N is the objective's: comparable only with counts that are plain batch sizes.
        is_comparable = bool(self._begun.epochs) or counts.total == self.lookout.announced
        if not self.lookout.sees_it_lost(self.window, progress=progress, is_comparable=is_comparable):
            return False
        self._state = _State.REJECTED
        return True

    def abandon(self) -> None:
        """Go back to w^k; the rest of the bracket runs no control and `report` stays None.

        w^k is where the run was last judged: in an epoch that is long enough to be judged on the way, a point in it,
        and the steps up to there stand, and count; after epochs that are too short, a point before some of them, unless
        nothing was observed in this one.
        """
        if self._state is not _State.REJECTED:
            _require_open(self._state, "abandon()")
        self._state = _State.ABANDONED
        if not _waits_on(self):
            self.window.go_back()

    def cut_short(self) -> EpochReport | None:
        """The run ends inside this epoch: what was done is judged where the rule can judge a part, else abandoned.

        Returns:
            What the last part that was judged came to; None where there is none.
        """
        if self._state is _State.OPEN and self._judge.rule.judges_parts and not self.window.is_empty:
            self.judge_now()
        self.abandon()
        return self._reports.last

    def close(self, *, failed: bool) -> None:
        """What leaving the `with` block does: without an error the rule decides.

        Args:
            failed: Whether an error ends the block, so that the epoch is undone.
        """
        state, self._state = self._state, _State.CLOSED
        control = self._optimizer.control
        lr_changed = False
        try:
            lr_changed = not failed and self.pace.somebody_else_set_lr()
            if not failed and state is not _State.ABANDONED:
                self._conclude(early=state is _State.REJECTED)
        finally:
            if self._weights is not None:
                self._weights.end()
            if state is _State.ABANDONED and self._optimizer.held_window is None:
                f_current = self._judge.f_current
                control.update(
                    f_current=math.inf if f_current is None else f_current, sample_current=self._judge.sample_current
                )
            if self.report is None:  # the parts of it that were judged on the way stand all the same
                known, judged, self._steps_judged = control.state, self._steps_judged, 0
                control.update(steps=known.steps + judged, steps_apart=known.steps_apart + judged)
            control.update(factor=self.pace.factor)
            control.end(self._model, holds=self._optimizer.held_window is not None)
            self._optimizer.epoch_under_way = None
            self.__dict__.pop("window", None)  # which an interruption may have left unmade
            self._judge.let_go()  # an epoch may live as long as a user's name for it
        if lr_changed:
            control.step_sizes.warn("was changed inside an epoch", stacklevel=4)
        if self._optimizer.owns_lr:
            warn_if_stalled(control, self._judge.rule)

    @property
    def is_in_the_way(self) -> bool:
        """Whether another epoch may not begin, because the block of this one was not left yet."""
        return self._state is not _State.CLOSED and (self.block is None or self.block() is not None)

    def recover(self) -> None:
        """Of a block that was left before its exit ran to its end, as Ctrl-C may do: as if it had been abandoned."""
        if hasattr(self, "window"):
            self.window.go_back()
        self.close(failed=True)

    def _conclude(self, *, early: bool) -> None:
        if early:
            report = self._judge.conclude_early(self.window, self.lookout.lower_bound)
            self._reports.add(report, self.window.counts.total)
        elif not self._reports or self.window.counts.total:  # else the last batch was the last of a part
            if _waits_on(self):
                refuse_empty_epoch()
            self._judge_window(is_over=True)
        self.report = self._reports.together()
        reports, control = self._reports, self._optimizer.control
        control.count(moved=reports.moved, steps=self.pace.steps, samples=reports.samples)

    def _judge_window(self, *, is_over: bool = False) -> None:
        self._optimizer.steps.to_judged_point()
        share = self.pace.share_at_the_end() if is_over else self.pace.share()
        may_wait = is_over and not self._reports
        report, samples = self._judge.conclude(self.window, self._weights, share=share, may_wait=may_wait)
        self._reports.add(report, samples)
        if report.outcome is Outcome.OPEN:
            self._optimizer.held_window = self.window

    # What the optimizer tells of its steps.

    def begins_step(self, found_inf: Tensor | None) -> float | None:
        """n_p/n̄ of the batch that a step is about to use; None for no step, after an early rejection.

        Args:
            found_inf: What GradScaler found; a step that it skips counts for nothing.

        Returns:
            By what a gradient step is scaled.
        """
        if self._state is not _State.OPEN:
            if self._state is _State.REJECTED:
                return None
            _require_open(self._state, "step()")
        if self._optimizer.control.step_sizes.are_zero():
            return 1.0  # torch.distributed.checkpoint calls step() with lr=0 to make an optimizer build its state
        self.window.snapshot.cover(self._optimizer.param_groups)
        scale = self.window.begins_step(found_inf)
        if self._weights is not None:
            self._weights.stepped(scale)
        self.pace.begins_step(self._batches_given)
        return scale

    def ended_step(self) -> None:
        """A long epoch is judged now and then."""
        if self._state is _State.OPEN and self.pace.is_time_to_judge():
            self.judge_now()

    def judge_now(self) -> None:
        """Judge what was done since the last time, and go on from where that leads."""
        self._judge_window()
        self._steps_judged = self.pace.steps
        del self.window  # before the next one is made: so never more than one copy of the weights is held
        self._judge.let_go()
        self._open_window()

    def observe_closure(self, closure: Callable[[], Any]) -> Any:
        """The closure's loss is one observation, unless the closure made its own.

        Args:
            closure: What was passed to `step`.

        Returns:
            Its loss.
        """
        before = self.window.counts.observations
        loss = closure()
        if loss is not None and self.window.counts.observations == before:
            self.observe(loss, batch_size(self._last_batch) or self.window.counts.nominal)
        return loss

    @property
    def is_open(self) -> bool:
        """Whether steps are taken."""
        return self._state is _State.OPEN


def _waits_on(epoch: Epoch) -> bool:
    """Whether it went on with a window, and has seen no batch: that is then held as if the epoch had not begun."""
    if not epoch.window.earlier.samples or epoch.window.counts.total or epoch._reports:
        return False
    epoch._optimizer.steps.to_judged_point()
    epoch._optimizer.held_window = epoch.window
    return True


def _require_open(state: _State, call: str) -> None:
    if state is not _State.OPEN:
        raise RuntimeError(f"{call} was called for an epoch that {state.value}")
